//! The registers of receiving: what software sets, taken over into the state that packets meet.

use super::super::store::USER_PAGE_BYTES;
use super::super::wrong::WrongChip;
use super::super::{Chip, Host};
use super::eager::Partition;
use qhca_regs::layout::TidFlow;
use qhca_regs::map::{device, port, user};
use qhca_regs::status::ErrBits;
use qhca_regs::{Ctxt, Instant, Port};

/// Context enables of `RcvCtrl_p` (F-305).
const CTXT_ENABLES: u64 = 0x3_FFFF;
const FIELDS_PER_MAP_REGISTER: usize = 6;
const FIELD_BITS: usize = 5;

/// First byte of the user registers.
pub(in super::super) const USER_START: u32 = user::RCV_HDR_TAIL.index(0).offset();
const TAIL: u32 = user::RCV_HDR_TAIL.index(0).offset() - USER_START;
const HEAD: u32 = user::RCV_HDR_HEAD.index(0).offset() - USER_START;
const EGR_TAIL: u32 = user::RCV_EGR_INDEX_TAIL.index(0).offset() - USER_START;
const EGR_HEAD: u32 = user::RCV_EGR_INDEX_HEAD.index(0).offset() - USER_START;
/// The flow table's place in a user page, as in PSM's and the stock driver's mapping.
const FLOWS: u32 = 0x1000;
const FLOWS_END: u32 = FLOWS + 8 * TidFlow::COUNT as u32 - 1;

/// Context and byte of a user register.
fn user_place(offset: u32) -> Option<(Ctxt, u32)> {
    let past = offset.checked_sub(USER_START)?;
    Some((Ctxt::new((past / USER_PAGE_BYTES) as usize)?, past % USER_PAGE_BYTES))
}

impl Chip {
    /// Software reads in the user pages.
    pub(in super::super) fn read_user(&self, offset: u32) -> u64 {
        let Some((ctxt, byte)) = user_place(offset) else { return 0 };
        let queue = &self.recv.queues[ctxt.index()];
        let eager = &self.recv.eager[ctxt.index()];
        match byte {
            TAIL => u64::from(queue.tail),
            HEAD => queue.head_register().0,
            EGR_TAIL => u64::from(eager.tail),
            EGR_HEAD => u64::from(eager.head()),
            FLOWS..=FLOWS_END => self.recv.flows.read(ctxt, ((byte - FLOWS) / 8) as usize),
            _ => self.store.read(offset),
        }
    }

    /// Software writes in the user pages.
    pub(in super::super) fn write_user(
        &mut self,
        offset: u32,
        value: u64,
        now: Instant,
        host: &mut impl Host,
    ) {
        let Some((ctxt, byte)) = user_place(offset) else { return };
        match byte {
            HEAD => {
                let counts = !self.config.wrong.has(WrongChip::HeadCountIgnored);
                let geometry = self.recv.geometry;
                self.recv.queues[ctxt.index()].move_head(user::RcvHdrHead(value), geometry, counts);
                self.recv.timers &= !(1 << ctxt.index());
                self.check_avail(ctxt, now, host);
                self.release_held(now, host);
            }
            EGR_HEAD => self.recv.eager[ctxt.index()].move_head(value),
            FLOWS..=FLOWS_END => self.recv.flows.write(ctxt, ((byte - FLOWS) / 8) as usize, value),
            _ => {
                self.store.write(offset, value);
            }
        }
    }

    pub(in super::super) fn egr_count(&self) -> u64 {
        let partition = match self.config.wrong.has(WrongChip::EagerCountFixed) {
            true => Partition::from_code(0, self.recv.single_port),
            false => self.recv.partition,
        };
        u64::from(partition.user_entries())
    }

    pub(in super::super) fn avail_timeout(&self, ctxt: Ctxt, now: Instant) -> u64 {
        self.recv.queues[ctxt.index()].timeout(now, self.config.timing.avail_timeout_unit).0
    }

    pub(in super::super) fn write_rcv_ctrl(&mut self, value: u64, now: Instant, host: &mut impl Host) {
        let control = device::RcvCtrl(value);
        let partition = Partition::from_code(control.context_cfg(), self.recv.single_port);
        if partition != self.recv.partition {
            self.recv.partition = partition;
            for ctxt in Ctxt::all() {
                self.recv.eager[ctxt.index()].restart(partition.window(ctxt));
            }
        }
        self.recv.dont_drop = control.dont_drop_rhq_full();
        self.recv.tail_updates = control.tail_upd();
        self.recv.flows.enabled = control.tid_flow_enable();
        self.recv.xrc_class = control.xrc_type_code();
        let changed = control.intr_avail() ^ self.recv.int_avail;
        self.recv.int_avail = control.intr_avail();
        for ctxt in Ctxt::all().filter(|ctxt| changed >> ctxt.index() & 1 != 0) {
            self.check_avail(ctxt, now, host);
        }
        self.release_held(now, host);
    }

