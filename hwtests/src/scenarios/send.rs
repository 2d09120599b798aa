//! Send buffers: the avail image, disarm, the moment of launch, the port in the PBC, and whose turn it is.

use crate::bench::Bench;
use crate::check::{Stop, Verdict, ensure, ensure_eq};
use crate::context::Context;
use crate::packet::Packet;
use qhca_driver::env::Backend;
use qhca_regs::layout::{AvailWords, BufferState};
use qhca_regs::map::device;
use qhca_regs::map::port::{self as port_regs, HighPriority, HighPriorityLimit, LowPriority};
use qhca_regs::{Buffer, Ctxt, Duration, Port};

/// A small buffer and a large one, with neighbours.
const BUFFERS: [usize; 2] = [5, 130];

pub(super) fn buffer(index: usize) -> Result<Buffer, Stop> {
    Buffer::new(index).ok_or_else(|| Stop::Fail(format!("there is no send buffer {index}")))
}

pub(super) fn ctxt(index: usize) -> Result<Ctxt, Stop> {
    Ctxt::new(index).ok_or_else(|| Stop::Fail(format!("there is no context {index}")))
}

/// The first port of the board, ACTIVE, with its own context enabled.
pub(super) fn ready<B: Backend>(bench: &mut Bench<'_, B>, entries: u64) -> Result<(Port, Context), Stop> {
    bench.reset()?;
    bench.set_up(0, entries)?;
    let port = *bench.ports().first().ok_or_else(|| Stop::Fail("the board has no port".to_owned()))?;
    bench.bring_up(port)?;
    let context = Context::open(bench, ctxt(port.index())?, port)?;
    Ok((port, context))
}

/// Each use of a buffer toggles its check bit; its busy bit is clear once the packet has left; others do not change.
pub(super) fn avail_image<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    let (port, _context) = ready(bench, 64)?;
    for index in BUFFERS {
        let buffer = buffer(index)?;
        for round in 1..=3 {
            let before = AvailWords(bench.avail_image()?);
            bench.send(buffer, &Packet::new(port, 8, round));
            let after = AvailWords(bench.avail_image()?);
            let (was, is) = (before.state(buffer), after.state(buffer));
            ensure!(is.check != was.check, "{buffer}: the check bit did not toggle at use {round}");
            ensure!(!is.busy, "{buffer}: still busy after the packet has left");
            let mut expected = before;
            expected.set(buffer, is);
            ensure!(after == expected, "{buffer}: using it changed another buffer's bits");
            ensure!(after.0 == bench.avail_registers(), "the image in memory differs from the registers");
        }
    }
    Ok(())
}

/// A buffer that was begun is busy until it is disarmed, and works again afterwards.
pub(super) fn disarm<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    let (port, mut context) = ready(bench, 64)?;
    for (round, index) in (0..).zip(BUFFERS) {
        let buffer = buffer(index)?;
        let packet = Packet::new(port, 8, round);
        bench.fill(buffer, 0, &packet.dwords()[..6]);
        let state = |bench: &mut Bench<'_, B>| {
            Ok::<BufferState, Stop>(AvailWords(bench.avail_image()?).state(buffer))
        };
        ensure!(state(bench)?.busy, "{buffer}: not busy although a packet was begun");
        let control = bench.read(device::SEND_CTRL);
        let command = control.with_disarm(true).with_disarm_send_buf(index as u8);
        bench.write_apart(device::SEND_CTRL, command);
        ensure!(!state(bench)?.busy, "{buffer}: still busy after it was disarmed");
        bench.send(buffer, &packet);
        let received = context.expect(&packet)?;
        context.give_back(bench, &received, 0);
    }
    Ok(())
}

/// A packet leaves when its last dword is written, not before, and it leaves whole.
pub(super) fn launch_rule<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    let (port, mut context) = ready(bench, 64)?;
    let buffer = buffer(7)?;
    for round in 0..3 {
        // 17 dwords: the last is a half-filled qword of its own.
        let packet = Packet::new(port, 10, round);
        let dwords = packet.dwords();
        let last = dwords.len() - 1;
        bench.fill(buffer, 0, &dwords[..last]);
        bench.pause(Duration::from_micros(50));
        ensure!(context.next().is_none(), "a packet left before its last dword was written");
        bench.fill(buffer, last, &dwords[last..]);
        bench.pause(Duration::from_micros(50));
        let received = context.expect(&packet)?;
        context.give_back(bench, &received, 0);
    }
    Ok(())
}

