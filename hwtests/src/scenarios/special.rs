//! What is seldom used: the freeze, the chip's own reset, tail by DMA, launch by a trigger word, sample counters.

use super::send::{buffer, ctxt, ready};
use crate::bench::Bench;
use crate::check::{Stop, Verdict, ensure, ensure_eq};
use crate::context::Context;
use crate::packet::Packet;
use qhca_driver::env::Backend;
use qhca_regs::layout::AvailWords;
use qhca_regs::map::{counter, device, port as port_regs};
use qhca_regs::status::IntBits;
use qhca_regs::{Bar, Buffer, Duration, GONE, RegValue};

/// The word that launches a packet when the trigger is on, and its place in a small buffer, dwords.
const TRIGGER: (u32, u32) = (0xAEBE_CEDE, 1023);
/// How long a chip may be away when it resets itself: the stock driver's first try.
const AWAY_WITHIN: Duration = Duration::from_secs(7);
/// Ticks of the sample counters' clock in a microsecond: 4 ns each.
const TICKS_PER_US: u64 = 250;

/// A frozen chip says so, sends nothing and leaves the avail image as it was; thawed it works again.
pub(super) fn freeze<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    let (port, mut context) = ready(bench, 64)?;
    let before = AvailWords(bench.avail_image()?);
    let control = bench.read(device::CONTROL);
    bench.write(device::CONTROL, control.with_freeze_mode(true));
    ensure!(bench.read(device::CONTROL).freeze_mode(), "FreezeMode does not read back");
    let victim = buffer(9)?;
    bench.send(victim, &Packet::new(port, 8, 1));
    ensure!(context.next().is_none(), "a frozen chip sent a packet");
    ensure!(AvailWords(bench.avail_image()?) == before, "the avail image moved while the chip was frozen");
    bench.write(device::CONTROL, control.with_freeze_mode(false));
    ensure!(!bench.read(device::CONTROL).freeze_mode(), "FreezeMode cannot be taken away");
    // What was begun in the freeze is nobody's any more.
    let send = bench.read(device::SEND_CTRL);
    bench.write_apart(device::SEND_CTRL, send.with_disarm(true).with_disarm_send_buf(victim.index() as u8));
    let packet = Packet::new(port, 8, 2);
    bench.send(buffer(10)?, &packet);
    let received = context.expect(&packet)?;
    context.give_back(bench, &received, 0);
    Ok(())
}

/// A chip that resets itself is away for a while, comes back with every register as after power-on, and works.
pub(super) fn reset<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    ready(bench, 64)?;
    bench.write(device::SCRATCH, 0x1234_5678_9ABC_DEF0);
    bench.write(device::INT_MASK, IntBits::NAMED);
    let control = bench.read(device::CONTROL).with_sync_reset(true);
    bench.write(device::CONTROL, control);
    bench.pause(Duration::from_micros(10));
    ensure_eq!(bench.read(device::REVISION).raw(), GONE, "Revision of a chip that resets itself");
    bench.pause(Duration::from_secs(1));
    bench.restore()?;
    let back = bench.until(AWAY_WITHIN, |bench| bench.read(device::REVISION).raw() != GONE);
    ensure!(back, "the chip is not back {AWAY_WITHIN} after its reset");
    let port = *bench.ports().first().ok_or_else(|| Stop::Fail("the board has no port".to_owned()))?;
    ensure_eq!(bench.read(device::RCV_HDR_CNT), 0, "RcvHdrCnt after a reset");
    ensure_eq!(bench.read(device::INT_MASK).bits(), 0, "IntMask after a reset");
    ensure_eq!(bench.read(device::SEND_CTRL).0, 0, "SendCtrl after a reset");
    ensure_eq!(bench.read(port_regs::IBC_CTRL_B.port(port)).0, 0x305FF, "IBCCtrlB after a reset");
    let (port, mut context) = ready(bench, 64)?;
    let packet = Packet::new(port, 8, 3);
    bench.send(buffer(0)?, &packet);
    context.expect(&packet)?;
    Ok(())
}

