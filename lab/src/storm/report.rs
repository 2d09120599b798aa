//! What the experiment says: rows for programs, a table for people, and what the reader must know beside them.

use std::fmt::Write as _;

use qhca_driver::fault::Policy;
use qhca_sim::vtime::Order;
use serde::Serialize;

use super::kinds::Storm;

/// Bytes of the MB in which goodput is told, as the published tables count.
pub const MB_BYTES: f64 = 1_048_576.0;

/// The whole result, as `--json` prints it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Always true: nothing here was measured on a card.
    pub simulated: bool,
    /// What the cost model was calibrated on.
    pub calibration: String,
    /// The seed of every source of chance.
    pub seed: u64,
    /// Driver options and figures that differ from the file's.
    pub options: String,
    /// How the sender answers loss: `raw` sends on, `rc` goes back to what was lost.
    pub transport: &'static str,
    /// One row for each policy under each storm and order.
    pub rows: Vec<Row>,
}

/// One run, against its control.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The policy's name.
    pub policy: &'static str,
    /// The storm's name.
    pub storm: &'static str,
    /// The order in which pending interrupts are taken.
    pub arbitration: &'static str,
    /// Payload received in the measured time.
    pub goodput_mb_s: f64,
    /// The control's payload in the same time.
    pub silent_mb_s: f64,
    /// Goodput over the control's, 1 at most.
    pub share: f64,
    /// The same as it is: above 1 if the control did worse.
    pub goodput_ratio: f64,
    /// Interrupts that reported an error.
    pub error_irqs_per_s: f64,
    /// Interrupts that reported packets.
    pub receive_irqs_per_s: f64,
    /// Register reads of the driver.
    pub register_reads_per_s: f64,
    /// The part of the core's time that went to errors.
    pub error_core_share: f64,
    /// Packets dropped in the whole run, as the driver counts them.
    pub drops_driver: u64,
    /// Packets dropped in the whole run, as the chip model counts them where it drops.
    pub drops_model: u64,
}

/// What one run measured; the control's goodput makes a [`Row`] of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// The policy.
    pub policy: Policy,
    /// The storm.
    pub storm: Storm,
    /// The order.
    pub order: Order,
    /// The measured time in seconds.
    pub seconds: f64,
    /// Payload bytes delivered in it.
    pub payload_bytes: u64,
    /// Interrupts that reported an error in it.
    pub error_irqs: u64,
    /// Interrupts that reported packets in it.
    pub receive_irqs: u64,
    /// Register reads in it.
    pub register_reads: u64,
    /// Seconds that went to errors in it.
    pub error_seconds: f64,
    /// Seconds in which the core had nothing to do.
    pub idle_seconds: f64,
    /// The driver's account of drops, whole run.
    pub drops_driver: u64,
    /// The model's account of drops, whole run.
    pub drops_model: u64,
}

impl Measured {
    /// Payload a second, in MB of 2^20 bytes.
    pub fn goodput_mb_s(&self) -> f64 {
        self.payload_bytes as f64 / MB_BYTES / self.seconds
    }

    /// This run as a row of the report, against the control's goodput.
    pub fn row(&self, silent_mb_s: f64) -> Row {
        let goodput = self.goodput_mb_s();
        let ratio = if silent_mb_s > 0.0 { goodput / silent_mb_s } else { 0.0 };
        Row {
            policy: self.policy.name(),
            storm: self.storm.name(),
            arbitration: self.order.name(),
            goodput_mb_s: rounded(goodput, 2),
            silent_mb_s: rounded(silent_mb_s, 2),
            share: rounded(ratio.min(1.0), 4),
            goodput_ratio: rounded(ratio, 4),
            error_irqs_per_s: rounded(self.error_irqs as f64 / self.seconds, 1),
            receive_irqs_per_s: rounded(self.receive_irqs as f64 / self.seconds, 1),
            register_reads_per_s: rounded(self.register_reads as f64 / self.seconds, 1),
            error_core_share: rounded(self.error_seconds / self.seconds, 5),
            drops_driver: self.drops_driver,
            drops_model: self.drops_model,
        }
    }
}

/// Enough digits to compare, few enough that the last one means something.
pub(super) fn rounded(value: f64, decimals: i32) -> f64 {
    let scale = 10_f64.powi(decimals);
    (value * scale).round() / scale
}

