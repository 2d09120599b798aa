//! The storm on threads: what does not depend on how fast this machine is.
#![allow(missing_docs)]
#![forbid(unsafe_code)]

use qhca_driver::options::Options;
use qhca_lab::storm::{Costs, Policy, RealTime, Storm, parameters};
use qhca_regs::Duration;
use qhca_sim::vtime::Seed;

/// Trap 22 and trap 5: on a real clock the mask registers bound the interrupts, whoever is slow.
#[test]
fn guarded_bounds_error_interrupts_on_threads_too() {
    const RATE_PER_S: f64 = 200.0;
    const BURST: f64 = 20.0;
    let costs = Costs::from_parameters(&parameters()).expect("the file is complete");
    for storm in Storm::ALL {
        let run = RealTime {
            policies: vec![Policy::Guarded],
            storm,
            options: Options::default(),
            options_text: String::new(),
            seed: Seed(1),
            costs: Costs { measure: Duration::from_millis(500), ..costs },
        };
        let report = run.run().expect("the cards come up");
        let timed = &report.rows[0];
        let row = &timed.row;
        let error_irqs = row.error_irqs_per_s * timed.seconds;
        assert!(timed.errors_per_s > 0.0 && error_irqs > 0.0, "the storm came: {timed:?}");
        assert!(error_irqs <= RATE_PER_S * timed.seconds + BURST, "{timed:?}");
        assert!(row.goodput_mb_s > 0.0, "packets were received beside the errors: {timed:?}");
        assert!(row.silent_mb_s > 0.0, "the control received as well: {timed:?}");
        assert!(row.error_core_share > 0.0, "threads that serve errors take time: {timed:?}");
        assert_eq!(row.drops_driver, row.drops_model, "{timed:?}");
    }
}