    /// Takes over the geometry that all queues share.
    pub(in super::super) fn write_rcv_geometry(&mut self) {
        let field = |reg: qhca_regs::Reg<u64, qhca_regs::Rw>| (self.store.get(reg.offset()) & 0xFFFF) as u32;
        self.recv.geometry.entries = field(device::RCV_HDR_CNT);
        self.recv.geometry.entry_dwords = field(device::RCV_HDR_ENT_SIZE);
        self.recv.geometry.kd_dwords = field(device::RCV_HDR_SIZE);
    }

    pub(in super::super) fn write_rcv_hdr_addr(&mut self, ctxt: Ctxt, value: u64) {
        self.recv.queues[ctxt.index()].iova = value;
    }

    pub(in super::super) fn write_rcv_tail_addr(&mut self, ctxt: Ctxt, value: u64) {
        self.recv.queues[ctxt.index()].tail_iova = value;
    }

    pub(in super::super) fn write_avail_timeout(&mut self, ctxt: Ctxt, value: u64) {
        self.recv.queues[ctxt.index()].set_timeout(device::RcvAvailTimeout(value));
    }

    /// Enables and disables contexts of `port`, and what else `RcvCtrl_p` says.
    pub(in super::super) fn write_port_rcv_ctrl(
        &mut self,
        port: Port,
        value: u64,
        now: Instant,
        host: &mut impl Host,
    ) {
        let control = port::RcvCtrl(value);
        let receiver = &mut self.recv.ports[port.index()];
        receiver.enabled = control.rcv_ib_port_enable();
        receiver.steering.map_enabled = control.rcv_qp_map_enable();
        receiver.steering.pkeys_checked = !control.rcv_partition_key_disable();
        for ctxt in Ctxt::all() {
            let wanted = value & CTXT_ENABLES & 1 << ctxt.index() != 0;
            self.enable_ctxt(port, ctxt, wanted, now, host);
        }
        self.release_held(now, host);
    }

    /// A context that both ports enable stays with the first and is an error (F-342).
    fn enable_ctxt(&mut self, port: Port, ctxt: Ctxt, wanted: bool, now: Instant, host: &mut impl Host) {
        let queue = &mut self.recv.queues[ctxt.index()];
        match queue.port {
            None if wanted => {
                queue.enable(port);
                self.recv.timers &= !(1 << ctxt.index());
                let window = self.recv.partition.window(ctxt);
                self.recv.eager[ctxt.index()].restart(window);
            }
            Some(owner) if owner == port && !wanted => {
                queue.disable();
                self.recv.timers &= !(1 << ctxt.index());
            }
            Some(owner) if owner != port && wanted => {
                self.raise_err(ErrBits::RCV_CONTEXT_SHARE_ERR, now, host);
            }
            _ => {}
        }
    }

    /// Takes over what `port`'s registers say on steering.
    pub(in super::super) fn write_steering(&mut self, port: Port) {
        let get = |offset: u32| self.store.get(offset);
        let bthqp = port::RcvBthqp(get(port::RCV_BTHQP.port(port).offset())).rcv_bthqp();
        let multicast = get(port::RCV_QP_MULTICAST_CONTEXT.port(port).offset()) as u8 & 0x1F;
        let pkeys = get(port::RCV_PARTITION_KEY.port(port).offset());
        let first = port::RCV_QP_MAP_TABLE_A.port(port).offset();
        let map = std::array::from_fn(|entry| {
            let (register, field) = (entry / FIELDS_PER_MAP_REGISTER, entry % FIELDS_PER_MAP_REGISTER);
            (get(first + 8 * register as u32) >> (field * FIELD_BITS) & 0x1F) as u8
        });
        let steering = &mut self.recv.ports[port.index()].steering;
        steering.bthqp = bthqp;
        steering.multicast_ctxt = multicast;
        steering.map = map;
        steering.pkeys = std::array::from_fn(|n| (pkeys >> (16 * n)) as u16);
    }
}
