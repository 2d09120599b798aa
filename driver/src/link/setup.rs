//! Setting a port up: packet sizes, credits, speeds, resets of its physical layer.
//!
//! These are the register sequences of port bring-up, in the data sheet's order, each a function. They leave the port
//! switched off; [`PortLink`](super::PortLink) switches it on. The analogue tuning of the SerDes is left as reset has
//! it: no source calls it essential, and a link trains without (F-133).
//!
//! Source: F-134 to F-138.

use crate::contexts::Split;
use crate::control::separate;
use crate::identity::Guid;
use crate::ports::Speeds;
use qhca_regs::map::port::{self, IbSdTxDeemphasisOverride, IbcCtrlA, IbcCtrlB, RxCreditVl};
use qhca_regs::map::{device, port as port_map};
use qhca_regs::status::HwErrBits;
use qhca_regs::{Bar, Port, RegValue};

/// Contents of `RcvBTHQP`: the queue pair whose packets are for user contexts (F-134).
pub const KD_QP: u32 = 0x65_6B78;
/// Receive buffer of the chip in units of 64 bytes, for all ports (F-136).
const CREDIT_UNITS: u16 = 1024;
/// Units of it for management packets: two of 288 bytes (F-136).
const VL15_CREDITS: u16 = 9;

/// What one port is set up with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortSetup {
    /// The port.
    pub port: Port,
    /// Speeds that it may use.
    pub speeds: Speeds,
    /// Largest payload of a packet, bytes.
    pub mtu_bytes: u32,
    /// Virtual lanes for data: 1, 2, 4 or 8.
    pub lanes: u8,
    /// Ports in use, which share the receive buffer.
    pub ports: u16,
    /// The port's GUID, or none.
    pub guid: Guid,
}

impl PortSetup {
    /// The set-up of `port` in `split`.
    pub fn new(port: Port, split: &Split, mtu_bytes: u32, lanes: u8, guid: Guid) -> Self {
        let ports = split.ports.count() as u16;
        Self { port, speeds: split.ports.speeds(port), mtu_bytes, lanes, ports, guid }
    }
}

/// Dwords of the longest packet with `mtu_bytes` of payload: 128 bytes of headers and the ICRC (F-135).
pub const fn max_pkt_len_dwords(mtu_bytes: u32) -> u16 {
    ((mtu_bytes + 128) / 4 + 1) as u16
}

/// Credits of data lane `lane` of `lanes` on a chip with `ports` ports in use: equal parts, the rest to the lowest.
pub const fn lane_credits(lane: u16, lanes: u16, ports: u16) -> u16 {
    let shared = CREDIT_UNITS / ports - VL15_CREDITS;
    shared / lanes + if lane < shared % lanes { 1 } else { 0 }
}

/// First touch of a port that is present: VL capability, checks, queue pair of user packets, no send DMA buffers.
///
/// Source: F-134 (write_7322_init_portregs).
pub fn init_present_port(setup: &PortSetup, bar: &impl Bar) {
    let PortSetup { port: p, lanes, .. } = *setup;
    let vl_cap = lanes.trailing_zeros() as u8;
    let sdtest = port_map::IB_SDTEST_IF_TX.port(p);
    sdtest.write(bar, sdtest.read(bar).with_vl_cap(vl_cap));
    port_map::RCV_BTHQP.port(p).write(bar, port::RcvBthqp(0).with_rcv_bthqp(KD_QP));
    port_map::SEND_CHECK_CONTROL.port(p).write(bar, port::SendCheckControl(0x1F));
    port_map::IBNC_MODE_CTRL.port(p).write(bar, port::IbncModeCtrl(0).with_scramble_cap_local(true));
    // A chip that was not reset may hold the LID of its last owner.
    port_map::SEND_IBSLID_ASSIGN.port(p).write(bar, port::SendIbslidAssign(0));
    port_map::SEND_IBSLID_MASK.port(p).write(bar, port::SendIbslidMask(0));
    let masks = port_map::SEND_DMA_BUF_MASK.port(p);
    (0..masks.len()).for_each(|word| masks.index(word).write(bar, 0));
}

/// Keeps a port that is absent quiet: no reception, no link.
pub fn init_absent_port(p: Port, bar: &impl Bar) {
    port_map::RCV_CTRL.port(p).write(bar, port::RcvCtrl(0));
    port_map::IBC_CTRL_A.port(p).write(bar, IbcCtrlA(0));
    separate(bar);
}

/// `IBCCtrlA` of a port that is set up and not yet on: flow control, thresholds, packet length (F-135).
pub const fn ctrl_a(setup: &PortSetup) -> IbcCtrlA {
    let max_pkt_len = max_pkt_len_dwords(setup.mtu_bytes) as u64;
    // FlowCtrlPeriod 24 units of 128 ns, FlowCtrlWaterMark 5 KiB, both thresholds 15.
    IbcCtrlA(24 | 5 << 8 | max_pkt_len << 21 | 15 << 32 | 15 << 36)
}

