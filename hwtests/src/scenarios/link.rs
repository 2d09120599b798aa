//! The link of each port, against itself: states, commands, and the interrupt that tells of a change.

use crate::bench::{Bench, LINK_ACTIVE, LINK_ARMED, LINK_DOWN, LINK_INIT};
use crate::check::{Verdict, ensure, ensure_eq};
use qhca_driver::env::Backend;
use qhca_irq::VectorSet;
use qhca_regs::map::{device, port as port_regs};
use qhca_regs::status::{IntBits, PortErrBits};
use qhca_regs::{Duration, Vector};

/// Each port trains, is armed, goes active, and comes back after a DOWN command.
pub(super) fn link_up<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    bench.reset()?;
    bench.set_up(0, 64)?;
    for port in bench.ports() {
        ensure_eq!(bench.link_state(port), LINK_DOWN, "{port}: link state after a reset");
        bench.bring_up(port)?;
        let status = bench.read(port_regs::IBC_STATUS_A.port(port));
        ensure_eq!(status.link_training_state(), 1, "{port}: training state of an active link");
        ensure!(status.link_width_active(), "{port}: the link is not 4X wide");
        bench.command_link(port, 1);
        let fell = bench.until(crate::bench::LINK_UP_WITHIN, |bench| bench.link_state(port) != LINK_ACTIVE);
        ensure!(fell, "{port}: a DOWN command does not take the link down");
        bench.await_link(port, LINK_INIT)?;
    }
    Ok(())
}

/// A change of state sets `IBStatusChanged`, which interrupts through `Err_p`.
pub(super) fn link_change_interrupts<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    bench.reset()?;
    bench.set_up(0, 64)?;
    for port in bench.ports() {
        bench.enable_interrupts(IntBits::err_port(port));
        bench.start_link(port);
        bench.await_link(port, LINK_INIT)?;
        let fired = bench.wait();
        ensure_eq!(fired, VectorSet::only(Vector::DEFAULT), "{port}: vectors after the link came up");
        let errors = bench.read(port_regs::ERR_STATUS.port(port));
        ensure!(
            errors.contains(PortErrBits::IB_STATUS_CHANGED),
            "{port}: IBStatusChanged missing in {errors:?}"
        );
        let causes = bench.read(device::INT_STATUS);
        ensure!(causes.contains(IntBits::err_port(port)), "{port}: Err_p missing in {causes:?}");
    }
    Ok(())
}

/// ACTIVE is reached from ARMED only, never from INIT.
pub(super) fn active_needs_armed<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    bench.reset()?;
    bench.set_up(0, 64)?;
    for port in bench.ports() {
        bench.start_link(port);
        bench.await_link(port, LINK_INIT)?;
        bench.command_link(port, 3);
        bench.pause(Duration::from_millis(1));
        ensure_eq!(
            bench.link_state(port),
            LINK_INIT,
            "{port}: link state after ACTIVE was asked for in INIT"
        );
        bench.command_link(port, 2);
        bench.await_link(port, LINK_ARMED)?;
        bench.command_link(port, 3);
        bench.await_link(port, LINK_ACTIVE)?;
    }
    Ok(())
}

/// A link is as wide as the widths that are enabled let it be.
pub(super) fn link_width<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    bench.reset()?;
    bench.set_up(0, 64)?;
    for port in bench.ports() {
        for (code, is_4x) in [(0, false), (1, true), (3, true)] {
            let control = port_regs::IbcCtrlB(0x304BF).with_ib_num_channels(code);
            train_with(bench, port, control)?;
            let status = bench.read(port_regs::IBC_STATUS_A.port(port));
            ensure_eq!(status.link_width_active(), is_4x, "{port}: 4X with NUM_CHANNELS {code}");
        }
    }
    Ok(())
}

/// A link is as fast as the fastest speed that is enabled.
pub(super) fn link_speed<B: Backend>(bench: &mut Bench<'_, B>) -> Verdict {
    bench.reset()?;
    bench.set_up(0, 64)?;
    let features = bench.read(device::ACTIVE_FEATURE_MASK).0;
    for port in bench.ports() {
        let has = |speed: u32| features >> (3 * port.index()) & 1 << speed != 0;
        // One speed, then all up to it: SDR, DDR, QDR are bits 2 to 4, and with several come bits 0 and 1.
        for (speeds, fastest) in [(0b001, 0), (0b010, 1), (0b100, 2), (0b011, 1), (0b111, 2)] {
            if (0..3).any(|speed| speeds >> speed & 1 != 0 && !has(speed)) {
                continue;
            }
            let several = if u32::count_ones(speeds) > 1 { 0b11 } else { 0 };
            let control = port_regs::IbcCtrlB(0x304BF & !0x1F | u64::from(speeds << 2 | several));
            train_with(bench, port, control)?;
            let status = bench.read(port_regs::IBC_STATUS_A.port(port));
            let seen = (status.link_speed_active(), status.link_speed_qdr());
            ensure_eq!(seen, (fastest == 1, fastest == 2), "{port}: DDR and QDR with speeds {speeds:#05b}");
        }
    }
    Ok(())
}

/// Trains `port` against itself with these speeds and widths.
fn train_with<B: Backend>(
    bench: &mut Bench<'_, B>,
    port: qhca_regs::Port,
    control: port_regs::IbcCtrlB,
) -> Verdict {
    bench.write_apart(port_regs::IBC_CTRL_A.port(port), port_regs::IbcCtrlA(0));
    bench.pause(Duration::from_millis(1));
    bench.start_link_with(port, control);
    bench.await_link(port, LINK_INIT)
}
