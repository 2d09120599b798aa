//! Predictions: their shape, their repeatability, what they promise of our policies, and ablations that must fail.

use qhca_lab::predict::{Prediction, Question, SYSTEMS, Trial};
use qhca_lab::published::{cells, mechanism, ours};
use qhca_lab::report::{Line, Table, targets};

/// A question with short runs: long enough for what is asked of it here.
fn ask(system: &str, row: &str, set: &[&str], ablation: Option<&str>, policies: &[&str]) -> Prediction {
    let set: Vec<String> = set.iter().map(|&text| text.to_owned()).collect();
    let policies: Vec<String> = policies.iter().map(|&text| text.to_owned()).collect();
    let question = Question { system, row, set: &set, ablation, policies: &policies };
    let cell = question.cell().unwrap_or_else(|error| panic!("{system} {row}: {error}"));
    let trial = Trial::run(&cell, 1).unwrap_or_else(|error| panic!("{system} {row}: {error}"));
    Prediction::of(&cell, &[trial])
}

fn short(system: &str) -> &'static [&'static str] {
    match system {
        "rnr" | "spread" => &["settle_ms=5", "measure_ms=60"],
        _ => &["settle_ms=5", "measure_ms=20"],
    }
}

const A_ROW: [(&str, &str); 4] = [
    ("dim", "ack=256 req=8448 qps=8 threads=4 depth=4"),
    ("cq-pool", "cores=14"),
    ("spread", "test=randread_qd1"),
    ("rnr", "block=4K op=read"),
];

#[test]
fn every_system_answers_in_the_shape_that_was_agreed() {
    for (system, row) in A_ROW {
        let json = serde_json::to_value(ask(system, row, short(system), None, &[])).expect("it has a form");
        assert_eq!(json["system"], system);
        assert_eq!(json["seeds"], 1);
        assert!(json["row"].is_object() && json["extra"]["trace"].is_string(), "{json}");
        assert!(json["base"]["value"].is_f64() && json["base"]["unit"].is_string(), "{json}");
        for policy in [mechanism(system), ours(system)] {
            let one = &json["policies"][policy];
            assert!(one["value"].is_f64() && one["change_pct"].is_f64(), "{policy}: {json}");
            assert!(one["ci95_pct"].is_null(), "one seed has no interval: {json}");
        }
        if system == "cq-pool" {
            assert!(json["base"]["interrupts_k_s"].is_f64() && json["base"]["p9999_us"].is_f64(), "{json}");
        }
    }
}

#[test]
fn one_seed_gives_the_same_bytes_and_another_one_others() {
    for (system, row) in A_ROW {
        let set: Vec<String> = short(system).iter().map(|&text| text.to_owned()).collect();
        let question = Question { system, row, set: &set, ..Question::default() };
        let cell = question.cell().expect("known");
        let run = |seed| Trial::run(&cell, seed).expect("runs");
        assert_eq!(run(7), run(7), "{system}");
        assert_ne!(run(7).samples[0].trace, run(8).samples[0].trace, "{system}");
    }
}

#[test]
fn what_is_not_understood_is_refused_with_what_would_be() {
    let refused = |system, row, ablation, part: &str| {
        let question = Question { system, row, ablation, ..Question::default() };
        let error = question.cell().expect_err(row).to_string();
        assert!(error.contains(part), "{error}");
    };
    refused("storm2", "", None, "dim, cq-pool, spread, rnr");
    refused("dim", "qps=0 threads=1", None, "valid: 1 to 1024");
    refused("dim", "qps=8", None, "lacks threads=");
    refused("dim", "qps=8 threads=1 colour=red", None, "it has: ack, req, qps, threads, depth");
    refused("dim", "qps=1024 threads=256 depth=64", None, "out of range");
    refused("cq-pool", "cores=0", None, "valid: 1 to 256");
    refused("spread", "test=fast", None, "pingpong_4k");
    refused("rnr", "block=99M op=read", None, "out of range");
    refused("rnr", "block=4K op=erase", None, "read, write");
    refused("dim", "qps=8 threads=1", Some("nothing"), "fifo, regular");
}

