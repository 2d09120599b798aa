//! What each system is to reach, as sentences that a table meets or misses.

use serde::Serialize;

use super::{Line, Table};
use crate::published::{mechanism, ours};

/// A target and how it stands.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Target {
    /// The sentence.
    pub target: String,
    /// Whether it is met.
    pub met: bool,
    /// The figure that decides: the worst of all rows.
    pub value: f64,
}

/// Base cells that are given are met within so many per cent.
const BASE_PCT: f64 = 5.0;
/// Below so many cores sharing changes nothing.
const FEW_CORES: u64 = 14;

fn at_least(target: impl Into<String>, value: f64, limit: f64) -> Target {
    Target { target: target.into(), met: value >= limit, value: two(value) }
}

fn at_most(target: impl Into<String>, value: f64, limit: f64) -> Target {
    Target { target: target.into(), met: value <= limit, value: two(value) }
}

fn two(value: f64) -> f64 {
    (value * 100.0).round() / 100.0 + 0.0
}

fn least(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::INFINITY, f64::min)
}

fn most(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::NEG_INFINITY, f64::max)
}

fn extra(line: &Line, policy: &str, name: &str) -> Option<f64> {
    let extras = match line.prediction.policies.get(policy) {
        Some(policy) => &policy.extra,
        None => &line.prediction.base.extra,
    };
    extras.get(name).copied()
}

/// The targets of a system on a table.
pub fn targets(table: &Table) -> Vec<Target> {
    let worst = most(table.lines.iter().map(|line| line.base_error_pct().abs()));
    let name = |what: &str| format!("{}: {what}", table.system);
    let mut all = vec![at_most(name("given base cells within 5 %"), worst, BASE_PCT)];
    all.extend(match table.system {
        "dim" => dim(table),
        "cq-pool" => pool(table),
        "spread" => spread(table),
        _ => rnr(table),
    });
    all
}

fn changes<'a>(table: &'a Table, policy: &'a str) -> impl Iterator<Item = f64> + 'a {
    table.lines.iter().filter_map(move |line| line.change_pct(policy))
}

fn geometric_pct(changes: impl Iterator<Item = f64>) -> f64 {
    let (sum, n) = changes.fold((0.0, 0.0), |(sum, n), change| (sum + (1.0 + change / 100.0).ln(), n + 1.0));
    ((sum / f64::max(n, 1.0)).exp() - 1.0) * 100.0
}

fn dim(table: &Table) -> Vec<Target> {
    let (published, own) = (mechanism("dim"), ours("dim"));
    let behind = least(table.lines.iter().filter_map(|line| {
        let (theirs, ours) = (line.change_pct(published)?, line.change_pct(own)?);
        (theirs > 0.0).then_some(ours - theirs)
    }));
    let ahead = geometric_pct(changes(table, own)) - geometric_pct(changes(table, published));
    let at_64 = table.lines.iter().filter(|line| line.published.row.contains("qps=64"));
    let moves = most(table.lines.iter().filter_map(|line| extra(line, own, "changes_per_s_cq")));
    vec![
        at_least("dim: guarded-dim at least rdma-dim's gain - 1 point where that gains", behind, -1.0),
        at_least("dim: guarded-dim nowhere below base - 1 %", least(changes(table, own)), -1.0),
        at_least(
            "dim: guarded-dim at 64 QPs >= -0.5 %",
            least(at_64.filter_map(|line| line.change_pct(own))),
            -0.5,
        ),
        at_least("dim: geometric mean >= rdma-dim's + 0.5 points", ahead, 0.5),
        at_most("dim: at most 10 changes a second and queue", moves, 10.0),
    ]
}

fn pool(table: &Table) -> Vec<Target> {
    let (published, own) = (mechanism("cq-pool"), ours("cq-pool"));
    let ratio = |name: &'static str, base: &'static str| {
        most(table.lines.iter().filter_map(|line| Some(extra(line, own, name)? / extra(line, base, name)?)))
    };
    let values = |line: &Line, policy: &str| line.prediction.policies.get(policy).map(|policy| policy.value);
    let kiops =
        least(table.lines.iter().filter_map(|line| Some(values(line, own)? / values(line, published)?)));
    let at_14 = table.lines.iter().find(|line| line.published.row == "cores=14");
    let few = table.lines.iter().filter(|line| {
        line.published
            .row
            .strip_prefix("cores=")
            .and_then(|n| n.parse::<u64>().ok())
            .is_some_and(|n| n < FEW_CORES)
    });
    let mut all = vec![
        at_least("cq-pool: balanced / first-fit in KIOPS >= 1", kiops, 1.0),
        at_least(
            "cq-pool: balanced >= +19 % over private at 14 cores",
            at_14.and_then(|line| line.change_pct(own)).unwrap_or(0.0),
            19.0,
        ),
        at_most("cq-pool: balanced / first-fit in interrupts <= 1", ratio("interrupts_k_s", published), 1.0),
        at_most("cq-pool: balanced / private in p99.99 <= 1", ratio("p9999_us", "private"), 1.0),
    ];
    let moved = most(few.filter_map(|line| line.change_pct(own)).map(f64::abs));
    if moved.is_finite() {
        all.push(at_most("cq-pool: below 14 cores a change of less than 2 %", moved, 2.0));
    }
    all
}

fn spread(table: &Table) -> Vec<Target> {
    let (published, own) = (mechanism("spread"), ours("spread"));
    let line = |test: &str| table.lines.iter().find(|line| line.published.row.ends_with(test));
    let change = |test: &str| line(test).and_then(|line| line.change_pct(own)).unwrap_or(f64::INFINITY);
    let deep = line("randread_qd64_jobs4");
    let value = |policy: &str| {
        deep.and_then(|line| line.prediction.policies.get(policy)).map_or(0.0, |one| one.value)
    };
    let depth_1 = line("randread_qd1")
        .and_then(|line| Some(line.prediction.policies.get(own)?.value - line.prediction.base.value));
    let reordered = most(table.lines.iter().filter_map(|line| extra(line, own, "reordered")));
    vec![
        at_least("spread: depth 64: hybrid / always-schedule >= 1", value(own) / value(published), 1.0),
        at_most("spread: ping-pong 4K: hybrid <= inline + 2 %", change("pingpong_4k"), 2.0),
        at_most("spread: ping-pong 1M: hybrid <= inline + 2 %", change("pingpong_1m"), 2.0),
        at_most("spread: depth 1: hybrid <= inline + 1 us", depth_1.unwrap_or(f64::INFINITY), 1.0),
        at_most("spread: hybrid reorders nothing", reordered, 0.0),
    ]
}

fn rnr(table: &Table) -> Vec<Target> {
    let own = ours("rnr");
    let posts = most(table.lines.iter().filter_map(|line| extra(line, own, "posts_per_io")));
    let naks = most(table.lines.iter().filter_map(|line| extra(line, own, "rnr_naks")));
    vec![
        at_least("rnr: credit-lazy at worst -0.3 %", least(changes(table, own)), -0.3),
        at_most("rnr: at most a post every 12 operations (512 outstanding)", posts * 12.0, 1.0),
        at_most("rnr: no RNR NAK with credit-lazy", naks, 0.0),
    ]
}