impl Report {
    /// The table and what has to be said under it.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "overflow storm, seed {}, transport {}, options: {}\n",
            self.seed,
            self.transport,
            self.shown_options()
        );
        self.write_table(&mut text);
        self.write_remarks(&mut text);
        text
    }

    fn shown_options(&self) -> &str {
        if self.options.is_empty() { "(defaults)" } else { &self.options }
    }

    fn write_table(&self, text: &mut String) {
        let _ = writeln!(
            text,
            "{:<13} {:<10} {:<13} {:>9} {:>8} {:>11} {:>9} {:>9} {:>8} {:>12} {:>12}",
            "arbitration",
            "storm",
            "policy",
            "goodput",
            "share of",
            "error",
            "receive",
            "register",
            "error",
            "dropped",
            "dropped"
        );
        let _ = writeln!(
            text,
            "{:<13} {:<10} {:<13} {:>9} {:>8} {:>11} {:>9} {:>9} {:>8} {:>12} {:>12}",
            "", "", "", "MB/s", "silent", "irqs/s", "irqs/s", "reads/s", "path %", "(driver)", "(model)"
        );
        for row in &self.rows {
            let _ = writeln!(
                text,
                "{:<13} {:<10} {:<13} {:>9.2} {:>7.2}% {:>11.1} {:>9.1} {:>9.0} {:>8.3} {:>12} {:>12}{}",
                row.arbitration,
                row.storm,
                row.policy,
                row.goodput_mb_s,
                row.share * 100.0,
                row.error_irqs_per_s,
                row.receive_irqs_per_s,
                row.register_reads_per_s,
                row.error_core_share * 100.0,
                row.drops_driver,
                row.drops_model,
                row.remark()
            );
        }
    }

    fn write_remarks(&self, text: &mut String) {
        let _ = writeln!(text, "\nAll figures are simulated, calibrated on: {}.", self.calibration);
        text.push_str(REMARKS);
        // Said only where this very table shows it.
        let inline =
            |order: &str| self.rows.iter().find(|row| row.policy == "inline" && row.arbitration == order);
        let kept = ["arrival", "receive-first"].into_iter().filter_map(inline).map(|row| row.share);
        if let Some(least) = kept.min_by(f64::total_cmp) {
            let _ = writeln!(
                text,
                "In arrival and receive-first order 'inline' keeps {:.0} % and more of the control: what the storm takes\n\
                 errors-first is a loss of priority, not the price of one error.",
                (least * 100.0).floor()
            );
        }
    }
}

impl Row {
    /// True if not one receive interrupt was served in the measured time.
    pub fn receive_never_ran(&self) -> bool {
        self.receive_irqs_per_s == 0.0 && self.goodput_mb_s == 0.0
    }

    fn remark(&self) -> &'static str {
        if self.receive_never_ran() { "  receive never ran" } else { "" }
    }
}

const REMARKS: &str = "\
Nothing here was measured on a card.
MB is 2^20 bytes. Rates and shares are over the measured time, drops over the whole run; 'silent' is the same
run, with the same arrivals, with the error masks 0.
A receive batch that leaves packets behind goes on without a new interrupt, so a core at its limit sees few of them.
The packets are made at the receiver's end of the cable, at the rate of the wire: the sending card trains the link
and its own cost is not part of the run.
That pending error interrupts are taken before receive interrupts is our reading of the published case, not a
measurement.
";

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(payload_bytes: u64, receive_irqs: u64) -> Measured {
        Measured {
            policy: Policy::Inline,
            storm: Storm::EgrFull,
            order: Order::ErrorsFirst,
            seconds: 2.0,
            payload_bytes,
            error_irqs: 10,
            receive_irqs,
            register_reads: 7,
            error_seconds: 0.5,
            idle_seconds: 0.0,
            drops_driver: 3,
            drops_model: 3,
        }
    }

    #[test]
    fn a_row_is_rates_over_the_measured_time() {
        let row = measured(1 << 21, 4).row(2.0);
        assert_eq!((row.goodput_mb_s, row.share, row.error_irqs_per_s), (1.0, 0.5, 5.0));
        assert_eq!(
            (row.receive_irqs_per_s, row.register_reads_per_s, row.error_core_share),
            (2.0, 3.5, 0.25)
        );
        assert!(!row.receive_never_ran());
    }

    #[test]
    fn the_text_says_that_receive_never_ran_and_that_nothing_was_measured() {
        let arrival = Measured { order: Order::Arrival, ..measured(1 << 22, 4) };
        let mut report = Report {
            simulated: true,
            calibration: "the wire".into(),
            seed: 1,
            options: String::new(),
            transport: "raw",
            rows: vec![measured(0, 0).row(2.0), arrival.row(2.5)],
        };
        let text = report.to_text();
        for part in [
            "receive never ran",
            "simulated, calibrated on: the wire",
            "not a\nmeasurement",
            "'inline' keeps 80 % and more",
            "a loss of priority",
        ] {
            assert!(text.contains(part), "missing '{part}' in:\n{text}");
        }
        report.rows.pop();
        assert!(!report.to_text().contains("loss of priority"), "said without a row that shows it");
    }
}
