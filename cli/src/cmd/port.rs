//! `qhca port DEV:PORT`: what a port's link is doing, what that means, and what it is asked to do.
//!
//! A port goes by its device and never by a LID: a port that is switched off has none. The words are those of
//! `ibportstate`. A request that the state does not allow is refused before it reaches the chip; one that was given is
//! watched until its state shows or its time is up.

use crate::args::DeviceArg;
use crate::fail::{Failure, Status};
use crate::target::Target;
use crate::ui::Ui;
use qhca_driver::link::address::PortAddress;
use qhca_driver::link::request::PortAction;
use qhca_driver::link::{Command, Goal, LinkError, LinkStatus};
use qhca_driver::options::Options;
use qhca_regs::{Duration, Port};
use serde::Serialize;

/// How long a port is given to settle behind a request that takes its link down and lets it come up again.
///
/// TIMEOUT: ours; shown is what the port does then.
const SETTLES_WITHIN: Duration = Duration::from_secs(2);

/// Arguments of `qhca port`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Device and port, from 1: `sim:1`, `sim:qle7340:1`
    #[arg(value_name = "DEV:PORT")]
    address: String,
    /// What the port is asked to do: enable, disable, poll, arm or active; without it the port is only looked at
    #[arg(value_name = "ACTION")]
    action: Option<String>,
}

/// What is shown.
#[derive(Serialize)]
struct View {
    device: String,
    port: u8,
    action: Option<&'static str>,
    reached: bool,
    state: String,
    physical_state: String,
    speed: Option<&'static str>,
    lanes: Option<u32>,
    base_lid: u16,
    lmc: u8,
    advice: &'static str,
    #[serde(skip)]
    line: String,
}

/// Runs `qhca port`.
pub(crate) fn run(args: &Args, ui: &Ui) -> Result<Status, Failure> {
    const FORM: &str = "valid: DEV:PORT with PORT 1 or 2, such as sim:1 or sim:qle7340:1";
    let address: PortAddress =
        args.address.parse().map_err(|e| Failure::bad_input(format!("{e}")).remedy(FORM))?;
    let action = args.action.as_deref().map(str::parse::<PortAction>).transpose();
    let action = action.map_err(Failure::bad_input)?;
    let target = Target::open_up(&DeviceArg::named(&address.device), &Options::default(), ui)?;
    let port = find_port(&target, &address)?;
    target.wait_for_links(ui);
    let reached = match action {
        Some(action) => ask(&target, &address, port, action, ui)?,
        None => true,
    };
    let view = look(&target, &address, port, action, reached)?;
    match ui.json {
        true => ui.json(&view)?,
        false => ui.text(&to_text(&view))?,
    }
    Ok(if reached { Status::Done } else { Status::CheckFailed })
}

fn find_port(target: &Target, address: &PortAddress) -> Result<Port, Failure> {
    let ports = target.chip()?.board.ports;
    ports.by_ib_number(address.ib_port).ok_or_else(|| {
        Failure::bad_input(format!("{address}: this board has no port {}", address.ib_port))
            .remedy(if ports.count() == 1 { "valid: 1" } else { "valid: 1, 2" })
    })
}

/// Gives the request and waits for its state; false if its time is up.
fn ask(
    target: &Target,
    address: &PortAddress,
    port: Port,
    action: PortAction,
    ui: &Ui,
) -> Result<bool, Failure> {
    let Some(device) = target.device() else { return Ok(false) };
    let given = match action {
        PortAction::Enable => device.set_goal(port, Goal::Up),
        PortAction::Disable => device.set_goal(port, Goal::Disabled),
        PortAction::Poll => device.link_command(port, Command::Poll),
        PortAction::Arm => device.link_command(port, Command::Arm),
        PortAction::Activate => device.set_goal(port, Goal::Active),
    };
    given.map_err(|error| refused(address, action, &error))?;
    ui.progress(&format!("{address}: {action}, at most {}", action.within()));
    if action == PortAction::Poll {
        // The link that is up now goes down first: what shows before that is the state of before. A link that goes
        // down and comes up faster than anybody looks is up again when the time is over.
        device.wait_for_link(port, action.within(), |status| !status.is_up());
    }
    let reached = device.wait_for_link(port, action.within(), |status| action.is_reached(status));
    if reached && matches!(action, PortAction::Enable | PortAction::Poll) {
        device.wait_for_link(port, SETTLES_WITHIN, LinkStatus::is_up);
    }
    Ok(reached)
}

fn refused(address: &PortAddress, action: PortAction, error: &LinkError) -> Failure {
    let status = match error {
        LinkError::Gone { .. } => Status::Device,
        LinkError::Forbidden { .. } => Status::CheckFailed,
        _ => Status::BadInput,
    };
    Failure::new(status, format!("{address}: {action}: {error}"))
        .remedy(format!("`qhca port {address}` shows the state and what leads out of it"))
}

fn look(
    target: &Target,
    address: &PortAddress,
    port: Port,
    action: Option<PortAction>,
    reached: bool,
) -> Result<View, Failure> {
    let status = target.link(port)?;
    let (base_lid, lmc) = target.lid(port);
    let advice = target.device().and_then(|device| device.link_advice(port)).unwrap_or_default();
    Ok(View {
        device: address.device.clone(),
        port: address.ib_port,
        action: action.map(PortAction::name),
        reached,
        state: status.logical().to_string(),
        physical_state: status.physical().to_string(),
        speed: status.is_up().then(|| status.speed().name()),
        lanes: status.is_up().then(|| status.lanes()),
        base_lid,
        lmc,
        advice,
        line: status.to_string(),
    })
}

fn to_text(view: &View) -> String {
    let View { device, port, line, base_lid, lmc, advice, .. } = view;
    let mut text = format!("{device}:{port}  {line}");
    if *base_lid != 0 {
        text.push_str(&format!(", LID {base_lid} LMC {lmc}"));
    }
    if let (Some(action), false) = (view.action, view.reached) {
        text.push_str(&format!("\n  {action} did not come about in its time"));
    }
    text.push_str(&format!("\n  {advice}\n"));
    text
}
