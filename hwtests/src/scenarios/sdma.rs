//! Send DMA, from a port to itself: what the ring says is sent, the head tells how far the chip has come, and what is
//! wrong stops the engine and is told.

use super::send::ready;
use crate::bench::{Bench, PATIENCE, SOON};
use crate::check::{Stop, Verdict, ensure, ensure_eq};
use crate::context::Context;
use crate::packet::Packet;
use crate::ring::{Flags, LEN, Ring};
use qhca_driver::env::Backend;
use qhca_irq::{Source, VectorSet};
use qhca_regs::Vector;
use qhca_regs::layout::SdmaDesc;
use qhca_regs::map::{device, port as port_regs};
use qhca_regs::status::{IntBits, PortErrBits};

/// The first port with a context and an engine that runs.
fn running<B: Backend>(bench: &mut Bench<'_, B>) -> Result<(Ring, Context), Stop> {
    let (port, context) = ready(bench, 64)?;
    let ring = Ring::open(bench, port)?;
    ring.run(bench)?;
    Ok((ring, context))
}

/// Packets of all sizes arrive whole and in order, in one piece or two, over several rounds of the ring, and the head in
/// memory follows.
pub(super) fn head<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    let (mut ring, mut context) = running(bench)?;
    let sizes = [0, 1, 2, 15, 64, 255, 500, 511, 512, 3, 17, 512, 4, 5, 6, 7, 8, 9, 10];
    for (round, payload) in sizes.into_iter().enumerate() {
        let packet = Packet::new(ring.port, payload, round as u32 + 1);
        ring.send(bench, &packet, 1 + round % 2, false)?;
        let received = context.expect(&packet)?;
        context.give_back(bench, &received, 0);
        let next = ring.next();
        ensure_eq!(u32::from(ring.head(bench)), next, "SendDmaHead after packet {round}");
        ensure_eq!(ring.head_in_memory(), u64::from(next), "the head in memory after packet {round}");
    }
    ensure!(context.next().is_none(), "more packets arrived than were sent");
    Ok(())
}

/// An engine that is told to halt says so, sends nothing until it was cleaned up, says that it is clean, and then works
/// as at first.
pub(super) fn halt<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    let (port, mut context) = ready(bench, 64)?;
    let mut ring = Ring::open(bench, port)?;
    ring.run(bench)?;
    for round in 0..3 {
        let packet = Packet::new(port, 20, round);
        ring.send(bench, &packet, 2, false)?;
        let received = context.expect(&packet)?;
        context.give_back(bench, &received, 0);
        ring.switch(bench, |control| control.with_sdma_halt(true));
        ring.await_halt(bench)?;
        let status = bench.read(port_regs::SEND_DMA_STATUS.port(port));
        ensure!(status.internal_sdma_halt() && !status.halt_in_prog(), "{port}: SendDmaStatus {status:?}");
        let cause = Source::SdmaCleanupDone(port);
        bench.enable_interrupts(cause.mask());
        ring.clean_up(bench);
        let fired = bench.wait();
        ensure_eq!(fired, VectorSet::only(Vector::DEFAULT), "{port}: vectors after a clean-up");
        ensure!(bench.read(device::INT_STATUS).contains(cause.mask()), "{port}: SDmaCleanupDone missing");
        ensure_eq!(ring.head(bench), 0, "{port}: SendDmaHead after a clean-up");
        ring.clear_errors(bench);
        device::INT_CLEAR.clear(bench.bar(), IntBits::all());
        bench.write(device::INT_MASK, IntBits::empty());
        ring.switch(bench, |control| control.with_sdma_enable(true).with_sdma_halt(false));
    }
    Ok(())
}

/// A descriptor of another round of the ring stops the engine and is not sent.
pub(super) fn generation<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    let (mut ring, mut context) = running(bench)?;
    let mut sent = 0;
    while ring.generation() == 0 || ring.next() < 2 {
        let packet = Packet::new(ring.port, 4, sent);
        ring.send(bench, &packet, 1, false)?;
        let received = context.expect(&packet)?;
        context.give_back(bench, &received, 0);
        sent += 1;
    }
    // What stands ahead is of the first round: the chip must not take it again.
    ring.write_tail(bench, (ring.next() + 1) as u16);
    let errors = ring.await_halt(bench)?;
    ensure!(errors.contains(PortErrBits::SDMA_GEN_MISMATCH_ERR), "SDmaGenMismatchErr missing in {errors:?}");
    ensure!(context.next().is_none(), "a descriptor of the round before was sent again");
    works_after_a_clean_up(bench, &mut ring, &mut context)
}

