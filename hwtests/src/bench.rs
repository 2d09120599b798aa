//! The card on the bench: registers, memory, time, interrupts, and a port that talks to itself or to the other.
//!
//! The bench keeps no copy of a register. It waits by waiting for interrupts with a deadline, which sleeps on a real
//! card and moves the clock of a simulated one.

use crate::Surroundings;
use crate::check::{Stop, Verdict, ensure};
use crate::packet::{PKEY_DEFAULT, Packet};
use qhca_driver::dma::DmaRegion;
use qhca_driver::env::{Backend, Clock, DmaMapper, MapError};
use qhca_irq::plan::{Mode, negotiate};
use qhca_irq::{Grant, IrqSource, VectorSet, Wake};
use qhca_regs::map::{area, device, port as port_regs};
use qhca_regs::status::{ErrBits, IntBits, PortErrBits};
use qhca_regs::{Bar, Buffer, Duration, Port, Reg, RegValue, Rw, Vector};

/// How long a link may train.
///
/// TIMEOUT: links train in well under a second; a card that needs more is broken.
pub(crate) const LINK_UP_WITHIN: Duration = Duration::from_secs(2);
/// How long anything that the chip does by itself may take: what has not come by then is not on its way.
pub(crate) const SOON: Duration = Duration::from_millis(2);
/// How long what must come is waited for.
///
/// TIMEOUT: the chip needs [`SOON`] at most. The rest is for a host that is held up: in an emulated machine on busy cores
/// an interrupt is on its way for tens of milliseconds. The wait ends with what it is for, so a host that is not held up
/// spends none of it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
/// The first step between two looks.
const FIRST_STEP: Duration = Duration::from_micros(10);
/// How many times in a row stray interrupts are collected, at most.
const QUIET_ROUNDS: usize = 8;
/// Dwords of a header-queue entry.
pub(crate) const ENTRY_DWORDS: u64 = 32;
/// Dwords of an HCA-to-HCA header beyond LRH and BTH that the chip keeps in the entry.
const HEADER_EXTRA_DWORDS: u64 = 9;
/// The destination QP that marks packets of PSM.
const KD_QPN: u64 = 0x65_6B78;
/// Link states of `IBCStatusA`.
pub(crate) const LINK_DOWN: u8 = 0;
pub(crate) const LINK_INIT: u8 = 1;
pub(crate) const LINK_ARMED: u8 = 2;
pub(crate) const LINK_ACTIVE: u8 = 3;

/// The card and what a scenario needs to work on it.
pub(crate) struct Bench<'a, B: Backend> {
    device: B,
    bar: B::Bar,
    mapper: B::Mapper,
    clock: B::Clock,
    irq: Option<B::Irq>,
    mode: Mode,
    granted: VectorSet,
    fired: VectorSet,
    /// The longest that a vector was waited for: how late this host is told of an interrupt.
    latest: Duration,
    avail: Option<DmaRegion>,
    /// All memory that the chip was told of since the last reset: it may write there until the next.
    regions: Vec<DmaRegion>,
    /// Whether ports talk to what is at the other end of their cable, not to themselves.
    joined: bool,
    pub(crate) surroundings: &'a mut dyn Surroundings,
}

impl<'a, B: Backend> Bench<'a, B> {
    pub(crate) fn new(device: B, surroundings: &'a mut dyn Surroundings) -> Self {
        let (bar, mapper, clock) = (device.bar(), device.mapper(), device.clock());
        Self {
            device,
            bar,
            mapper,
            clock,
            irq: None,
            mode: Mode::MsiX,
            granted: VectorSet::EMPTY,
            fired: VectorSet::EMPTY,
            latest: Duration::ZERO,
            avail: None,
            regions: Vec::new(),
            joined: false,
            surroundings,
        }
    }

