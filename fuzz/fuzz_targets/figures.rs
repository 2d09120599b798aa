//! The figures of an experiment, from its file, `--set` and `--sweep`: what is taken lies in its range, a sweep has both
//! its ends, what is refused says what would be right.
//!
//! Input: one byte that says which, then the text; files and settings both work on what came before.

#![no_main]

use libfuzzer_sys::fuzz_target;
use qhca_fuzz::Bytes;
use qhca_lab::params::Parameters;
use qhca_lab::storm::{Costs, parameters};

fuzz_target!(|input: &[u8]| {
    let mut bytes = Bytes::new(input);
    let which = bytes.u8() % 3;
    let text = String::from_utf8_lossy(bytes.rest());
    match which {
        0 => set(&text),
        1 => sweep(&text),
        _ => file(&text),
    }
});

/// Every line a setting.
fn set(text: &str) {
    let mut figures = parameters();
    for line in text.lines() {
        let before = figures.clone();
        match figures.set_from_text(line) {
            Ok(()) => {
                let name = line.split('=').next().unwrap_or_default().trim();
                let given = line.split_once('=').and_then(|(_, value)| value.trim().parse().ok());
                assert_eq!(figures.value(name).ok(), given, "{line:?}");
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                assert_eq!(figures, before, "a refused setting changes nothing");
            }
        }
    }
    in_range(&figures);
    assert!(Costs::from_parameters(&figures).is_ok());
}

fn sweep(text: &str) {
    let figures = parameters();
    let Ok(sweep) = figures.sweep(text) else { return };
    let (low, high) = text.split_once('=').and_then(|(_, range)| range.split_once("..")).expect("a range");
    let ends: [Option<f64>; 2] = [low, high].map(|end| end.trim().parse().ok());
    assert_eq!([sweep.values.first().copied(), sweep.values.last().copied()], ends, "{text:?}");
    assert!(sweep.values.is_sorted() && sweep.values.len() > 1);
    for value in sweep.values {
        let mut figures = figures.clone();
        figures.set(&sweep.name, value).expect("a value between two that are in range");
        assert!(Costs::from_parameters(&figures).is_ok());
    }
}

fn file(text: &str) {
    match Parameters::from_toml(text) {
        Ok(figures) => {
            in_range(&figures);
            // Another file may lack a figure of the storm, which is told and no panic.
            let _ = Costs::from_parameters(&figures);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn in_range(figures: &Parameters) {
    for figure in figures.figures() {
        assert!((figure.low..=figure.high).contains(&figure.value), "{}", figure.name);
    }
}
