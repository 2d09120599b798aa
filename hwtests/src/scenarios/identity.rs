//! Who the card is, and whether its registers hold what is written.

use crate::bench::Bench;
use crate::check::{Stop, Verdict, ensure, ensure_eq};
use qhca_driver::eeprom::{EepromPoll, EepromReader};
use qhca_driver::env::Backend;
use qhca_driver::gpio::Gpio;
use qhca_regs::map::{device, user};
use qhca_regs::{Ctxt, Duration};

/// Revision, counts and bases are those of a 7322.
pub(super) fn identify<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    bench.reset()?;
    let revision = bench.read(device::REVISION);
    ensure_eq!(revision.sw(), 2, "the software ABI in Revision");
    ensure_eq!(revision.chip_rev_major(), 6, "the major revision");
    let board = revision.board_id();
    ensure!(matches!(board, 0..=6 | 8 | 9 | 15), "board {board} is none of a 7322's");
    ensure_eq!(bench.read(device::PAGE_ALIGN), 0x1000, "PageAlign");
    ensure_eq!(bench.read(device::CONTEXT_CNT), Ctxt::COUNT as u64, "ContextCnt");
    let window = u64::from(user::RCV_HDR_TAIL.index(0).offset());
    ensure_eq!(bench.read(device::USER_REG_BASE), window, "UserRegBase");
    let buffers = bench.read(device::SEND_BUF_CNT);
    ensure_eq!(
        (buffers.num_small_buffers(), buffers.num_large_buffers()),
        (128, 32),
        "the number of send buffers"
    );
    ensure!(!bench.ports().is_empty(), "active_feature_mask is 0: the board has no port");
    let tested = bench.read(device::EXT_STATUS);
    ensure!(tested.mem_bist_disabled() || tested.mem_bist_end_test(), "the memory self-test did not end");
    Ok(())
}

/// The eager array is divided by the number of contexts.
pub(super) fn eager_partitions<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    bench.reset()?;
    for (code, entries) in [(0, 4096), (1, 2048), (2, 1024), (0, 4096)] {
        bench.write(device::RCV_CTRL, device::RcvCtrl(0).with_context_cfg(code));
        ensure_eq!(bench.read(device::RCV_EGR_CNT), entries, "RcvEgrCnt with ContextCfg {code}");
    }
    Ok(())
}

/// The scratch register holds all 64 bits.
pub(super) fn scratch<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    bench.reset()?;
    let walking = (0..64).map(|bit| 1u64 << bit);
    for value in walking.chain([0x1122_3344_5566_7788, 0, 0xAAAA_AAAA_5555_5555]) {
        bench.write(device::SCRATCH, value);
        ensure_eq!(bench.read(device::SCRATCH), value, "Scratch");
    }
    Ok(())
}

/// The EEPROM answers, its check sum fits, and it holds a GUID and a serial number.
pub(super) fn eeprom<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    bench.reset()?;
    let (mut reader, mut gpio) = (EepromReader::new(), Gpio::default());
    let flash = loop {
        let (bar, now) = (bench.bar().clone(), bench.now());
        match reader.poll(&mut gpio, &bar, now) {
            EepromPoll::More(until) => {
                bench.pause(until.since(bench.now()));
            }
            EepromPoll::Done(result) => break result.map_err(|error| Stop::Fail(error.to_string()))?,
        }
    };
    ensure!(flash.port_guid(1).is_some_and(|guid| guid != 0), "the EEPROM holds no GUID");
    ensure!(!flash.serial.as_str().is_empty(), "the EEPROM holds no serial number");
    Ok(())
}

/// The address of the avail image reads back, bits 39 to 6 of it.
pub(super) fn avail_address<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    bench.reset()?;
    for address in [0x40, 0x12_3456_7000, 0xFF_FFFF_FFC0, 0] {
        bench.write(device::SEND_BUF_AVAIL_ADDR, device::SendBufAvailAddr(address));
        ensure_eq!(bench.read(device::SEND_BUF_AVAIL_ADDR).0, address, "SendBufAvailAddr");
    }
    bench.pause(Duration::from_micros(1));
    Ok(())
}