    /// The card as after power-on, with as many vectors as the host has, of the best kind, nothing enabled.
    pub(crate) fn reset(&mut self) -> Verdict {
        let failed = |what: &str, error: std::io::Error| Stop::Fail(format!("{what}: {error}"));
        self.device.reset().map_err(|error| failed("reset", error))?;
        let granted = self.take_vectors()?;
        let vectors: Vec<Vector> = (0..granted).filter_map(Vector::new).collect();
        self.granted = vectors.iter().copied().collect();
        self.irq = None;
        self.irq = Some(self.device.irq_source(&vectors).map_err(|error| failed("interrupt source", error))?);
        self.avail = None;
        self.regions.clear();
        self.fired = VectorSet::EMPTY;
        let code = self.read(device::REVISION).0;
        ensure!(code != u64::MAX, "the card does not answer after a reset");
        Ok(())
    }

    /// As many vectors as the host has, of the best kind that it has.
    fn take_vectors(&mut self) -> Result<usize, Stop> {
        let mut refusals = String::new();
        let device = &mut self.device;
        let grant = negotiate(Vector::COUNT, |mode, wanted| {
            let granted = device.grant_vectors(mode, wanted);
            granted.inspect_err(|error| refusals.push_str(&format!("; {mode}: {error}"))).ok()
        });
        let (mode, count) = match grant {
            Some(Grant::MsiX { vectors }) => (Mode::MsiX, vectors),
            Some(Grant::Msi) => (Mode::Msi, 1),
            Some(Grant::Intx) => (Mode::Intx, 1),
            None => return Err(Stop::Skip(format!("the host grants no interrupts{refusals}"))),
        };
        self.mode = mode;
        Ok(count)
    }

    /// Lets the interrupt line fire again, if that is the kind that was granted: it masks itself when it fires. What was
    /// raised meanwhile and is still pending fires at once.
    fn unmask(&mut self) {
        if self.mode == Mode::Intx {
            self.device.unmask_line();
        }
    }

    /// Lets ports talk to each other from now on, or to themselves.
    pub(crate) fn set_joined(&mut self, joined: bool) {
        self.joined = joined;
    }

    /// Gives back what the card lost when it reset itself: its place on the bus.
    pub(crate) fn restore(&mut self) -> Verdict {
        let restored = self.device.restore_after_chip_reset();
        restored.map_err(|error| Stop::Fail(format!("the card's place on the bus: {error}")))
    }

    /// The vectors that the host granted.
    pub(crate) fn granted(&self) -> VectorSet {
        self.granted
    }

    pub(crate) fn bar(&self) -> &B::Bar {
        &self.bar
    }

    pub(crate) fn now(&self) -> qhca_regs::Instant {
        self.clock.now()
    }

    pub(crate) fn read<V: RegValue, A: qhca_regs::access::Readable>(&self, reg: Reg<V, A>) -> V {
        reg.read(&self.bar)
    }

    pub(crate) fn write<V: RegValue>(&self, reg: Reg<V, Rw>, value: V) {
        reg.write(&self.bar, value);
    }

    /// Writes a control register that must not see two writes in a row: a dummy write to the scratch register follows.
    pub(crate) fn write_apart<V: RegValue>(&self, reg: Reg<V, Rw>, value: V) {
        reg.write(&self.bar, value);
        device::SCRATCH.write(&self.bar, 0);
    }

    /// The ports that the board has, by the speeds that it brings out.
    pub(crate) fn ports(&self) -> Vec<Port> {
        let speeds = self.read(device::ACTIVE_FEATURE_MASK).0;
        Port::ALL.into_iter().filter(|port| speeds >> (3 * port.index()) & 0b111 != 0).collect()
    }

    pub(crate) fn map(&mut self, len_bytes: usize) -> Result<DmaRegion, Stop> {
        let region = self.mapper.map(len_bytes).map_err(|error| match error {
            // Registers and interrupts can be tried all the same.
            MapError::NoIommu { .. } => Stop::Skip(error.to_string()),
            _ => Stop::Fail(format!("DMA memory: {error}")),
        })?;
        region.memory().zero(0, region.len_bytes());
        self.regions.push(region.clone());
        Ok(region)
    }

