//! Interrupts, raised by the card itself: redirects, masks, the rule that a write to `IntClear` raises again, and the
//! moderation of receive interrupts.

use super::send::{buffer, ready};
use crate::bench::Bench;
use crate::check::{Stop, Verdict, ensure, ensure_eq};
use crate::context::Context;
use crate::packet::Packet;
use qhca_driver::env::Backend;
use qhca_irq::{Source, VectorSet};
use qhca_regs::layout::KdFlags;
use qhca_regs::map::device;
use qhca_regs::status::{ErrBits, IntBits};
use qhca_regs::{Duration, Port, Vector};

/// The longest that the moderation timer's register holds.
const LONGEST_TIMER: u16 = u16::MAX;
const SHORT: Duration = Duration::from_micros(5);

/// A packet that asks for `SendDone`.
fn asking(port: Port) -> Packet {
    let mut packet = Packet::new(port, 4, 1);
    packet.interrupt = true;
    packet
}

/// Every vector that the host granted fires when a cause is redirected to it, and no other does.
pub(super) fn every_vector<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    let (port, _context) = ready(bench, 64)?;
    let granted = bench.granted();
    ensure!(!granted.is_empty(), "no vector was granted");
    let cause = Source::SendDone(port);
    bench.enable_interrupts(cause.mask());
    for vector in granted.iter() {
        bench.redirect_only(cause.bit(), vector);
        bench.send(buffer(vector.index())?, &asking(port));
        ensure_eq!(
            bench.wait(),
            VectorSet::only(vector),
            "{cause} redirected to {vector}: the vectors that fired"
        );
        device::INT_CLEAR.clear(bench.bar(), cause.mask());
        bench.quiet();
    }
    Ok(())
}

/// Every cause that the card can raise by itself sets its bit and fires the vector that its own field names.
pub(super) fn every_cause<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    let (port, context) = ready(bench, 64)?;
    let last = bench.granted().iter().last().unwrap_or(Vector::DEFAULT);
    if last == Vector::DEFAULT {
        return Err(Stop::Skip("the host granted one vector only: nothing can be redirected".to_owned()));
    }
    let causes = [
        Source::RcvAvail(context.ctxt),
        Source::RcvUrg(context.ctxt),
        Source::SendDone(port),
        Source::SendBufAvail,
        Source::Err,
        Source::ErrPort(port),
    ];
    for cause in causes {
        bench.redirect_only(cause.bit(), last);
        bench.enable_interrupts(cause.mask());
        provoke(bench, cause, port, &context)?;
        let fired = bench.wait();
        let status = bench.read(device::INT_STATUS);
        ensure!(status.contains(cause.mask()), "{cause}: its bit is missing in {status:?}");
        ensure_eq!(fired, VectorSet::only(last), "{cause} redirected to {last}: the vectors that fired");
        bench.write(device::INT_MASK, IntBits::empty());
    }
    Ok(())
}

/// Lets the card raise `cause`.
fn provoke<B: Backend>(bench: &mut Bench<'_, B>, cause: Source, port: Port, context: &Context) -> Verdict {
    let plain = Packet::new(port, 4, 1);
    match cause {
        Source::RcvAvail(_) => {
            context.arm(bench, 1);
            bench.send(buffer(0)?, &plain);
        }
        Source::RcvUrg(_) if context.ctxt.index() == 0 => {
            bench.send(buffer(1)?, &plain.into_kd(KdFlags::INTR));
        }
        Source::RcvUrg(_) => return Err(Stop::Skip("the first port is not hardware port 0".to_owned())),
        Source::SendDone(_) => bench.send(buffer(2)?, &asking(port)),
        Source::SendBufAvail => {
            let control = bench.read(device::SEND_CTRL);
            bench.write_apart(device::SEND_CTRL, control.with_send_int_buf_avail(true));
            bench.send(buffer(3)?, &plain);
            bench.write_apart(device::SEND_CTRL, control);
        }
        Source::Err => spoil(bench)?,
        _ => bench.command_link(port, 1),
    }
    Ok(())
}

/// Makes a `SendArmLaunchErr`: a dword is written twice before the packet is whole.
pub(super) fn spoil<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    let dwords = Packet::new(Port::P0, 8, 1).dwords();
    let spoiled = buffer(9)?;
    bench.fill(spoiled, 0, &dwords[..6]);
    bench.fill(spoiled, 2, &dwords[2..4]);
    bench.settle(SHORT);
    let errors = bench.read(device::ERR_STATUS);
    ensure!(errors.contains(ErrBits::SEND_ARM_LAUNCH_ERR), "SendArmLaunchErr missing in {errors:?}");
    Ok(())
}

/// A masked cause is latched and silent; a write of 0 to `IntClear` raises it once it is unmasked; a clear ends it.
pub(super) fn mask_and_reraise<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    let (port, _context) = ready(bench, 64)?;
    let cause = Source::SendDone(port);
    bench.enable_interrupts(IntBits::empty());
    bench.send(buffer(0)?, &asking(port));
    let fired = bench.pause(SHORT);
    ensure!(fired.is_empty(), "a masked {cause} fired {fired:?}");
    ensure!(bench.read(device::INT_STATUS).contains(cause.mask()), "a masked {cause} is not latched");

    bench.write(device::INT_MASK, cause.mask());
    bench.quiet(); // Whether unmasking alone raises it, no source tells.
    for round in 0..2 {
        device::INT_CLEAR.clear(bench.bar(), IntBits::empty());
        let fired = bench.wait();
        ensure_eq!(fired, VectorSet::only(Vector::DEFAULT), "vectors after write {round} of 0 to IntClear");
    }
    device::INT_CLEAR.clear(bench.bar(), cause.mask());
    bench.quiet();
    ensure!(!bench.read(device::INT_STATUS).contains(cause.mask()), "{cause} is still set after its clear");
    device::INT_CLEAR.clear(bench.bar(), IntBits::empty());
    let fired = bench.pause(SHORT);
    ensure!(fired.is_empty(), "a cleared {cause} fired {fired:?}");
    Ok(())
}

