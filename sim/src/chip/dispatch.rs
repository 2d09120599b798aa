//! From an offset to the chapter that answers: the one place where the BAR's layout is walked.
//!
//! ```text
//!   0x000000  chip        0x011000  counters       0x100000  send buffers
//!   0x001000  port 0      0x014000  eager array    0x200000  user pages, 64 KiB a context
//!   0x002000  port 1      0x050000  TID array
//!   0x003000  avail image, MSI-X table, ...
//! ```

use super::wrong::WrongChip;
use super::{Chip, Host, counter, recv, send};
use qhca_regs::map::{area, device, port};
use qhca_regs::{Ctxt, Instant, Port};

/// Offsets by name, for matching; a port's register at its place in port 0's page.
mod at {
    use super::{Port, area, device, port};

    macro_rules! device_offsets { ($($name:ident)*) => { $(pub(super) const $name: u32 = device::$name.offset();)* } }
    device_offsets! {
        SCRATCH INT_MASK INT_STATUS INT_CLEAR ERR_MASK ERR_STATUS ERR_CLEAR HW_ERR_MASK HW_ERR_STATUS HW_ERR_CLEAR
        HW_DIAG_CTRL EXT_STATUS EXT_CTRL GPIO_OUT GPIO_MASK GPIO_STATUS GPIO_CLEAR RCV_CTRL RCV_HDR_SIZE RCV_HDR_CNT
        RCV_HDR_ENT_SIZE RCV_EGR_CNT SEND_CTRL SEND_BUF_AVAIL_ADDR AVAIL_UPD_COUNT AHB_ACCESS_CTRL AHB_TRANSACTION_REG
        INT_GRANTED VEC_CLR_WITHOUT_INT CONTROL
    }

    macro_rules! device_rows { ($($name:ident $end:ident)*) => { $(
        pub(super) const $name: u32 = device::$name.index(0).offset();
        pub(super) const $end: u32 = $name + 8 * device::$name.len() - 1;
    )* } }
    device_rows! {
        RCV_HDR_ADDR RCV_HDR_ADDR_END RCV_HDR_TAIL_ADDR RCV_HDR_TAIL_ADDR_END INT_REDIRECT INT_REDIRECT_END
        RCV_AVAIL_TIMEOUT RCV_AVAIL_TIMEOUT_END
    }

    pub(super) mod p {
        use super::{Port, port};
        macro_rules! port_offsets { ($($name:ident)*) => { $(
            pub(in super::super) const $name: u32 = port::$name.port(Port::P0).offset();
        )* } }
        port_offsets! {
            ERR_MASK ERR_STATUS ERR_CLEAR TXE_STATUS RCV_CTRL RCV_BTHQP RCV_QP_MAP_TABLE_A RCV_QP_MAP_TABLE_F
            RCV_PARTITION_KEY RCV_QP_MULTICAST_CONTEXT SEND_CTRL IBC_STATUS_A IBC_CTRL_A IBC_CTRL_B
            IB_SDTEST_IF_TX HIGH_PRIORITY_LIMIT IBPCS_CONFIG IBNC_MODE_CTRL SEND_DMA_IDLE_CNT SEND_DMA_RELOAD_CNT SEND_DMA_DESC_CNT SEND_DMA_BASE
            SEND_DMA_LEN_GEN SEND_DMA_TAIL SEND_DMA_HEAD SEND_DMA_HEAD_ADDR SEND_DMA_STATUS
            IBC_STATUS_B PS_STAT PS_START PS_INTERVAL
        }
        /// The limit and both tables of VL arbitration; nothing else lies between them.
        pub(in super::super) const ARBITRATION_END: u32 =
            port::HIGH_PRIORITY.port(Port::P0).index(0).offset() + 8 * 16 - 1;
        pub(in super::super) const RX_CREDIT_VL: u32 = port::RX_CREDIT_VL.port(Port::P0).index(0).offset();
        pub(in super::super) const RX_CREDIT_VL_END: u32 = RX_CREDIT_VL + 8 * 8 - 1;
        pub(in super::super) const BUF_MASK: u32 = port::SEND_DMA_BUF_MASK.port(Port::P0).index(0).offset();
        pub(in super::super) const BUF_MASK_END: u32 = BUF_MASK + 8 * 3 - 1;
        pub(in super::super) const BUF_USED: u32 = port::SEND_DMA_BUF_USED.port(Port::P0).index(0).offset();
        pub(in super::super) const BUF_USED_END: u32 = BUF_USED + 8 * 3 - 1;
    }