    /// Lets time pass; gives the vectors that fired since the last call of this or [`wait`](Self::wait).
    ///
    /// A register is read first: what was written is with the card when its answer is here, and the time counts from then.
    /// One is read at the end too: its answer comes behind everything that the card did before, in memory too.
    pub(crate) fn pause(&mut self, span: Duration) -> VectorSet {
        self.read(device::SCRATCH);
        let until = self.now() + span;
        self.collect_until(until);
        self.read(device::SCRATCH);
        self.collect_until(until);
        std::mem::take(&mut self.fired)
    }

    /// Collects the vectors that fire until then; those that have fired, if that is over.
    fn collect_until(&mut self, until: qhca_regs::Instant) {
        self.unmask();
        while let Some(irq) = &mut self.irq
            && let Wake::Vectors(vectors) = irq.wait(Some(until))
        {
            self.fired = self.fired.union(vectors);
            if self.clock.now() >= until {
                break;
            }
        }
    }

    /// Lets time pass and keeps the vectors that fire for whoever asks next.
    pub(crate) fn settle(&mut self, span: Duration) {
        let fired = self.pause(span);
        self.fired = self.fired.union(fired);
    }

    /// Lets pass what fires late, until nothing has fired for longer than this host was ever late.
    pub(crate) fn quiet(&mut self) {
        let span = FIRST_STEP + self.latest + self.latest;
        for _ in 0..QUIET_ROUNDS {
            if self.pause(span).is_empty() {
                break;
            }
        }
    }

    /// Waits until a vector fires that must, at most for [`PATIENCE`]; gives those that did.
    pub(crate) fn wait(&mut self) -> VectorSet {
        let begun = self.now();
        let fired = self.wait_for(PATIENCE);
        if !fired.is_empty() {
            self.latest = self.latest.max(self.now().since(begun));
        }
        fired
    }

    /// Waits until a vector fires, at most for `limit`; gives those that did.
    ///
    /// At the end a register is read, as in [`pause`](Self::pause): a card behind a process that was held up has then
    /// had its turn.
    pub(crate) fn wait_for(&mut self, limit: Duration) -> VectorSet {
        let until = self.now() + limit;
        self.unmask();
        self.await_first(until);
        if self.fired.is_empty() {
            self.read(device::SCRATCH);
            self.await_first(until);
        }
        std::mem::take(&mut self.fired)
    }

    /// Collects vectors until the first fires, or until then.
    fn await_first(&mut self, until: qhca_regs::Instant) {
        while self.fired.is_empty()
            && let Some(irq) = &mut self.irq
            && let Wake::Vectors(vectors) = irq.wait(Some(until))
        {
            self.fired = self.fired.union(vectors);
            if self.clock.now() >= until {
                break;
            }
        }
    }

    /// Looks again and again, at most for `limit`, until `look` is content.
    pub(crate) fn until(&mut self, limit: Duration, mut look: impl FnMut(&mut Self) -> bool) -> bool {
        let deadline = self.now() + limit;
        let longest = Duration::from_nanos((limit.as_nanos() / 200).max(1_000));
        let mut step = longest.min(FIRST_STEP);
        loop {
            // The last look begins when the time is over: a host that was held up has not looked too early.
            let is_last = self.now() >= deadline;
            if look(self) {
                return true;
            }
            if is_last {
                return false;
            }
            self.settle(step);
            step = longest.min(step + step);
        }
    }