/// Receive interrupts come after as many packets as were asked for, or when the timer runs out, whichever is first.
pub(super) fn count_and_timer<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    const COUNT: u16 = 4;
    const TRIES: usize = 5;
    let (port, mut context) = ready(bench, 64)?;
    let cause = Source::RcvAvail(context.ctxt);
    bench.enable_interrupts(cause.mask());
    let timer_span = measure_timer(bench, port, &mut context)?;
    for round in 0..3 {
        let mut tries = 0;
        // A host that is held up for as long as the timer runs sees the timer's interrupt: that round says nothing.
        while let Some(early) = count_round(bench, port, &mut context, COUNT)? {
            let (packets, after) = early;
            ensure!(
                after >= timer_span.halved(),
                "round {round}: an interrupt after {packets} of {COUNT} packets"
            );
            tries += 1;
            if tries == TRIES {
                return Err(Stop::Skip(format!("this host needs {after} for {packets} packets: too slow")));
            }
        }
    }
    set_timer(bench, &context, 2);
    context.arm(bench, 16);
    bench.send(buffer(0)?, &Packet::new(port, 2, 1));
    ensure!(!bench.wait().is_empty(), "no interrupt although one packet waits and the timer has run out");
    Ok(())
}

fn set_timer<B: Backend>(bench: &Bench<'_, B>, context: &Context, ticks: u16) {
    let register = device::RCV_AVAIL_TIMEOUT.ctxt(context.ctxt);
    bench.write(register, device::RcvAvailTimeout(0).with_rcv_avail_to_reload(ticks));
}

/// Sets the longest timer and finds out how long it is, since its unit is not known.
///
/// An interrupt that comes as soon after a long timer as after a short one is not the timer's. The shortest of a few
/// spans counts: a host that is held up makes them longer, never shorter.
fn measure_timer<B: Backend>(
    bench: &mut Bench<'_, B>,
    port: Port,
    context: &mut Context,
) -> Result<Duration, Stop> {
    let mut shortest = |ticks| -> Result<Duration, Stop> {
        let spans = (0..3).map(|_| time_timer(bench, port, context, ticks));
        spans.reduce(|a, b| Ok(a?.min(b?))).unwrap_or(Ok(Duration::ZERO))
    };
    let short: Duration = shortest(LONGEST_TIMER / 8)?;
    let span: Duration = shortest(LONGEST_TIMER)?;
    ensure!(
        span.as_nanos() >= 2 * short.as_nanos(),
        "an interrupt {span} after the first of {} packets with the longest timer, {short} with an eighth of it: it is \
         not the timer's",
        u16::MAX
    );
    Ok(span)
}

/// How long a timer of `ticks` runs.
fn time_timer<B: Backend>(
    bench: &mut Bench<'_, B>,
    port: Port,
    context: &mut Context,
    ticks: u16,
) -> Result<Duration, Stop> {
    const AT_MOST: Duration = Duration::from_secs(1);
    set_timer(bench, context, ticks);
    context.arm(bench, u16::MAX);
    let packet = Packet::new(port, 2, 0);
    let sent = bench.now();
    bench.fill(buffer(0)?, 0, &packet.dwords());
    let fired = bench.wait_for(AT_MOST);
    ensure!(!fired.is_empty(), "a timer of {ticks} ticks does not run out within {AT_MOST}");
    let span = bench.now().since(sent);
    // No clock of this chip is as fast as 1 GHz.
    let shortest = Duration::from_nanos(u64::from(ticks));
    ensure!(
        span >= shortest,
        "an interrupt {span} after the first of {} packets: no timer is so short",
        u16::MAX
    );
    let received = context.expect(&packet)?;
    device::INT_CLEAR.clear(bench.bar(), Source::RcvAvail(context.ctxt).mask());
    context.give_back(bench, &received, 0);
    Ok(span)
}

/// Sends `count` packets and expects the interrupt at the last. Tells of one that came earlier: after how many packets,
/// and how long after the first was sent.
fn count_round<B: Backend>(
    bench: &mut Bench<'_, B>,
    port: Port,
    context: &mut Context,
    count: u16,
) -> Result<Option<(u16, Duration)>, Stop> {
    bench.quiet();
    context.arm(bench, count);
    let started = bench.now();
    let mut early = None;
    for n in 1..=count {
        let packet = Packet::new(port, 2, u32::from(n));
        bench.fill(buffer(0)?, 0, &packet.dwords());
        let fired = if n < count { bench.pause(SHORT) } else { bench.wait() };
        if n < count && !fired.is_empty() && early.is_none() {
            early = Some((n, bench.now().since(started)));
        }
        ensure!(n < count || early.is_some() || !fired.is_empty(), "no interrupt after {count} packets");
        let arrived = bench.until(crate::bench::PATIENCE, |_| context.has_next());
        ensure!(arrived, "packet {n} did not arrive");
        let received = context.expect(&packet)?;
        if n == count {
            device::INT_CLEAR.clear(bench.bar(), Source::RcvAvail(context.ctxt).mask());
            context.give_back(bench, &received, 0);
        }
    }
    Ok(early)
}