    /// Port 0's page starts one stride from the start of the BAR.
    pub(super) const PORTS: u32 = qhca_regs::access::PORT_STRIDE_BYTES;
    pub(super) const PORTS_END: u32 = PORTS + 2 * qhca_regs::access::PORT_STRIDE_BYTES - 1;
    pub(super) const AVAIL: u32 = area::SEND_BUF_AVAIL.index(0).offset();
    pub(super) const AVAIL_END: u32 = AVAIL + 8 * area::SEND_BUF_AVAIL.len() - 1;
    pub(super) const COUNTERS_END: u32 = super::counter::END - 1;
    pub(super) const BUFFERS_END: u32 = super::send::END - 1;
}

/// Port and place in port 0's page of a port register.
fn port_place(offset: u32) -> (Port, u32) {
    let past = offset - at::PORTS;
    let stride = qhca_regs::access::PORT_STRIDE_BYTES;
    let port = if past < stride { Port::P0 } else { Port::P1 };
    (port, at::PORTS + past % stride)
}

/// The context of a register in a row of one a context.
fn ctxt_of(offset: u32, first: u32) -> Ctxt {
    // PANIC: the caller matched the row's range, which has one register a context.
    Ctxt::new(((offset - first) / 8) as usize).expect("row of one register a context")
}

impl Chip {
    /// Answers a read of the register at `offset`, a multiple of 8.
    #[inline]
    pub(super) fn read_at(&mut self, offset: u32, now: Instant) -> u64 {
        match offset {
            0..at::PORTS => self.read_device(offset, now),
            at::PORTS..=at::PORTS_END => self.read_port(offset, now),
            at::AVAIL..=at::AVAIL_END => self.read_avail(offset),
            counter::START..=at::COUNTERS_END => self.read_counter(offset, now),
            // Send buffers cannot be read.
            send::START..=at::BUFFERS_END => 0,
            recv::USER_START.. => self.read_user(offset),
            _ => self.store.read(offset),
        }
    }

    /// Carries out a write to the register at `offset`, a multiple of 8.
    #[inline]
    pub(super) fn write_at(&mut self, offset: u32, value: u64, now: Instant, host: &mut impl Host) {
        match offset {
            recv::USER_START.. => self.write_user(offset, value, now, host),
            send::START..=at::BUFFERS_END => {
                self.fill_buffer(offset, &[value as u32, (value >> 32) as u32], now, host);
            }
            0..at::PORTS => self.write_device(offset, value, now, host),
            at::PORTS..=at::PORTS_END => self.write_port(offset, value, now, host),
            counter::START..=at::COUNTERS_END => self.counters.write(offset, value),
            _ => {
                self.store.write(offset, value);
            }
        }
    }