/// `IBCCtrlB` for the speeds of the port at 4X, with heartbeat answered (F-137).
pub fn ctrl_b(reset: IbcCtrlB, speeds: Speeds) -> IbcCtrlB {
    let several = speeds.are_several();
    reset
        .with_ib_enhanced_mode(several)
        .with_sd_speed(several)
        .with_sd_speed_sdr(speeds.contains(Speeds::SDR))
        .with_sd_speed_ddr(speeds.contains(Speeds::DDR))
        .with_sd_speed_qdr(speeds.contains(Speeds::QDR))
        .with_ib_num_channels(1)
        .with_ib_polarity_rev_supp(true)
        .with_ib_lane_rev_supported(false)
        .with_hrtbt_enb(true)
        .with_hrtbt_auto(true)
        .with_ib_dlid(0)
        .with_ib_dlid_mask(0)
}

/// Resets the physical layer of a port: the link drops and, if `ctrl` has the link on, trains anew.
///
/// The reset makes the chip report a false hardware error, which is masked meanwhile and then cleared. `ctrl` holds
/// no command and is what `IBCCtrlA` holds afterwards.
///
/// Source: F-138 (qib_7322_mini_pcs_reset).
pub fn reset_physical_layer(p: Port, ctrl: IbcCtrlA, bar: &impl Bar) {
    let config = port_map::IBPCS_CONFIG.port(p);
    let running = config.read(bar).with_tx_rx_reset(false).with_xcv_treset(false).with_xcv_rreset(false);
    let mask = device::HW_ERR_MASK.read(bar);
    device::HW_ERR_MASK.write(bar, mask.difference(HwErrBits::STATUS_VALID_NO_EOP));
    port_map::IBC_CTRL_A.port(p).write(bar, ctrl.with_ib_link_en(false));
    config.write(bar, running.with_tx_rx_reset(true).with_xcv_treset(true).with_xcv_rreset(true));
    device::SCRATCH.read(bar);
    config.write(bar, running);
    port_map::IBC_CTRL_A.port(p).write(bar, ctrl);
    separate(bar);
    device::HW_ERR_CLEAR.clear(bar, HwErrBits::STATUS_VALID_NO_EOP);
    device::HW_ERR_MASK.write(bar, mask);
}

/// Undoes any override of the transmitter's shape.
pub fn reset_transmitter(p: Port, bar: &impl Bar) {
    let reset = IbSdTxDeemphasisOverride(0).with_reset_tx_deemphasis_override(true);
    port_map::IB_SD_TX_DEEMPHASIS_OVERRIDE.port(p).write(bar, reset);
}

/// Writes the front porch and the GUID that heartbeats carry.
pub fn write_heartbeat(setup: &PortSetup, bar: &impl Bar) {
    let ctrl_c = port_map::IBC_CTRL_C.port(setup.port);
    ctrl_c.write(bar, ctrl_c.read(bar).with_ib_front_porch(15));
    port_map::HRTBT_GUID.port(setup.port).write(bar, setup.guid.0);
    separate(bar);
}

/// Divides the receive buffer among the lanes and tells the link of it. Returns whether all credits read back.
///
/// Source: F-136 (set_vls).
pub fn write_credits(setup: &PortSetup, bar: &impl Bar) -> bool {
    let PortSetup { port: p, lanes, ports, .. } = *setup;
    let credits = |units| RxCreditVl(0).with_rx_max_credit_vl(units);
    let row = port_map::RX_CREDIT_VL.port(p);
    let vl15 = port_map::RX_CREDIT_VL15.port(p);
    let share = |lane: u32| match lane < u32::from(lanes) {
        true => lane_credits(lane as u16, u16::from(lanes), ports),
        false => 0,
    };
    vl15.write(bar, credits(VL15_CREDITS));
    (0..row.len()).for_each(|lane| row.index(lane).write(bar, credits(share(lane))));

    let sdtest = port_map::IB_SDTEST_IF_TX.port(p);
    let quiet = sdtest.read(bar).with_credit_change(false);
    sdtest.write(bar, quiet.with_credit_change(true));
    separate(bar);
    sdtest.write(bar, quiet);
    separate(bar);

    let reads_back = |value: RxCreditVl, units| value.rx_max_credit_vl() == units;
    let data = (0..row.len()).filter(|&lane| reads_back(row.index(lane).read(bar), share(lane))).count();
    reads_back(vl15.read(bar), VL15_CREDITS) && data == row.len() as usize
}

/// Whether a register of the port reads all ones.
pub fn is_gone(p: Port, bar: &impl Bar) -> bool {
    port_map::IBC_STATUS_A.port(p).read(bar).raw() == qhca_regs::GONE
}
