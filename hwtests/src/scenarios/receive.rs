//! Receiving: what is sent arrives, once, whole and in order, and what has no room is counted.

use super::send::{buffer, ctxt, ready};
use crate::bench::Bench;
use crate::check::{Stop, Verdict, ensure, ensure_eq};
use crate::context::Context;
use crate::packet::{KD_QPN, PKEY_DEFAULT, Packet};
use qhca_driver::env::Backend;
use qhca_regs::layout::{KdFlags, RhfErrors};
use qhca_regs::map::{counter, device, port as port_regs};
use qhca_regs::status::ErrBits;
use qhca_regs::{Duration, Port, Qpn};

/// Low half of a counter that is 32 bits wide.
const LOW_HALF: u64 = 0xFFFF_FFFF;

/// Packets of all sizes arrive whole and in order, from small buffers and large ones.
pub(super) fn loopback_packets<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    let (port, mut context) = ready(bench, 64)?;
    for (round, payload) in [0, 1, 2, 15, 16, 17, 63, 64, 255, 500, 511, 512, 1, 512].into_iter().enumerate()
    {
        let packet = Packet::new(port, payload, round as u32 + 1);
        bench.send(buffer(if payload > 500 { 128 } else { round })?, &packet);
        let received = context.expect(&packet)?;
        context.give_back(bench, &received, 0);
    }
    ensure!(context.next().is_none(), "more packets arrived than were sent");
    Ok(())
}

/// The queue starts again at its beginning, and the sequence goes on, for several turns.
pub(super) fn queue_wraps<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    let (port, mut context) = ready(bench, 16)?;
    for round in 0..60 {
        let packet = Packet::new(port, 4, round);
        bench.send(buffer(0)?, &packet);
        let received = context.expect(&packet)?;
        context.give_back(bench, &received, 0);
    }
    Ok(())
}

/// A full queue overwrites nothing; what has no room is counted and reported, and room that is given is used.
pub(super) fn queue_full<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    const ENTRIES: usize = 16;
    const SENT: usize = 40;
    let (port, mut context) = ready(bench, ENTRIES as u64)?;
    let lost_before = lost(bench, &context);
    let packets: Vec<Packet> = (0..SENT as u32).map(|n| Packet::new(port, 4, n)).collect();
    for packet in &packets {
        bench.send(buffer(0)?, packet);
    }
    let errors = bench.read(device::ERR_STATUS);
    ensure!(errors.contains(ErrBits::RCV_HDR_FULL_ERR), "RcvHdrFullErr missing in {errors:?}");
    let lost = lost(bench, &context).wrapping_sub(lost_before) & LOW_HALF;
    let arrived = SENT - lost as usize;
    ensure!(
        arrived == ENTRIES || arrived == ENTRIES - 1,
        "{arrived} of {SENT} counted as arrived in {ENTRIES}"
    );
    let mut last = None;
    for packet in &packets[..arrived] {
        last = Some(context.expect(packet)?);
    }
    if let Some(received) = last {
        context.give_back(bench, &received, 0);
    }
    let packet = Packet::new(port, 4, 99);
    bench.send(buffer(0)?, &packet);
    context.expect(&packet)?;
    Ok(())
}

/// When all eager buffers are in use none is written again; what has no room is counted, and recovery is complete.
pub(super) fn eager_full<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    const MORE: usize = 60;
    bench.reset()?;
    let entries = 4096 / bench.ports().len().max(1);
    let (port, mut context) = ready(bench, entries as u64)?;
    let lost_before = lost(bench, &context);
    let sent = context.eager_entries + MORE;
    for n in 0..sent {
        bench.send(buffer(n % 100)?, &Packet::new(port, 1, n as u32));
    }
    let errors = bench.read(device::ERR_STATUS);
    ensure!(errors.contains(ErrBits::RCV_EGR_FULL_ERR), "RcvEgrFullErr missing in {errors:?}");
    let lost = (lost(bench, &context).wrapping_sub(lost_before) & LOW_HALF) as usize;
    let arrived = sent.saturating_sub(lost);
    let all = context.eager_entries;
    ensure!(
        arrived == all || arrived + 1 == all,
        "{arrived} of {sent} counted as arrived in {all} eager buffers"
    );
    let mut last = None;
    for n in 0..arrived {
        last = Some(context.expect(&Packet::new(port, 1, n as u32))?);
    }
    // Cards differ: a packet without a buffer may leave an entry with a TID error, or none.
    while let Some(entry) = context.next() {
        ensure!(entry.rhf.errors().contains(RhfErrors::TID), "an entry past the last buffer is marked good");
    }
    if let Some(received) = last {
        context.give_back(bench, &received, 0);
    }
    let packet = Packet::new(port, 100, 7);
    bench.send(buffer(0)?, &packet);
    context.expect(&packet)?;
    Ok(())
}

fn lost<B: Backend>(bench: &Bench<'_, B>, context: &Context) -> u64 {
    bench.read(counter::RX_HDR_EGR_OVFL_CNT.ctxt(context.ctxt))
}

