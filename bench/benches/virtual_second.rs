//! What one virtual second of the storm costs: time on a processor, for each policy, against its bar of five seconds.
//!
//! `cargo bench -p qhca-bench --bench virtual_second`. Bring-up, settling and the stall are in it. Fails over the bar.

#[path = "processor/mod.rs"]
mod processor;

use std::process::ExitCode;

use processor::processor_time_s;
use qhca_driver::options::Options;
use qhca_lab::storm::{Case, Costs, Policy, Storm, Transport, parameters, run};
use qhca_regs::Duration;
use qhca_sim::vtime::{Order, Seed};

const BAR_S: f64 = 5.0;

fn main() -> ExitCode {
    let costs = Costs::from_parameters(&parameters()).expect("the file is complete");
    println!("one virtual second of the storm, errors first, on one core; bar: {BAR_S} s");
    let mut missed = false;
    for policy in Policy::ALL {
        let case = Case {
            policy,
            storm: Storm::EgrFull,
            order: Order::ErrorsFirst,
            options: Options::default(),
            transport: Transport::Raw,
            seed: Seed(1),
            costs: Costs { measure: Duration::from_secs(1), ..costs },
            hardware_fault: None,
        };
        let start = processor_time_s();
        let measured = run(&case).expect("the run can be made");
        let spent = processor_time_s() - start;
        let verdict = if spent <= BAR_S { "holds" } else { "MISSED" };
        println!("{policy:<13} {spent:>6.2} s  {verdict}  ({:.2} MB/s)", measured.goodput_mb_s());
        missed |= spent > BAR_S;
    }
    if missed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