/// With `TailUpd` the tail of a header queue stands in memory after each packet, in dwords.
pub(super) fn tail_dma<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    const ENTRIES: u64 = 8;
    bench.reset()?;
    bench.set_up(0, ENTRIES)?;
    let port = *bench.ports().first().ok_or_else(|| Stop::Fail("the board has no port".to_owned()))?;
    bench.bring_up(port)?;
    let mut context = Context::open(bench, ctxt(port.index())?, port)?;
    let tail = bench.map(4096)?;
    // The address before the context is enabled: enabling begins the queue afresh.
    let enable = bench.read(port_regs::RCV_CTRL.port(port));
    let bit = 1 << context.ctxt.index();
    bench.write(port_regs::RCV_CTRL.port(port), port_regs::RcvCtrl(enable.0 & !bit));
    bench.write(device::RCV_HDR_TAIL_ADDR.ctxt(context.ctxt), device::RcvHdrTailAddr(tail.iova()));
    let common = bench.read(device::RCV_CTRL);
    bench.write(device::RCV_CTRL, common.with_tail_upd(true));
    bench.write(port_regs::RCV_CTRL.port(port), enable);
    context.arm(bench, 0);
    for n in 1..20 {
        let packet = Packet::new(port, 4, n);
        bench.send(buffer(0)?, &packet);
        let received = context.expect(&packet)?;
        context.give_back(bench, &received, 0);
        let expected = u64::from(n) % ENTRIES * crate::bench::ENTRY_DWORDS;
        ensure_eq!(tail.memory().load_u64(0), expected, "the tail in memory after packet {n}");
    }
    Ok(())
}

/// With the special trigger on a packet leaves when the trigger word is written, and not before.
pub(super) fn special_trigger<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    let (port, mut context) = ready(bench, 64)?;
    let send = bench.read(device::SEND_CTRL);
    bench.write_apart(device::SEND_CTRL, send.with_special_trigger_en(true));
    for round in 0..3 {
        let packet = Packet::new(port, 10, round);
        let buffer = buffer(3 + round as usize)?;
        bench.send(buffer, &packet);
        ensure!(context.next().is_none(), "a packet left before the trigger word was written");
        trigger(bench, buffer);
        let received = context.expect(&packet)?;
        context.give_back(bench, &received, 0);
    }
    bench.write_apart(device::SEND_CTRL, send.with_special_trigger_en(false));
    Ok(())
}

/// Writes the trigger word; the dword before it means nothing.
fn trigger<B: Backend>(bench: &mut Bench<'_, B>, buffer: Buffer) {
    let (word, place) = TRIGGER;
    bench.bar().burst(buffer.offset() + 4 * (place - 1), &[0, word]);
    bench.settle(Duration::from_micros(20));
}

/// The sample counters count what passes in their interval, and nothing else.
pub(super) fn samples<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    const SENT: u64 = 5;
    let (port, mut context) = ready(bench, 64)?;
    for round in 0..2 {
        bench.write(port_regs::PS_INTERVAL.port(port), 50_000 * TICKS_PER_US);
        bench.write(port_regs::PS_START.port(port), 1);
        bench.settle(Duration::from_micros(5));
        let send = |bench: &mut Bench<'_, B>, context: &mut Context, n| {
            let packet = Packet::new(port, 12, n);
            bench.send(buffer(0)?, &packet);
            let received = context.expect(&packet)?;
            context.give_back(bench, &received, 0);
            Ok::<(), Stop>(())
        };
        for n in 0..SENT as u32 {
            send(bench, &mut context, n)?;
        }
        ensure!(
            bench.read(port_regs::PS_STAT.port(port)) != 0,
            "PSStat says done in the middle of the interval"
        );
        let done =
            bench.until(Duration::from_millis(500), |bench| bench.read(port_regs::PS_STAT.port(port)) == 0);
        ensure!(done, "PSStat does not say that the interval is over");
        send(bench, &mut context, 99)?;
        for (what, register) in
            [("sent", counter::PS_XMIT_PKTS_COUNT), ("received", counter::PS_RCV_PKTS_COUNT)]
        {
            ensure_eq!(bench.read(register.port(port)), SENT, "packets {what} in interval {round}");
        }
    }
    Ok(())
}