/// With the QP map on, a queue pair's packets go to the context that the map names.
pub(super) fn qp_map<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    let (port, mut own) = ready(bench, 64)?;
    let mut mapped = Context::open(bench, ctxt(2)?, port)?;
    // Six fields of five bits a register; every queue pair goes to context 2.
    let all_to_two = (0..6).fold(0u64, |word, field| word | 2 << (5 * field));
    for register in [
        port_regs::RCV_QP_MAP_TABLE_A,
        port_regs::RCV_QP_MAP_TABLE_B,
        port_regs::RCV_QP_MAP_TABLE_C,
        port_regs::RCV_QP_MAP_TABLE_D,
        port_regs::RCV_QP_MAP_TABLE_E,
    ] {
        bench.write(register.port(port), port_regs::RcvQpMapTable(all_to_two));
    }
    bench.write(port_regs::RCV_QP_MAP_TABLE_F.port(port), port_regs::RcvQpMapTableF(2 | 2 << 5));
    let control = bench.read(port_regs::RCV_CTRL.port(port));
    for (round, map_enabled) in [false, true, false].into_iter().enumerate() {
        bench.write(port_regs::RCV_CTRL.port(port), control.with_rcv_qp_map_enable(map_enabled));
        let (here, there) = if map_enabled { (&mut mapped, &mut own) } else { (&mut own, &mut mapped) };
        for qpn in [0x40, 0x42, 0x7E] {
            let mut packet = Packet::new(port, 6, round as u32);
            packet.qpn = Qpn::new(qpn).unwrap_or_default();
            bench.send(buffer(0)?, &packet);
            let received = here.expect(&packet)?;
            here.give_back(bench, &received, 0);
            let stray = there.next().is_some();
            ensure!(!stray, "QP {qpn:#x}: arrived in {} too, map enabled: {map_enabled}", there.ctxt);
        }
    }
    Ok(())
}

/// A packet of PSM's kind whose P_Key the port does not know is dropped and counted.
pub(super) fn partition_keys<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    const OURS: u16 = 0x8123;
    const FOREIGN: u16 = 0x8456;
    let (port, mut context) = ready(bench, 64)?;
    if context.ctxt.index() != 0 {
        return Err(Stop::Skip("the board's first port is not hardware port 0".to_owned()));
    }
    ensure_eq!(bench.read(port_regs::RCV_BTHQP.port(port)).0, u64::from(KD_QPN), "RcvBTHQP");
    bench.write(port_regs::RCV_PARTITION_KEY.port(port), u64::from(OURS));
    let mismatches = |bench: &Bench<'_, B>| bench.read(counter::RX_P_KEY_MISMATCH_CNT.port(port)) & LOW_HALF;
    for (round, (pkey, known)) in
        [(OURS, true), (FOREIGN, false), (PKEY_DEFAULT, true)].into_iter().enumerate()
    {
        let before = mismatches(bench);
        let mut packet = Packet::new(port, 6, round as u32).into_kd(KdFlags::empty());
        packet.pkey = pkey;
        bench.send(buffer(0)?, &packet);
        if known {
            let received = context.expect(&packet)?;
            context.give_back(bench, &received, 0);
        } else {
            ensure!(context.next().is_none(), "a packet with the unknown P_Key {pkey:#x} was delivered");
        }
        ensure_eq!(mismatches(bench) - before, u64::from(!known), "P_Key mismatches for {pkey:#x}");
    }
    Ok(())
}

/// A packet whose invariant CRC is wrong is marked, and counted.
pub(super) fn wrong_icrc<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    let (port, mut context) = ready(bench, 64)?;
    let before = bench.read(counter::RX_ICRC_ERR_CNT.port(port)) & LOW_HALF;
    let bytes = Packet::new(port, 6, 1).wire_bytes();
    if !bench.surroundings.deliver_with_wrong_icrc(port, &bytes) {
        return Err(Stop::Skip("nothing here can send the card a packet with a wrong ICRC".to_owned()));
    }
    bench.pause(Duration::from_micros(20));
    ensure_eq!(bench.read(counter::RX_ICRC_ERR_CNT.port(port)) & LOW_HALF, before + 1, "RxICRCErrCnt");
    let entry = context.next().ok_or_else(|| Stop::Fail("the packet left no entry".to_owned()))?;
    ensure!(entry.rhf.errors().contains(RhfErrors::ICRC), "the entry is not marked: RHF {:#x}", entry.rhf.0);
    Ok(())
}

/// Packets and dwords are counted, once each, and reading a counter does not change it.
pub(super) fn counters<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    let (port, mut context) = ready(bench, 64)?;
    let before = traffic(bench, port);
    ensure_eq!(traffic(bench, port), before, "the counters, read again without traffic,");
    let mut expected = before;
    for (round, payload) in [0, 7, 100].into_iter().enumerate() {
        let packet = Packet::new(port, payload, round as u32);
        bench.send(buffer(0)?, &packet);
        context.expect(&packet)?;
        let dwords = u64::from(packet.len_dwords());
        for (counter, step) in expected.iter_mut().zip([1, 1, dwords, dwords]) {
            *counter += step;
        }
        ensure_eq!(
            traffic(bench, port),
            expected,
            "counters (packets out, in, dwords out, in) after packet {round}"
        );
    }
    ensure_eq!(traffic(bench, port), expected, "the counters, read again,");
    Ok(())
}

fn traffic<B: Backend>(bench: &Bench<'_, B>, port: Port) -> [u64; 4] {
    [counter::TX_DATA_PKT_CNT, counter::RX_DATA_PKT_CNT, counter::TX_DWORD_CNT, counter::RX_DWORD_CNT]
        .map(|register| bench.read(register.port(port)))
}
