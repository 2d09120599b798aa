//! The storm on threads: what the error path takes of a core while errors come at a rate that would fill one.
//!
//! Errors must come faster than a million a second, or the share says nothing; so two limits belong together. Shares are
//! time on a processor, which a busy machine does not change; the rate is not, and needs a core of its own.

use std::cell::Cell;

use qhca_driver::fault::Policy;
use qhca_driver::options::Options;
use qhca_lab::storm::{Costs, RealTime, RealTimeRow, Storm, parameters};
use qhca_regs::Duration;
use qhca_sim::vtime::Seed;

use super::{Limit, Section};
use crate::interleave::{Candidate, interleave};

/// How long one turn storms.
const STORM: Duration = Duration::from_millis(200);
/// The receiver's bar: a quarter of a core.
const SHARE_MAX: f64 = 0.25;

const SHARE: &str = "error path, guarded, a second";
const SECOND: &str = "a core's second";
const GAP: &str = "from error to error";
const MICROSECOND: &str = "a microsecond";

/// One section.
pub(super) fn sections(rounds: usize) -> Vec<Section> {
    // Both figures are of one run: the rate under which the share was taken.
    let gap_ns = Cell::new(f64::NAN);
    let candidates = vec![
        Candidate::figure(SECOND, || 1e9),
        Candidate::figure(SHARE, || {
            let timed = run();
            gap_ns.set(1e9 / timed.errors_per_s);
            timed.row.error_core_share * 1e9
        }),
        Candidate::figure(GAP, || gap_ns.get()),
        Candidate::figure(MICROSECOND, || 1e3),
    ];
    vec![Section {
        title: "storm of a million errors a second on threads, receiver's error path".to_owned(),
        comparison: interleave(rounds, candidates),
        limits: vec![Limit::new(SHARE, SECOND, SHARE_MAX), Limit::new(GAP, MICROSECOND, 1.0)],
    }]
}

fn run() -> RealTimeRow {
    let costs = Costs::from_parameters(&parameters()).expect("the file is complete");
    let run = RealTime {
        policies: vec![Policy::Guarded],
        storm: Storm::EgrFull,
        options: Options::default(),
        options_text: String::new(),
        seed: Seed(1),
        costs: Costs { measure: STORM, ..costs },
    };
    run.run_alone(Policy::Guarded).expect("two simulated cards come up")
}