    /// Sets up what all contexts and ports share: `ctxt_code` says how many contexts, `entries` how long their queues.
    pub(crate) fn set_up(&mut self, ctxt_code: u8, entries: u64) -> Result<(), Stop> {
        self.write(device::RCV_CTRL, device::RcvCtrl(0).with_context_cfg(ctxt_code).with_xrc_type_code(5));
        self.write(device::RCV_HDR_ENT_SIZE, ENTRY_DWORDS);
        self.write(device::RCV_HDR_SIZE, HEADER_EXTRA_DWORDS);
        self.write(device::RCV_HDR_CNT, entries);
        let avail = self.map(4096)?;
        self.write(device::SEND_BUF_AVAIL_ADDR, device::SendBufAvailAddr(avail.iova()));
        self.avail = Some(avail);
        for word in 0..3 {
            self.write(device::SEND_IB_PACKET_MASK.index(word), u64::MAX);
            self.write(device::SEND_CHECK_MASK.index(word), 0);
            self.write(device::SEND_GRH_CHECK_MASK.index(word), 0);
        }
        let send = device::SendCtrl(0).with_avail_upd_thld(8);
        self.write_apart(device::SEND_CTRL, send.with_send_buf_avail_upd(true));
        Ok(())
    }

    /// Forces the avail image into memory and gives its six words.
    pub(crate) fn avail_image(&mut self) -> Result<[u64; 6], Stop> {
        let send = self.read(device::SEND_CTRL);
        self.write_apart(device::SEND_CTRL, send.with_send_buf_avail_upd(false));
        self.write_apart(device::SEND_CTRL, send.with_send_buf_avail_upd(true));
        self.pause(Duration::from_micros(10));
        let avail = self.avail.as_ref().ok_or_else(|| Stop::Fail("the bench was not set up".to_owned()))?;
        Ok(std::array::from_fn(|word| avail.memory().load_u64(8 * word)))
    }

    /// Prepares `port` to talk to itself, or to the other port, and starts training.
    pub(crate) fn start_link(&mut self, port: Port) {
        // All speeds, four lanes.
        self.start_link_with(port, port_regs::IbcCtrlB(0x304BF));
    }

    /// As [`start_link`](Self::start_link), with the speeds and widths of `control`.
    pub(crate) fn start_link_with(&mut self, port: Port, control: port_regs::IbcCtrlB) {
        self.write(port_regs::RCV_BTHQP.port(port), port_regs::RcvBthqp(KD_QPN));
        self.write(port_regs::SEND_CHECK_CONTROL.port(port), port_regs::SendCheckControl(0x1F));
        self.write(port_regs::RCV_PARTITION_KEY.port(port), u64::from(PKEY_DEFAULT));
        self.write(port_regs::IBPCS_CONFIG.port(port), port_regs::IbpcsConfig(0));
        self.write(port_regs::IBC_CTRL_B.port(port), control);
        // Two lanes on the port's half of the receive buffer: 512 credits, 9 of them for VL 15.
        self.write(port_regs::RX_CREDIT_VL15.port(port), port_regs::RxCreditVl(9));
        for (lane, credits) in [252, 251].into_iter().enumerate() {
            let register = port_regs::RX_CREDIT_VL.port(port).index(lane as u32);
            self.write(register, port_regs::RxCreditVl(credits));
        }
        let test = self.read(port_regs::IB_SDTEST_IF_TX.port(port)).with_vl_cap(1);
        self.write_apart(port_regs::IB_SDTEST_IF_TX.port(port), test.with_credit_change(true));
        self.write_apart(port_regs::IB_SDTEST_IF_TX.port(port), test.with_credit_change(false));
        self.write_apart(port_regs::SEND_CTRL.port(port), port_regs::SendCtrl(0).with_send_enable(true));
        let receive = self.read(port_regs::RCV_CTRL.port(port)).with_rcv_ib_port_enable(true);
        self.write(port_regs::RCV_CTRL.port(port), receive);
        self.write_apart(port_regs::IBC_CTRL_A.port(port), self.link_control());
    }