/// The PBC says by which port a packet leaves.
pub(super) fn port_selection<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    bench.reset()?;
    let ports = bench.ports();
    let [first, second] = ports[..] else {
        return Err(Stop::Skip("the board has one port only".to_owned()));
    };
    bench.set_up(0, 64)?;
    let mut contexts = Vec::new();
    for port in [first, second] {
        bench.bring_up(port)?;
        contexts.push(Context::open(bench, ctxt(port.index())?, port)?);
    }
    for (round, from) in [0, 1, 1, 0].into_iter().enumerate() {
        let packet = Packet::new(ports[from], 12, round as u32);
        bench.send(buffer(round)?, &packet);
        let received = contexts[from].expect(&packet)?;
        contexts[from].give_back(bench, &received, 0);
        let other = &mut contexts[1 - from];
        let strays = usize::from(other.next().is_some());
        ensure_eq!(strays, 0, "{}: packets for {} that arrived here", ports[1 - from], ports[from]);
    }
    Ok(())
}

/// Packets that wait on each of two lanes, and how many of the first that leave are looked at.
const WAITING: usize = 10;

/// Of packets that wait on two lanes, a table's lane goes by its weight, and one of the high table before all others.
pub(super) fn vl_arbitration<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    let (port, mut context) = ready(bench, 64)?;
    // A heavy lane has four turns for one of the light.
    for (heavy, light) in [(1, 0), (0, 1)] {
        set_tables(bench, port, &[], &[(heavy, 8), (light, 2)], 0);
        let heavy_first = leave_in_turn(bench, port, &mut context, heavy)?;
        ensure!(
            (7..=9).contains(&heavy_first),
            "{port}: {heavy_first} of {WAITING} packets are of the lane with four times the weight, 8 ± 1 expected"
        );
    }
    for high in [1, 0] {
        set_tables(bench, port, &[(high, 255)], &[(1 - high, 255)], 255);
        let ahead = leave_in_turn(bench, port, &mut context, high)?;
        // One of the low table may have been on its way already.
        ensure!(
            ahead >= WAITING - 1,
            "{port}: {ahead} of {WAITING} packets are of the lane in the high table, which has no limit"
        );
    }
    Ok(())
}

/// Writes both tables of `port`, the rest of their entries without weight, and switches arbitration on.
fn set_tables<B: Backend>(
    bench: &Bench<'_, B>,
    port: Port,
    high: &[(usize, u8)],
    low: &[(usize, u8)],
    limit: u8,
) {
    for entry in 0..16 {
        let at = |table: &[(usize, u8)]| table.get(entry).copied().unwrap_or((0, 0));
        let ((high_lane, high_weight), (low_lane, low_weight)) = (at(high), at(low));
        let high = HighPriority(0).with_virtual_lane(high_lane as u8).with_weight(high_weight);
        let low = LowPriority(0).with_virtual_lane(low_lane as u8).with_weight(low_weight);
        bench.write(port_regs::HIGH_PRIORITY.port(port).index(entry as u32), high);
        bench.write(port_regs::LOW_PRIORITY.port(port).index(entry as u32), low);
    }
    bench.write(port_regs::HIGH_PRIORITY_LIMIT.port(port), HighPriorityLimit(0).with_limit(limit));
}

/// Lets packets of both lanes wait and leave together; how many of the first are on `lane`. All must come, those of one
/// lane in their order.
fn leave_in_turn<B: Backend>(
    bench: &mut Bench<'_, B>,
    port: Port,
    context: &mut Context,
    lane: usize,
) -> Result<usize, Stop> {
    let register = port_regs::SEND_CTRL.port(port);
    let control = bench.read(register).with_ibvl_arbiter_en(true);
    bench.write_apart(register, control.with_send_enable(false));
    // 64 bytes each, from LRH to ICRC: one unit of weight.
    let packets: Vec<Packet> =
        (0..2 * WAITING).map(|n| Packet { vl: (n % 2) as u8, ..Packet::new(port, 10, n as u32) }).collect();
    for (n, packet) in packets.iter().enumerate() {
        bench.fill(buffer(n)?, 0, &packet.dwords());
    }
    bench.pause(Duration::from_micros(50));
    ensure!(!context.has_next(), "{port}: a packet left although SendEnable is off");
    bench.write_apart(register, control.with_send_enable(true));
    let mut next = [0, 1];
    let mut first = 0;
    for n in 0..packets.len() {
        let come = bench.until(crate::bench::PATIENCE, |_| context.has_next());
        ensure!(come, "{port}: {n} of {} packets that waited came", packets.len());
        // Which lane it is of only its header tells: the two that may come differ in it.
        let vl = context.peek_vl();
        let place =
            next.get_mut(vl).ok_or_else(|| Stop::Fail(format!("{port}: a packet came on VL {vl}")))?;
        let packet = packets.get(*place);
        *place += 2;
        let packet =
            packet.ok_or_else(|| Stop::Fail(format!("{port}: more packets on VL {vl} than were sent")))?;
        let received = context.expect(packet)?;
        context.give_back(bench, &received, 0);
        first += usize::from(n < WAITING && vl == lane);
    }
    Ok(first)
}