/// A descriptor that asks for it interrupts, others do not; an engine without work says that it is idle; and so many
/// descriptors as were asked for are announced.
pub(super) fn interrupt<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    let (mut ring, mut context) = running(bench)?;
    let port = ring.port;
    let send = |bench: &mut Bench<'_, B>, ring: &mut Ring, context: &mut Context, intr| {
        let packet = Packet::new(port, 4, 1);
        ring.send(bench, &packet, 1, intr)?;
        let received = context.expect(&packet)?;
        context.give_back(bench, &received, 0);
        Ok::<(), Stop>(())
    };
    let done = Source::Sdma(port);
    bench.enable_interrupts(done.mask());
    send(bench, &mut ring, &mut context, false)?;
    ensure_eq!(bench.wait_for(SOON), VectorSet::EMPTY, "vectors after a descriptor that asks for nothing");
    send(bench, &mut ring, &mut context, true)?;
    ensure_eq!(bench.wait(), VectorSet::only(Vector::DEFAULT), "vectors after a descriptor that asks");
    ensure!(bench.read(device::INT_STATUS).contains(done.mask()), "SDmaInt missing");

    let progress = Source::SdmaProgress(port);
    bench.enable_interrupts(progress.mask());
    bench.write(port_regs::SEND_DMA_DESC_CNT.port(port), port_regs::SendDmaDescCnt(3));
    for _ in 0..3 {
        send(bench, &mut ring, &mut context, false)?;
    }
    ensure_eq!(bench.wait(), VectorSet::only(Vector::DEFAULT), "vectors after three descriptors of three");

    let idle = Source::SdmaIdle(port);
    bench.enable_interrupts(idle.mask());
    send(bench, &mut ring, &mut context, false)?;
    ensure_eq!(bench.wait(), VectorSet::only(Vector::DEFAULT), "vectors of an engine without work");
    Ok(())
}

/// Every mistake that a descriptor can have is told by its own bit together with the halt, and after a clean-up the engine
/// works. What no source says of the chip is only asked for in this much: some error, and nothing sent.
pub(super) fn errors<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    let cases: [(&str, PortErrBits); 6] = [
        ("no first descriptor", PortErrBits::SDMA1ST_DESC_ERR),
        ("an address that is no multiple of 4", PortErrBits::SDMA_DESC_ADDR_MISALIGN_ERR),
        ("a packet that ends too early", PortErrBits::SDMA_MISSING_DW_ERR),
        ("a piece without a dword", PortErrBits::SDMA_DW_EN_ERR),
        ("a tail behind the ring's end", PortErrBits::SDMA_TAIL_OUT_OF_BOUND_ERR),
        ("a piece past the send buffer", PortErrBits::SDMA_OUT_OF_BOUND_ERR),
    ];
    for (case, (what, bit)) in cases.into_iter().enumerate() {
        let (mut ring, mut context) = running(bench)?;
        let packet = Packet::new(ring.port, 20, case as u32);
        let dwords = packet.dwords();
        let start = ring.place(&dwords);
        let (first, last) =
            (Flags { first: true, ..Flags::default() }, Flags { last: true, ..Flags::default() });
        let whole = Flags { first: true, last: true, ..Flags::default() };
        match case {
            0 => ring.push(start, 0, dwords.len(), last)?,
            1 => ring.push(start + 2, 0, dwords.len(), whole)?,
            2 => ring.push(start, 0, dwords.len() - 3, whole)?,
            3 => {
                ring.push(start, 0, 7, first)?;
                ring.push(start + 28, 7, 0, last)?;
            }
            4 => {}
            _ => {
                ring.push(start, 0, 7, first)?;
                ring.push(start + 28, 7, 0x7FF, last)?;
            }
        }
        match case {
            4 => ring.write_tail(bench, LEN as u16 + 1),
            _ => ring.ring_doorbell(bench),
        }
        let errors = ring.await_halt(bench).map_err(|_| Stop::Fail(format!("{what}: the engine went on")))?;
        ensure!(errors.contains(bit), "{what}: {bit:?} missing in {errors:?}");
        ensure!(context.next().is_none(), "{what}: a packet was sent all the same");
        works_after_a_clean_up(bench, &mut ring, &mut context)?;
    }
    Ok(())
}

/// A clean-up sets a stopped engine going again.
fn works_after_a_clean_up<B: Backend>(
    bench: &mut Bench<'_, B>,
    ring: &mut Ring,
    context: &mut Context,
) -> Verdict {
    ring.clean_up(bench);
    let cleaned = bench
        .until(PATIENCE, |bench| bench.read(port_regs::SEND_DMA_HEAD.port(ring.port)).send_dma_head() == 0);
    ensure!(cleaned, "{}: SendDmaHead is not 0 after a clean-up", ring.port);
    bench.settle(SOON);
    ring.clear_errors(bench);
    ring.switch(bench, |control| control.with_sdma_enable(true).with_sdma_halt(false));
    let packet = Packet::new(ring.port, 30, 77);
    ring.send(bench, &packet, 2, false)?;
    let received = context.expect(&packet)?;
    context.give_back(bench, &received, 0);
    Ok(())
}

/// A descriptor's size in its ring, held against the map.
const _: () = assert!(LEN as usize * SdmaDesc::LEN_BYTES <= 1024);
