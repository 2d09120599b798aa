//! Which runs make up a study, in which order, and how their results become rows.
//!
//! Every run has a control beside it: the same storm, order, options and arrivals with the error masks 0. A study
//! runs each control once and tells all shares against it. Runs know nothing of each other, so several go on at once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use qhca_driver::fault::Policy;
use qhca_driver::options::Options;
use qhca_sim::vtime::{Order, Seed};

use super::costs::Costs;
use super::kinds::Storm;
use super::report::{Measured, Report, Row};
use super::run::{Case, StormError, Transport, run};
use crate::params::Parameters;

/// Payload of every packet of the storm, bytes: the published case's MTU.
const PAYLOAD_BYTES: u32 = 2048;

/// What is to be compared.
#[derive(Clone, Debug)]
pub struct Study {
    /// Policies to compare; the control need not be named.
    pub policies: Vec<Policy>,
    /// Storms to compare them in.
    pub storms: Vec<Storm>,
    /// Orders of pending interrupts to compare them under.
    pub orders: Vec<Order>,
    /// The driver's options.
    pub options: Options,
    /// How the sender answers loss.
    pub transport: Transport,
    /// How the options were given, for the report.
    pub options_text: String,
    /// The seed of every source of chance.
    pub seed: Seed,
    /// Costs and load.
    pub parameters: Parameters,
}

impl Study {
    /// Runs everything. `progress` is told of each run before it starts.
    ///
    /// # Errors
    /// The first run, in the order of the rows, that cannot be made.
    pub fn run(&self, progress: impl Fn(&Case) + Sync) -> Result<Report, StormError> {
        self.check_mtu()?;
        let costs = Costs::from_parameters(&self.parameters)?;
        let mut cases = Vec::new();
        for &order in &self.orders {
            for &storm in &self.storms {
                // The control is first: the rows after it are told against it.
                cases.push(self.case(Policy::Silent, storm, order, &costs));
                let others = self.policies.iter().filter(|policy| **policy != Policy::Silent);
                cases.extend(others.map(|&policy| self.case(policy, storm, order, &costs)));
            }
        }
        let runs = run_all(&cases, progress)?;
        // Shares of a control that received nothing would mean nothing.
        if runs.iter().any(|run| run.policy == Policy::Silent && run.payload_bytes == 0) {
            let why = "nothing is received even with the error masks 0: these options or figures leave nothing to compare";
            return Err(StormError::Options(why.into()));
        }
        let rows = self.rows(&runs);
        Ok(Report {
            simulated: true,
            calibration: self.parameters.calibration().into(),
            seed: self.seed.0,
            options: self.options_text.clone(),
            transport: self.transport.name(),
            rows,
        })
    }

    /// The packets of the storm must fit the MTU, or they would vanish at the sender.
    fn check_mtu(&self) -> Result<(), StormError> {
        let mtu_bytes = self.options.mtu_bytes();
        if mtu_bytes < PAYLOAD_BYTES {
            return Err(StormError::Options(format!(
                "the storm's packets carry {PAYLOAD_BYTES} bytes and ibmtu={} allows {mtu_bytes}: use 0, 4 or 5",
                self.options.ibmtu
            )));
        }
        Ok(())
    }

    /// Rows in the order of the runs, each against the control before it; the control itself only if it was asked for.
    fn rows(&self, runs: &[Measured]) -> Vec<Row> {
        let mut silent_mb_s = 0.0;
        let mut rows = Vec::with_capacity(runs.len());
        for run in runs {
            if run.policy == Policy::Silent {
                silent_mb_s = run.goodput_mb_s();
            }
            if self.policies.contains(&run.policy) {
                rows.push(run.row(silent_mb_s));
            }
        }
        rows
    }

    /// One run of this study.
    pub(super) fn case(&self, policy: Policy, storm: Storm, order: Order, costs: &Costs) -> Case {
        let (options, transport) = (self.options.clone(), self.transport);
        Case {
            policy,
            storm,
            order,
            options,
            transport,
            seed: self.seed,
            costs: *costs,
            hardware_fault: None,
        }
    }
}

/// Runs `cases`, as many at once as there are processors; each is a world of its own, so the results are the same
/// whatever runs beside them. They come in the order of the cases.
pub(super) fn run_all(cases: &[Case], progress: impl Fn(&Case) + Sync) -> Result<Vec<Measured>, StormError> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<Result<Measured, StormError>>>> =
        cases.iter().map(|_| Mutex::new(None)).collect();
    let take = || {
        let index = next.fetch_add(1, Ordering::Relaxed);
        cases.get(index).zip(results.get(index))
    };
    let work = || {
        while let Some((case, result)) = take() {
            progress(case);
            *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(run(case));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(cases.len());
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    let taken = results.into_iter().map(|result| result.into_inner().unwrap_or_else(PoisonError::into_inner));
    // PANIC: every index below the number of cases was handed out, and a thread that panicked has ended the scope.
    taken.map(|result| result.expect("every case was run")).collect()
}
