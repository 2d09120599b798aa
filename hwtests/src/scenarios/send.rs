//! Send buffers: the avail image, disarm, the moment of launch, and the port in the PBC.

use crate::bench::Bench;
use crate::check::{Stop, Verdict, ensure, ensure_eq};
use crate::context::Context;
use crate::packet::Packet;
use qhca_driver::env::Backend;
use qhca_regs::layout::{AvailWords, BufferState};
use qhca_regs::map::device;
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
