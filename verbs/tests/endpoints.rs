//! Two endpoints, a bad cable, many seeds: `QHCA_SCENARIOS=100000 cargo test --release -p qhca-verbs --test endpoints`.
//!
//! A failing seed prints its number; `QHCA_SEED=that-number` with the same command plays it alone.

use qhca_verbs::harness::{Fault, Op, Table, World, run};

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Plays `count` scenarios on as many threads as there are processors.
fn play(count: u64) -> Result<Table, String> {
    let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get) as u64;
    let one = |thread: u64| -> Result<Table, String> {
        let mut world = World::new().map_err(|error| error.to_string())?;
        for seed in (thread..count).step_by(threads as usize) {
            world.play(seed).map_err(|violation| violation.to_string())?;
        }
        Ok(world.table)
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || one(thread))).collect();
        let mut table = Table::default();
        for thread in running {
            table.merge(&thread.join().map_err(|_| "a thread panicked".to_owned())??);
        }
        Ok(table)
    })
}

#[test]
fn many_scenarios_break_no_rule() {
    if let Some(seed) = setting("QHCA_SEED") {
        println!("{:?}", run(seed).unwrap_or_else(|violation| panic!("{violation}")));
        return;
    }
    let count = setting("QHCA_SCENARIOS").unwrap_or(10_000);
    let table = play(count).unwrap_or_else(|violation| panic!("{violation}"));
    println!("{table}");
    assert_eq!(table.scenarios, count);
    for op in Op::ALL {
        for fault in Fault::ALL {
            let seen = table.seen(op, fault, qhca_verbs::WcStatus::Success);
            assert!(seen >= 100, "{op} under {fault} succeeded {seen} times only");
        }
    }
}

#[test]
fn same_seed_plays_the_same_scenario_event_for_event() {
    for seed in 0..50 {
        let (first, second) = (run(seed), run(seed));
        assert_eq!(first, second, "seed {seed}");
    }
}
