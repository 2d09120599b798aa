//! Which runs make up a study, in which order, and how their results become rows.
//!
//! Every run has a control beside it: the same storm, order, options and arrivals with the error masks 0. A study
//! runs each control once and tells all shares against it.

use qhca_driver::fault::Policy;
use qhca_driver::options::Options;
use qhca_sim::vtime::{Order, Seed};

use super::costs::Costs;
use super::kinds::Storm;
use super::report::{Measured, Report, Row};
use super::run::{Case, StormError, run};
use crate::params::Parameters;

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
    /// The first run that cannot be made.
    pub fn run(&self, mut progress: impl FnMut(&Case)) -> Result<Report, StormError> {
        let costs = Costs::from_parameters(&self.parameters)?;
        let mut rows = Vec::new();
        for &order in &self.orders {
            for &storm in &self.storms {
                self.compare(storm, order, &costs, &mut progress, &mut rows)?;
            }
        }
        Ok(Report {
            simulated: true,
            calibration: self.parameters.calibration().into(),
            seed: self.seed.0,
            options: self.options_text.clone(),
            transport: "raw",
            rows,
        })
    }

    /// All policies under one storm and order, against one control.
    fn compare(
        &self,
        storm: Storm,
        order: Order,
        costs: &Costs,
        progress: &mut impl FnMut(&Case),
        rows: &mut Vec<Row>,
    ) -> Result<(), StormError> {
        let silent = self.run_case(Policy::Silent, storm, order, costs, progress)?;
        let silent_mb_s = silent.goodput_mb_s();
        for &policy in &self.policies {
            let measured = match policy {
                Policy::Silent => silent,
                _ => self.run_case(policy, storm, order, costs, progress)?,
            };
            rows.push(measured.row(silent_mb_s));
        }
        Ok(())
    }

    pub(super) fn run_case(
        &self,
        policy: Policy,
        storm: Storm,
        order: Order,
        costs: &Costs,
        progress: &mut impl FnMut(&Case),
    ) -> Result<Measured, StormError> {
        let options = self.options.clone();
        let case =
            Case { policy, storm, order, options, seed: self.seed, costs: *costs, hardware_fault: None };
        progress(&case);
        run(&case)
    }
}
