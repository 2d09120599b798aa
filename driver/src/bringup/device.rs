//! The steps that set up the chip as a whole, each a function that names its source.

use super::error::{BringUpWarning, Fault};
use crate::contexts::{ChipCounts, Split};
use crate::control::Controls;
use qhca_irq::VectorPlan;
use qhca_regs::map::device::{self, HwDiagCtrl, RcvAvailTimeout, SendBufAvailAddr};
use qhca_regs::map::{port, user};
use qhca_regs::status::{ErrBits, HwErrBits, IntBits, PortErrBits};
use qhca_regs::{Bar, Buffer, Ctxt, GONE, Port, RegValue};

/// Start value of each kernel context's interrupt timer (F-151).
pub const RCV_AVAIL_TIMEOUT: u16 = 375;
/// Packet type by which the chip knows extended reliable connections (F-150).
const XRC_TYPE_CODE: u8 = 5;
/// Entries of the queue pair map.
const QP_MAP_ENTRIES: usize = 32;

/// Fails if `value`, just read from `register`, shows that the device no longer answers.
pub(super) fn answered<V: RegValue>(register: &'static str, value: V, bar: &impl Bar) -> Result<V, Fault> {
    // A mask register may honestly be all ones; the revision never is.
    match value.raw() == GONE && device::REVISION.read(bar).raw() == GONE {
        true => Err(Fault::Gone { register }),
        false => Ok(value),
    }
}

/// Source: F-150 (qib_7322_config_ctxts).
pub(super) fn configure_contexts(
    split: &Split,
    counts: &mut ChipCounts,
    controls: &mut Controls,
    bar: &impl Bar,
) -> Result<(), Fault> {
    controls.update_rcv(bar, |rcv| rcv.with_context_cfg(split.cfg.code()).with_xrc_type_code(XRC_TYPE_CODE));
    counts.check_eager(split.cfg, bar).map_err(Fault::Counts)
}

/// Source: F-117, F-151 (write_7322_initregs).
pub(super) fn map_queue_pairs(split: &Split, controls: &mut Controls, bar: &impl Bar) {
    for p in split.ports.iter() {
        let own = port::RcvQpMulticastContext(0).with_rcv_qp_mc_context(p.index() as u8);
        port::RCV_QP_MULTICAST_CONTEXT.port(p).write(bar, own);
        if split.kernel_queues > 1 {
            write_qp_map(split, p, bar);
            controls.update_rcv_port(p, bar, |rcv| rcv.with_rcv_qp_map_enable(true));
        }
    }
    for (ctxt, _) in split.kernel_contexts() {
        let timeout = RcvAvailTimeout(0).with_rcv_avail_to_reload(RCV_AVAIL_TIMEOUT);
        device::RCV_AVAIL_TIMEOUT.ctxt(ctxt).write(bar, timeout);
    }
    for share in &split.contexts {
        clear_flows(share.ctxt, bar);
    }
}

fn clear_flows(ctxt: Ctxt, bar: &impl Bar) {
    let flows = user::RCV_TID_FLOW_TABLE.ctxt(ctxt);
    (0..flows.len()).for_each(|flow| flows.index(flow).write(bar, user::RcvTidFlowTable(0)));
}

/// Six entries of five bits in each of the six registers; the last has two.
fn write_qp_map(split: &Split, p: Port, bar: &impl Bar) {
    let word = |register: usize| {
        let entries = (register * 6..QP_MAP_ENTRIES.min(register * 6 + 6)).enumerate();
        entries.fold(0u64, |word, (place, entry)| {
            word | (split.qp_map_entry(p, entry).index() as u64) << (5 * place)
        })
    };
    let tables = [
        port::RCV_QP_MAP_TABLE_A,
        port::RCV_QP_MAP_TABLE_B,
        port::RCV_QP_MAP_TABLE_C,
        port::RCV_QP_MAP_TABLE_D,
        port::RCV_QP_MAP_TABLE_E,
    ];
    for (register, table) in tables.into_iter().enumerate() {
        table.port(p).write(bar, port::RcvQpMapTable(word(register)));
    }
    port::RCV_QP_MAP_TABLE_F.port(p).write(bar, port::RcvQpMapTableF(word(tables.len())));
}

/// Errors that the chip is to report, by scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorMasks {
    /// `ErrMask`: what read back of all ones, which is what the chip has.
    pub device: ErrBits,
    /// `HwErrMask`.
    pub hardware: HwErrBits,
    /// `ErrMask_p`.
    pub port: PortErrBits,
}

/// Source: F-152, F-153 (qib_setup_7322_interrupt with clearing, qib_7322_init_hwerrors).
pub(super) fn quiet_errors(
    split: &Split,
    warnings: &mut Vec<BringUpWarning>,
    bar: &impl Bar,
) -> Result<ErrorMasks, Fault> {
    device::INT_MASK.write(bar, IntBits::empty());
    check_bist(warnings, bar)?;
    let hardware = hardware_mask(split);
    device::HW_ERR_CLEAR.clear(bar, all_ones::<HwErrBits>() - HwErrBits::POWER_ON_BIST_FAILED);
    device::HW_ERR_MASK.write(bar, hardware);
    device::ERR_CLEAR.clear(bar, all_ones());
    device::ERR_MASK.write(bar, all_ones());
    let device_mask = answered("ErrMask", device::ERR_MASK.read(bar), bar)?;
    if device_mask.is_empty() {
        return Err(Fault::NoErrors);
    }
    for p in split.ports.iter() {
        port::ERR_CLEAR.port(p).clear(bar, all_ones());
        port::ERR_MASK.port(p).write(bar, all_ones());
    }
    device::INT_CLEAR.clear(bar, all_ones());
    device::INT_GRANTED.clear(bar, u64::MAX);
    device::VEC_CLR_WITHOUT_INT.clear(bar, u64::MAX);
    Ok(ErrorMasks { device: device_mask, hardware, port: all_ones() })
}

