//! `compare [--rounds N] [--gate] [NAME…]`: runs comparisons and prints ratios with their bars.
//!
//! `cargo run --release -p qhca-bench --bin compare -- decode copy`. Without names, all of them. With `--gate` a missed
//! bar makes the exit status 1; a bar that is known to be out of reach says why, and is held at what is reached instead.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use qhca_bench::compare::{ALL, Compare};
use qhca_bench::interleave::MIN_ROUNDS;

/// What the command line asks for.
struct Asked {
    rounds: usize,
    gate: bool,
    comparisons: Vec<Compare>,
}

fn main() -> ExitCode {
    let asked = match parse(std::env::args().skip(1)) {
        Ok(asked) => asked,
        Err(why) => {
            eprintln!("compare: {why}");
            return ExitCode::from(2);
        }
    };
    let mut missed = 0;
    for (_, sections) in asked.comparisons {
        for section in sections(asked.rounds) {
            println!("{section}");
            missed += section.missed().count();
        }
    }
    if missed > 0 {
        println!("{missed} bars missed");
    }
    if asked.gate && missed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Asked, String> {
    let mut asked = Asked { rounds: MIN_ROUNDS, gate: false, comparisons: Vec::new() };
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--gate" => asked.gate = true,
            "--rounds" => {
                let value = arguments.next().unwrap_or_default();
                asked.rounds = value
                    .parse()
                    .ok()
                    .filter(|rounds| (MIN_ROUNDS..=1000).contains(rounds))
                    .ok_or_else(|| format!("--rounds {value:?}: {MIN_ROUNDS} to 1000 are possible"))?;
            }
            name => asked.comparisons.push(find(name)?),
        }
    }
    if asked.comparisons.is_empty() {
        asked.comparisons = ALL.to_vec();
    }
    Ok(asked)
}

fn find(name: &str) -> Result<Compare, String> {
    let names = ALL.map(|(name, _)| name).join(", ");
    ALL.into_iter()
        .find(|(known, _)| *known == name)
        .ok_or_else(|| format!("no comparison is called {name:?}: there are {names}"))
}