    /// `IBCCtrlA` of a port, without a command.
    fn link_control(&self) -> port_regs::IbcCtrlA {
        port_regs::IbcCtrlA(0)
            .with_flow_ctrl_period(24)
            .with_flow_ctrl_water_mark(5)
            .with_phyerr_threshold(15)
            .with_overrun_threshold(15)
            .with_max_pkt_len(1057)
            .with_num_v_lane(1)
            .with_ib_link_en(true)
            .with_loopback(!self.joined)
    }

    /// Gives a link command: 1 down, 2 armed, 3 active.
    pub(crate) fn command_link(&mut self, port: Port, command: u8) {
        self.write_apart(port_regs::IBC_CTRL_A.port(port), self.link_control().with_link_cmd(command));
    }

    /// Gives a command to the link's training: 1 disabled, 2 polling, 3 asleep.
    pub(crate) fn command_training(&mut self, port: Port, command: u8) {
        let control = self.link_control().with_link_init_cmd(command);
        self.write_apart(port_regs::IBC_CTRL_A.port(port), control);
    }

    pub(crate) fn link_state(&self, port: Port) -> u8 {
        self.read(port_regs::IBC_STATUS_A.port(port)).link_state()
    }

    /// Waits until the link of `port` is in `state`.
    pub(crate) fn await_link(&mut self, port: Port, state: u8) -> Result<(), Stop> {
        let reached = self.until(LINK_UP_WITHIN, |bench| bench.link_state(port) == state);
        let status = self.read(port_regs::IBC_STATUS_A.port(port)).0;
        ensure!(
            reached,
            "{port}: link state {state} not reached in {LINK_UP_WITHIN}, IBCStatusA {status:#x}"
        );
        Ok(())
    }

    /// Takes `port` to ACTIVE, talking to itself.
    pub(crate) fn bring_up(&mut self, port: Port) -> Result<(), Stop> {
        self.start_link(port);
        self.await_link(port, LINK_INIT)?;
        self.command_link(port, 2);
        self.await_link(port, LINK_ARMED)?;
        self.command_link(port, 3);
        self.await_link(port, LINK_ACTIVE)
    }

    /// Copies `dwords` to `buffer`, from its `start`-th dword on.
    pub(crate) fn fill(&self, buffer: Buffer, start: usize, dwords: &[u32]) {
        self.bar.burst(buffer.offset() + 4 * start as u32, dwords);
    }

    /// Sends `packet` from `buffer` and gives it time to arrive.
    pub(crate) fn send(&mut self, buffer: Buffer, packet: &Packet) {
        self.fill(buffer, 0, &packet.dwords());
        self.settle(Duration::from_micros(20));
    }

    /// Clears every cause and error, then enables `causes`, with what lies behind the summaries enabled too.
    pub(crate) fn enable_interrupts(&mut self, causes: IntBits) {
        device::ERR_CLEAR.clear(&self.bar, ErrBits::all());
        self.write(device::ERR_MASK, ErrBits::all());
        for port in self.ports() {
            port_regs::ERR_CLEAR.port(port).clear(&self.bar, PortErrBits::all());
            self.write(port_regs::ERR_MASK.port(port), PortErrBits::all());
        }
        device::INT_CLEAR.clear(&self.bar, IntBits::all());
        self.quiet();
        self.write(device::INT_MASK, causes);
        self.pause(Duration::from_micros(1));
    }

    /// Lets the cause in bit `bit` of `IntStatus` fire `vector`, and all others vector 0.
    pub(crate) fn redirect_only(&self, bit: u32, vector: Vector) {
        for register in 0..6 {
            let mut contents = device::IntRedirect(0);
            if bit / 12 == register {
                contents.0 = (vector.index() as u64) << (bit % 12 * 5);
            }
            self.write(device::INT_REDIRECT.index(register), contents);
        }
    }

    /// The avail image as the chip shows it in its own registers.
    pub(crate) fn avail_registers(&self) -> [u64; 6] {
        std::array::from_fn(|word| self.read(area::SEND_BUF_AVAIL.index(word as u32)))
    }
}