    fn read_device(&self, offset: u32, now: Instant) -> u64 {
        match offset {
            at::INT_STATUS => self.int.status(),
            at::INT_GRANTED => self.int.granted(),
            at::CONTROL => self.read_control(),
            at::ERR_STATUS => self.err.device_status(),
            at::HW_ERR_STATUS => self.err.hardware_status(),
            at::EXT_STATUS => self.ext_status(),
            at::GPIO_STATUS => self.gpio.status(),
            at::RCV_EGR_CNT => self.egr_count(),
            at::AVAIL_UPD_COUNT => self.avail_upd_count(),
            at::AHB_TRANSACTION_REG => self.ahb.result().0,
            at::RCV_AVAIL_TIMEOUT..=at::RCV_AVAIL_TIMEOUT_END => {
                self.avail_timeout(ctxt_of(offset, at::RCV_AVAIL_TIMEOUT), now)
            }
            at::SEND_BUF_AVAIL_ADDR if self.config.wrong.has(WrongChip::AvailAddrReadsZero) => 0,
            at::SCRATCH if self.config.wrong.has(WrongChip::ScratchHalf) => {
                self.store.read(offset) & 0xFFFF_FFFF
            }
            _ => self.store.read(offset),
        }
    }

    fn read_port(&mut self, offset: u32, now: Instant) -> u64 {
        let (port, place) = port_place(offset);
        match place {
            at::p::ERR_STATUS => self.err.port_status(port),
            at::p::IBC_STATUS_A => self.ibc_status_a(port),
            at::p::IBC_STATUS_B => self.read_ibc_status_b(port),
            at::p::PS_STAT => self.read_ps_stat(port, now),
            at::p::TXE_STATUS => self.txe_status(port, offset),
            at::p::SEND_DMA_HEAD => self.sdma_head(port),
            at::p::SEND_DMA_STATUS => self.sdma_status(port),
            at::p::SEND_DMA_IDLE_CNT => self.sdma_idle_count(port, now),
            at::p::BUF_USED..=at::p::BUF_USED_END => self.sdma_used(port, (place - at::p::BUF_USED) / 8),
            at::p::RX_CREDIT_VL..=at::p::RX_CREDIT_VL_END => self.read_rx_credit(port, offset),
            _ => self.store.read(offset),
        }
    }

    /// `TXEStatus_p`: everything is empty unless packets wait.
    fn txe_status(&self, port: Port, offset: u32) -> u64 {
        let status = port::TxeStatus(self.store.read(offset));
        if self.send.is_idle(port) {
            status.0
        } else {
            status.with_txe_ibc_idle(false).with_la_fifo_empty_vl0(false).0
        }
    }

    fn write_device(&mut self, offset: u32, value: u64, now: Instant, host: &mut impl Host) {
        // Most writes on the way of packets are these two; the rest is set-up and errors.
        match offset {
            at::INT_CLEAR => return self.write_int_clear(value, now, host),
            at::SCRATCH => return self.store.set(offset, value),
            _ => {}
        }
        let held = self.store.write(offset, value);
        match offset {
            at::CONTROL => self.write_control(held, now, host),
            at::INT_MASK => self.write_int_mask(now, host),
            at::INT_GRANTED => self.write_int_granted(value),
            at::VEC_CLR_WITHOUT_INT => self.write_vec_clr(value),
            at::INT_REDIRECT..=at::INT_REDIRECT_END => self.write_int_redirect(offset, held),
            at::ERR_MASK => self.write_err_mask(now, host),
            at::ERR_CLEAR => self.write_err_clear(value, now, host),
            at::HW_ERR_MASK => self.write_hw_err_mask(now, host),
            at::HW_ERR_CLEAR => self.write_hw_err_clear(value, now, host),
            at::HW_DIAG_CTRL => self.write_hw_diag(device::HwDiagCtrl(held), now, host),
            at::EXT_CTRL => self.write_ext_ctrl(held, now, host),
            at::GPIO_OUT => self.write_gpio_out(held, now, host),
            at::GPIO_MASK => self.write_gpio_mask(held, now, host),
            at::GPIO_CLEAR => self.write_gpio_clear(value, now, host),
            at::RCV_CTRL => self.write_rcv_ctrl(held, now, host),
            at::RCV_HDR_SIZE | at::RCV_HDR_CNT | at::RCV_HDR_ENT_SIZE => self.write_rcv_geometry(),
            at::RCV_HDR_ADDR..=at::RCV_HDR_ADDR_END => {
                self.write_rcv_hdr_addr(ctxt_of(offset, at::RCV_HDR_ADDR), held);
            }
            at::RCV_HDR_TAIL_ADDR..=at::RCV_HDR_TAIL_ADDR_END => {
                self.write_rcv_tail_addr(ctxt_of(offset, at::RCV_HDR_TAIL_ADDR), held);
            }
            at::RCV_AVAIL_TIMEOUT..=at::RCV_AVAIL_TIMEOUT_END => {
                self.write_avail_timeout(ctxt_of(offset, at::RCV_AVAIL_TIMEOUT), value);
            }
            at::SEND_CTRL => {
                // The disarm command acts once and does not stick (F-302).
                let kept = device::SendCtrl(held).with_disarm(false).with_disarm_send_buf(0);
                self.store.set(offset, kept.0);
                self.write_send_ctrl(value, now, host);
            }
            at::SEND_BUF_AVAIL_ADDR => self.write_avail_addr(held),
            at::AHB_ACCESS_CTRL => self.ahb.select(device::AhbAccessCtrl(held)),
            at::AHB_TRANSACTION_REG => self.ahb.transact(device::AhbTransactionReg(value)),
            _ => {}
        }
    }