fn all_ones<V: RegValue>() -> V {
    V::from_raw(u64::MAX)
}

/// The memory self-test must have ended or be switched off, and must not have failed.
fn check_bist(warnings: &mut Vec<BringUpWarning>, bar: &impl Bar) -> Result<(), Fault> {
    let status = answered("EXTStatus", device::EXT_STATUS.read(bar), bar)?;
    if !status.mem_bist_disabled() && !status.mem_bist_end_test() {
        warnings.push(BringUpWarning::BistDidNotEnd { ext_status: status.raw() });
    }
    let errors = answered("HwErrStatus", device::HW_ERR_STATUS.read(bar), bar)?;
    match errors.contains(HwErrBits::POWER_ON_BIST_FAILED) {
        true => Err(Fault::BistFailed { hw_err_status: errors.bits() }),
        false => Ok(()),
    }
}

/// All but what stands for idle SerDes clocks, the logic analyser, and engines of absent ports (F-153).
fn hardware_mask(split: &Split) -> HwErrBits {
    let mut mask = all_ones::<HwErrBits>()
        - HwErrBits::IB_SERDES_P_CLK_NOT_DETECT_0
        - HwErrBits::IB_SERDES_P_CLK_NOT_DETECT_1
        - HwErrBits::LA_TRIGGERED;
    for (p, memory_read) in
        [(Port::P0, HwErrBits::SDMA_MEM_READ_ERR_0), (Port::P1, HwErrBits::SDMA_MEM_READ_ERR_1)]
    {
        mask.set(memory_read, split.ports.has(p));
    }
    mask
}

/// Source: F-603 (qib_setup_7322_interrupt).
pub(super) fn redirect_interrupts(plan: Option<&VectorPlan>, bar: &impl Bar) {
    if let Some(plan) = plan {
        plan.write_redirects(bar);
    }
    device::HW_DIAG_CTRL.write(bar, HwDiagCtrl(0));
}

/// Source: F-104, F-116 (qib_late_7322_initreg).
pub(super) fn size_queues(split: &Split, bar: &impl Bar) {
    device::RCV_HDR_ENT_SIZE.write(bar, u64::from(split.hdr_entry_dwords));
    device::RCV_HDR_SIZE.write(bar, u64::from(split.hdr_dwords));
    device::RCV_HDR_CNT.write(bar, u64::from(split.hdr_entries));
}

/// Source: F-154 (qib_late_7322_initreg).
pub(super) fn place_avail(iova: u64, bar: &impl Bar) -> Result<(), Fault> {
    let address = SendBufAvailAddr(0).with_send_buf_avail_addr(iova >> 6);
    device::SEND_BUF_AVAIL_ADDR.write(bar, address);
    let read = answered("SendBufAvailAddr", device::SEND_BUF_AVAIL_ADDR.read(bar), bar)?.raw();
    match read == iova {
        true => Ok(()),
        false => Err(Fault::AvailAddress { written: iova, read }),
    }
}

/// Every buffer is the kernel's at first: it may send plain packets, whose headers are checked, GRH apart.
///
/// Source: F-155 (qib_late_7322_initreg).
pub(super) fn set_send_checks(bar: &impl Bar) {
    for word in 0..device::SEND_CHECK_MASK.len() {
        let buffers = Buffer::COUNT.saturating_sub(word as usize * 64).min(64);
        let mask = u64::MAX.checked_shr(64 - buffers as u32).unwrap_or(0);
        device::SEND_IB_PACKET_MASK.index(word).write(bar, mask);
        device::SEND_GRH_CHECK_MASK.index(word).write(bar, 0);
        device::SEND_CHECK_MASK.index(word).write(bar, mask);
    }
}

/// Source: F-122, F-118 (enable_chip).
pub(super) fn enable_sending(split: &Split, controls: &mut Controls, bar: &impl Bar) {
    controls.update_send(bar, |send| {
        send.with_avail_upd_thld(split.avail_update_threshold).with_send_buf_avail_upd(true)
    });
    for p in split.ports.iter() {
        controls.update_send_port(p, bar, |send| send.with_send_enable(true));
    }
}

/// Switches interrupts on, and makes the chip raise what is pending.
///
/// Source: F-157 (qib_7322_set_intr_state).
pub(super) fn enable_interrupts(plan: Option<&VectorPlan>, bar: &impl Bar) -> Result<(), Fault> {
    let Some(plan) = plan else { return Ok(()) };
    device::INT_MASK.write(bar, plan.enabled_bits());
    device::INT_CLEAR.clear(bar, IntBits::empty());
    let granted = answered("Int_Granted", device::INT_GRANTED.read(bar), bar)?;
    if granted != 0 {
        device::INT_GRANTED.clear(bar, granted);
    }
    Ok(())
}
