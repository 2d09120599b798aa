//! The band in which the published collapse lies: what `inline` keeps, over the sender's window and a packet's cost.
//!
//! Nobody published either figure, and between a window that the buffers hold and one that the sequence numbers bound,
//! `inline` keeps everything or next to nothing. So one cell that shows the published quotient would prove nothing; that
//! it lies between cells is all that can be said, and is said.

use std::fmt::Write as _;

use qhca_driver::fault::Policy;
use qhca_sim::vtime::Order;
use serde::Serialize;

use super::costs::Costs;
use super::kinds::Storm;
use super::report::{Measured, rounded};
use super::run::{Case, StormError};
use super::study::{Study, run_all};

/// Windows, packets: from what the eager buffers hold to what the sequence numbers allow.
const WINDOWS: [u32; 7] = [1024, 2048, 16_384, 65_536, 131_072, 1 << 20, (1 << 23) - 1];
/// A packet's cost on the core, ns.
const RECEIVE_NS: [u32; 6] = [600, 615, 630, 645, 660, 680];
/// The published goodput before and after, MB/s: the averages of the table.
const PUBLISHED_MB_S: (f64, f64) = (229.80, 2941.35);

/// One cell.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BandRow {
    /// Packets that the sender has under way at most.
    pub window_packets: u32,
    /// A packet's cost, ns.
    pub receive_ns: u32,
    /// Goodput of `inline`.
    pub inline_mb_s: f64,
    /// Goodput with the error masks 0.
    pub silent_mb_s: f64,
    /// The one over the other.
    pub share: f64,
    /// Packets that were dropped under `inline`, in the whole run.
    pub drops: u64,
}

/// The whole band.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BandReport {
    /// Always true: nothing here was measured on a card.
    pub simulated: bool,
    /// What the cost model was calibrated on.
    pub calibration: String,
    /// The seed of every source of chance.
    pub seed: u64,
    /// Driver options and figures that differ from the file's.
    pub options: String,
    /// How the sender answers loss.
    pub transport: &'static str,
    /// What is swept.
    pub swept: &'static str,
    /// The order in which pending interrupts are taken.
    pub arbitration: &'static str,
    /// The published goodput before the fix, MB/s.
    pub published_before_mb_s: f64,
    /// And after it.
    pub published_after_mb_s: f64,
    /// The one over the other.
    pub published_share: f64,
    /// Whether that lies between the least and the largest share of the cells.
    pub published_in_band: bool,
    /// The cells, window by window.
    pub rows: Vec<BandRow>,
}

impl Study {
    /// Runs `inline` and its control in every cell of the band, errors first.
    ///
    /// # Errors
    /// The first run that cannot be made.
    pub fn band(&self, progress: impl Fn(&Case) + Sync) -> Result<BandReport, StormError> {
        let (order, mut cells, mut cases) = (Order::ErrorsFirst, Vec::new(), Vec::new());
        for window in WINDOWS {
            for receive_ns in RECEIVE_NS {
                let mut parameters = self.parameters.clone();
                parameters.set("window_packets", window.into())?;
                parameters.set("receive_ns", receive_ns.into())?;
                let costs = Costs::from_parameters(&parameters)?;
                cells.push((window, receive_ns));
                let policies = [Policy::Silent, Policy::Inline];
                cases.extend(policies.map(|policy| self.case(policy, Storm::EgrFull, order, &costs)));
            }
        }
        let runs = run_all(&cases, progress)?;
        let pairs = cells.iter().zip(runs.chunks_exact(2));
        let rows: Vec<BandRow> = pairs.map(|(cell, pair)| BandRow::new(*cell, pair[0], pair[1])).collect();
        let (before, after) = PUBLISHED_MB_S;
        let published = before / after;
        let shares = || rows.iter().map(|row| row.share);
        let least = shares().min_by(f64::total_cmp).unwrap_or(1.0);
        let most = shares().max_by(f64::total_cmp).unwrap_or(0.0);
        Ok(BandReport {
            simulated: true,
            calibration: self.parameters.calibration().into(),
            seed: self.seed.0,
            options: self.options_text.clone(),
            transport: self.transport.name(),
            swept: "window_packets, receive_ns",
            arbitration: order.name(),
            published_before_mb_s: before,
            published_after_mb_s: after,
            published_share: rounded(published, 4),
            published_in_band: (least..=most).contains(&published),
            rows,
        })
    }
}

impl BandRow {
    fn new((window_packets, receive_ns): (u32, u32), silent: Measured, inline: Measured) -> Self {
        let share = inline.goodput_mb_s() / silent.goodput_mb_s().max(f64::MIN_POSITIVE);
        Self {
            window_packets,
            receive_ns,
            inline_mb_s: rounded(inline.goodput_mb_s(), 2),
            silent_mb_s: rounded(silent.goodput_mb_s(), 2),
            share: rounded(share.min(1.0), 4),
            drops: inline.drops_model,
        }
    }
}

impl BandReport {
    /// The table: a line for each window, a column for each cost, and where the published quotient lies.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "inline over silent, transport {}, {}, seed {}: share of the goodput that remains\n",
            self.transport, self.arbitration, self.seed
        );
        let _ = write!(text, "{:>15}", "window, packets");
        for cost in RECEIVE_NS {
            let _ = write!(text, " {:>9}", format!("{cost} ns"));
        }
        text.push('\n');
        for window in WINDOWS {
            let _ = write!(text, "{window:>15}");
            let cells: Vec<&BandRow> = self.rows.iter().filter(|row| row.window_packets == window).collect();
            for (at, row) in cells.iter().enumerate() {
                let mark = if self.is_passed(&cells, at) { '<' } else { ' ' };
                let _ = write!(text, " {:>7.2}%{mark}", row.share * 100.0);
            }
            text.push('\n');
        }
        let _ = writeln!(
            text,
            "\nThe published pair, {:.2} before and {:.2} MB/s after, is {:.2} %: {}.",
            self.published_before_mb_s,
            self.published_after_mb_s,
            self.published_share * 100.0,
            match self.published_in_band {
                true => "inside the band ('<' marks where a line passes it)",
                false => "outside of the band",
            }
        );
        let _ = writeln!(
            text,
            "All figures are simulated, calibrated on: {}.\nNothing here was measured on a card, and no figure was chosen to hit the published one.",
            self.calibration
        );
        text
    }

    /// Whether the published quotient lies between this cell and its neighbour to the left.
    fn is_passed(&self, cells: &[&BandRow], at: usize) -> bool {
        let Some(left) = at.checked_sub(1).and_then(|left| cells.get(left)) else { return false };
        let (high, low) = (left.share.max(cells[at].share), left.share.min(cells[at].share));
        (low..=high).contains(&self.published_share)
    }
}