    fn write_port(&mut self, offset: u32, value: u64, now: Instant, host: &mut impl Host) {
        let (port, place) = port_place(offset);
        let held = self.store.write(offset, value);
        match place {
            at::p::ERR_MASK => self.write_port_err_mask(port, now, host),
            at::p::ERR_CLEAR => self.write_port_err_clear(port, value, now, host),
            at::p::RCV_CTRL => self.write_port_rcv_ctrl(port, held, now, host),
            at::p::RCV_QP_MAP_TABLE_A..=at::p::RCV_QP_MAP_TABLE_F
            | at::p::RCV_BTHQP
            | at::p::RCV_PARTITION_KEY
            | at::p::RCV_QP_MULTICAST_CONTEXT => self.write_steering(port),
            at::p::SEND_CTRL => {
                // The clean-up command acts once and does not stick (F-401).
                self.store.set(offset, port::SendCtrl(held).with_sdma_cleanup(false).0);
                self.write_port_send_ctrl(port, held, now, host);
            }
            at::p::SEND_DMA_BASE => self.write_sdma_base(port, held),
            at::p::SEND_DMA_LEN_GEN => self.write_sdma_len_gen(port, held),
            at::p::SEND_DMA_TAIL => self.write_sdma_tail(port, held, now, host),
            at::p::SEND_DMA_HEAD_ADDR => self.write_sdma_head_addr(port, held),
            at::p::SEND_DMA_RELOAD_CNT => self.write_sdma_reload(port, held),
            at::p::SEND_DMA_DESC_CNT => self.write_sdma_desc_cnt(port, held),
            at::p::BUF_MASK..=at::p::BUF_MASK_END => {
                self.write_sdma_buf_mask(port, (place - at::p::BUF_MASK) / 8, held, now, host);
            }
            at::p::IBC_CTRL_A => self.write_ibc_ctrl_a(port, held, now, host),
            at::p::IBC_CTRL_B => {
                self.write_heartbeat_control(port, held, now);
                self.write_ibc_ctrl_b(port, held, now, host);
            }
            at::p::IBC_STATUS_B => self.write_ibc_status_b(port, value, now),
            at::p::PS_INTERVAL => self.write_ps_interval(port, held),
            at::p::PS_START => self.write_ps_start(port, held, now),
            at::p::IBNC_MODE_CTRL => self.write_ibnc_mode(port, held, now, host),
            at::p::IB_SDTEST_IF_TX => self.write_sdtest_tx(port, held),
            at::p::HIGH_PRIORITY_LIMIT..=at::p::ARBITRATION_END => self.write_arbitration(port, place, held),
            at::p::IBPCS_CONFIG => self.write_pcs_config(port, held, now, host),
            _ => {}
        }
    }
}
