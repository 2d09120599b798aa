//! `qhca events`: what has happened to a device that `qhca up` holds.
//!
//! The holder keeps the last thousand events, each with a number. They are shown oldest first; with `--follow` new ones
//! are shown as they come, until the holder ends.

use crate::cmd::up::event_line;
use crate::fail::{Failure, Status};
use crate::ui::Ui;
use crate::up::client;
use crate::up::question::Events;
use std::time::Duration;

/// Arguments of `qhca events`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The device: `up:NAME`, or a card's address; `qhca up` must hold it
    #[arg(short, long, value_name = "DEV", default_value = "up:sim")]
    device: String,
    /// Show those from this number on
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    from: u64,
    /// Go on showing new ones as they come
    #[arg(short, long)]
    follow: bool,
}

/// How often new events are asked for.
///
/// TIMEOUT: ours; soon enough for a person who watches.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// Runs `qhca events`. One object or line an event.
pub(crate) fn run(args: &Args, ui: &Ui) -> Result<Status, Failure> {
    let Some(mut holder) = client::holder_for(&args.device)? else {
        return Err(Failure::new(
            Status::Missing,
            format!("-d {}: nobody holds it, so nobody has its events", args.device),
        )
        .remedy("hold it: `qhca up -d DEV`"));
    };
    let (mut from, mut lost) = (args.from, 0);
    loop {
        let some = holder.events(from)?;
        warn(&some, &mut lost, ui);
        for event in &some.events {
            match ui.json {
                true => ui.json(event)?,
                false => ui.line(&event_line(event))?,
            }
        }
        let is_all = some.events.is_empty();
        from = some.next;
        match (is_all, args.follow) {
            (false, _) => {}
            (true, true) => std::thread::sleep(ASK_EVERY),
            (true, false) => return Ok(Status::Done),
        }
    }
}

/// Says what is missing among the events.
fn warn(some: &Events, lost: &mut u64, ui: &Ui) {
    if some.missed > 0 {
        ui.warning(&format!("{} older events are no longer kept", some.missed));
    }
    if some.lost > *lost {
        ui.warning(&format!("{} events came faster than they were read and are lost", some.lost - *lost));
        *lost = some.lost;
    }
}
