//! Two ports of one card with a cable between them: what a port cannot show against itself.
//!
//! ```text
//!   first port ──────── cable ──────── second port        one QLE7342 and one cable are enough
//! ```
//!
//! Whatever stands around the card is asked to lay that cable; a card that is alone may have been cabled so by its owner.
//! Whether it is so is found out, not believed: one port is switched off and the other must see it.

use super::send::{buffer, ctxt};
use crate::bench::{Bench, LINK_ACTIVE, LINK_ARMED, LINK_INIT, LINK_UP_WITHIN, PATIENCE};
use crate::check::{Stop, Verdict, ensure, ensure_eq};
use crate::context::Context;
use crate::packet::Packet;
use qhca_driver::env::Backend;
use qhca_regs::map::port::{self as port_regs, IbcCtrlB, IbcStatusB};
use qhca_regs::{Duration, Port};

/// How long an end may take to see that the other is switched off.
///
/// TIMEOUT: light goes at once; the rest is for software and for machines that are busy.
const SEEN_WITHIN: Duration = Duration::from_millis(200);
/// How long a link that is well must stay up for the heartbeat to have been answered.
const WELL_FOR: Duration = Duration::from_millis(700);
/// How long a heartbeat may stay unanswered before that is told.
///
/// TIMEOUT: the period is not documented; half a second is the guess of F-436.
const MISSED_WITHIN: Duration = Duration::from_secs(2);
/// More packets than the lane has credits, twice.
const PACKETS: u32 = 520;
/// All speeds, four lanes, and no heartbeat.
const QUIET: IbcCtrlB = IbcCtrlB(0x004BF);

/// Joins the two ports, runs `scenario` on them, and leaves the cables as they were.
fn joined<'a, B: Backend>(
    bench: &mut Bench<'a, B>,
    scenario: impl FnOnce(&mut Bench<'a, B>, [Port; 2]) -> Verdict,
) -> Verdict {
    bench.reset()?;
    let [first, second] = bench.ports()[..] else {
        return Err(Stop::Skip("the board has one port only".to_owned()));
    };
    bench.surroundings.join_ports(true);
    bench.set_joined(true);
    let verdict = find_each_other(bench, [first, second]).and_then(|()| scenario(bench, [first, second]));
    bench.set_joined(false);
    bench.surroundings.join_ports(false);
    verdict
}

/// Trains both ports, and makes sure that each is the other's far end.
fn find_each_other<B: Backend>(bench: &mut Bench<'_, B>, [first, second]: [Port; 2]) -> Verdict {
    bench.set_up(0, 64)?;
    bench.start_link_with(first, QUIET);
    bench.start_link_with(second, QUIET);
    let apart = || {
        Err(Stop::Skip(
            "the card's two ports are not joined: a cable from one to the other does it".to_owned(),
        ))
    };
    let both = |bench: &mut Bench<'_, B>| {
        [first, second].into_iter().all(|port| bench.link_state(port) == LINK_INIT)
    };
    if !bench.until(LINK_UP_WITHIN, both) {
        return apart();
    }
    bench.command_training(first, 1);
    if !bench.until(SEEN_WITHIN, |bench| bench.link_state(second) != LINK_INIT) {
        return apart();
    }
    bench.command_training(first, 2);
    let again = bench.until(LINK_UP_WITHIN, both);
    ensure!(again, "{first} was switched off and on, and the ports do not find each other again");
    Ok(())
}

/// Takes both ports to ACTIVE, each against the other.
fn activate<B: Backend>(bench: &mut Bench<'_, B>, ports: [Port; 2]) -> Verdict {
    for (command, state) in [(2, LINK_ARMED), (3, LINK_ACTIVE)] {
        for port in ports {
            bench.command_link(port, command);
            bench.await_link(port, state)?;
        }
    }
    Ok(())
}

/// A far end whose heartbeat is on keeps the link; one whose heartbeat is off is missed, and the link goes down.
pub(super) fn heartbeat<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    joined(bench, |bench, ports| {
        let [first, second] = ports;
        let set = |bench: &Bench<'_, B>, port: Port, on: bool| {
            bench.write(port_regs::IBC_CTRL_B.port(port), QUIET.with_hrtbt_enb(on));
        };
        let timed_out =
            |bench: &Bench<'_, B>| bench.read(port_regs::IBC_STATUS_B.port(first)).heartbeat_timed_out();
        set(bench, second, true);
        set(bench, first, true);
        activate(bench, ports)?;
        bench.pause(WELL_FOR);
        ensure!(!timed_out(bench), "{first}: a far end that has its heartbeat on was missed");
        ensure_eq!(bench.link_state(first), LINK_ACTIVE, "{first}: link state after {WELL_FOR} of heartbeat");
        set(bench, second, false);
        let missed = bench.until(MISSED_WITHIN, |bench| timed_out(bench));
        ensure!(missed, "{first}: a far end whose heartbeat is off was not missed in {MISSED_WITHIN}");
        ensure!(bench.link_state(first) != LINK_ACTIVE, "{first}: ACTIVE although the heartbeat was missed");
        set(bench, second, true);
        let clear = IbcStatusB(0).with_heartbeat_timed_out(true);
        port_regs::IBC_STATUS_B.port(first).clear(bench.bar(), clear);
        ensure!(!timed_out(bench), "{first}: heartbeat_timed_out stays although it was cleared");
        bench.pause(WELL_FOR);
        ensure!(!timed_out(bench), "{first}: a far end that has its heartbeat on again was missed");
        Ok(())
    })
}

/// Credits come back: many more packets pass than the far end has credits for at one time, and none are held at the end.
pub(super) fn credits<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    joined(bench, |bench, ports| {
        let [first, second] = ports;
        activate(bench, ports)?;
        let mut context = Context::open(bench, ctxt(second.index())?, second)?;
        for n in 0..PACKETS {
            let packet = Packet::new(first, 4, n);
            bench.send(buffer(n as usize % 8)?, &packet);
            if !bench.until(PATIENCE, |_| context.has_next()) {
                let status = bench.read(port_regs::IBC_STATUS_A.port(first)).0;
                let what = format!(
                    "{first}: packet {n} of {PACKETS} did not reach {second}, IBCStatusA {status:#x}"
                );
                return Err(Stop::Fail(what));
            }
            let received = context.expect(&packet)?;
            context.give_back(bench, &received, 0);
        }
        let held = bench.read(port_regs::RX_CREDIT_VL.port(second).index(0)).rx_bufr_consumed_vl();
        ensure_eq!(held, 0, "{second}: half credits in use after every packet was taken");
        Ok(())
    })
}