/// Trap 23: with the cores alone, more cores give more; the published fall comes from the shared device.
#[test]
fn without_the_device_more_cores_are_faster_which_is_not_what_was_published() {
    let kiops = |row, ablation| {
        ask("cq-pool", row, &["settle_ms=5", "measure_ms=15"], ablation, &["balanced"]).base.value
    };
    assert!(kiops("cores=28", None) < kiops("cores=14", None), "the device slows down with queue pairs");
    assert!(kiops("cores=28", Some("cpu-only")) > 1.5 * kiops("cores=14", Some("cpu-only")));
}

/// Trap 23: perfectly regular arrivals leave the published climb where it starts.
#[test]
fn regular_arrivals_show_no_effect_of_the_climb() {
    let row = "req=8448 qps=64 threads=1";
    let got = ask("dim", row, &["settle_ms=5", "measure_ms=20"], Some("regular"), &["rdma-dim"]);
    let climb = &got.policies["rdma-dim"];
    assert!(climb.extra["changes_per_s_cq"] < 1.0 && climb.change_pct.abs() < 0.5, "{climb:?}");
}

#[test]
fn our_replenishment_posts_rarely_and_is_never_caught_without_a_buffer() {
    // Stalls of 0.1 to 20 ms, forty a second, and everything under way comes at once.
    let stalls = ["stalls_per_s=40", "settle_ms=5", "measure_ms=400"];
    for row in ["block=512 op=read", "block=64K op=write", "block=512 op=write outstanding=64"] {
        let got = ask("rnr", row, &stalls, None, &[]);
        let lazy = &got.policies["credit-lazy"].extra;
        assert_eq!(lazy["rnr_naks"], 0.0, "{row}");
        let most = if row.contains("outstanding=64") { 1.0 / 8.0 } else { 1.0 / 12.0 };
        assert!(lazy["posts_per_io"] <= most, "{row}: {} posts an operation", lazy["posts_per_io"]);
    }
    let hole = ask("rnr", "block=512 op=read", &stalls, None, &["credit-lazy"]);
    assert!(hole.base.extra["rnr_naks"] > 0.0, "the published policy is caught");
}

#[test]
fn one_operation_at_a_time_takes_no_longer_with_our_replenishment() {
    let got = ask("rnr", "block=4K op=read outstanding=1", short("rnr"), None, &[]);
    let lazy = got.policies["credit-lazy"].extra["latency_us"];
    assert!(lazy <= got.base.extra["latency_us"] + 0.2, "{lazy} µs");
}

#[test]
fn the_targets_of_spreading_and_replenishing_are_met() {
    for system in ["spread", "rnr"] {
        let given = cells().expect("the file parses").into_iter().filter(|cell| cell.system == system);
        let lines = given
            .map(|published| Line {
                prediction: ask(system, &published.row, short(system), None, &[]),
                published,
            })
            .collect();
        let table = Table { system: SYSTEMS[if system == "spread" { 2 } else { 3 }], lines };
        for target in targets(&table) {
            // The base of some blocks is missed, and docs/lab.md says so.
            let listed = target.target.contains("base cells") && system == "rnr";
            assert!(target.met || listed, "{target:?}");
        }
    }
}

#[test]
fn sharing_a_queue_saves_interrupts_and_never_lengthens_the_tail() {
    for row in ["cores=8", "cores=14", "cores=28"] {
        let got = ask("cq-pool", row, &["settle_ms=10", "measure_ms=25"], None, &[]);
        let (first_fit, balanced) = (&got.policies["first-fit"], &got.policies["balanced"]);
        assert!(balanced.value >= first_fit.value * 0.995, "{row}: {balanced:?} against {first_fit:?}");
        assert!(balanced.extra["interrupts_k_s"] <= first_fit.extra["interrupts_k_s"] * 1.02, "{row}");
        assert!(balanced.extra["p9999_us"] <= got.base.extra["p9999_us"] * 1.02, "{row}");
        match row {
            "cores=8" => assert!(balanced.change_pct.abs() < 2.0, "{balanced:?}"),
            _ => assert!(balanced.change_pct > 8.0, "{row}: {balanced:?}"),
        }
    }
}
