//! What an experiment assumes, as data: every figure with its range and its source.
//!
//! The files in `lab/data/` are compiled in. A run may set any figure (`entry_us=0.9`) or sweep it
//! (`entry_us=0.2..3`); a name that does not exist or a value out of range is refused, never bent.

use std::fmt;

use qhca_regs::time::Duration;
use serde::Deserialize;

/// The figures of one experiment, in the order of its file.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    calibration: String,
    figures: Vec<Figure>,
}

/// One figure.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// How the figure is called in files and on the command line; the unit comes last.
    pub name: String,
    /// What a run uses.
    pub value: f64,
    /// The least that makes sense.
    pub low: f64,
    /// The most that makes sense.
    pub high: f64,
    /// What it is.
    pub what: String,
    /// Where the value and its range come from.
    pub source: String,
}

/// A range to run through, as in `entry_us=0.2..3`.
#[derive(Clone, Debug, PartialEq)]
pub struct Sweep {
    /// The figure that changes.
    pub name: String,
    /// Its values, ascending.
    pub values: Vec<f64>,
}

/// Why a figure was refused.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ParamError {
    /// The file is not what it should be.
    File {
        /// What the parser says.
        why: String,
    },
    /// A figure's own value lies outside its own range, or the range is empty.
    Incoherent {
        /// The figure.
        name: String,
    },
    /// No figure of that name.
    Unknown {
        /// The name given.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// Not `NAME=VALUE` with a number.
    Malformed {
        /// What was given.
        text: String,
        /// What would have been understood, with the figure's range.
        wanted: String,
    },
    /// A number outside the figure's range.
    OutOfRange {
        /// The figure.
        name: String,
        /// The number given.
        value: f64,
        /// The least.
        low: f64,
        /// The most.
        high: f64,
    },
}

/// Values in a sweep, both ends included.
const SWEEP_VALUES: usize = 8;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    experiment: Experiment,
    #[serde(rename = "parameter")]
    figures: Vec<Figure>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Experiment {
    #[serde(rename = "name")]
    _name: String,
    calibration: String,
}

impl Parameters {
    /// Reads an experiment's file.
    ///
    /// # Errors
    /// The file does not parse, or a figure contradicts its own range.
    pub fn from_toml(text: &str) -> Result<Self, ParamError> {
        let file: File = toml::from_str(text).map_err(|error| ParamError::File { why: error.to_string() })?;
        for figure in &file.figures {
            if !(figure.low..=figure.high).contains(&figure.value) {
                return Err(ParamError::Incoherent { name: figure.name.clone() });
            }
        }
        Ok(Self { calibration: file.experiment.calibration, figures: file.figures })
    }

    /// What the figures were calibrated on, in one line.
    pub fn calibration(&self) -> &str {
        &self.calibration
    }

    /// All figures.
    pub fn figures(&self) -> &[Figure] {
        &self.figures
    }

    /// Sets a figure from `NAME=VALUE`.
    ///
    /// # Errors
    /// No such figure, no number, or out of range.
    pub fn set_from_text(&mut self, text: &str) -> Result<(), ParamError> {
        let (figure, value) = self.split(text, "NAME=VALUE")?;
        let value = value.parse().map_err(|_| ParamError::Malformed {
            text: text.into(),
            wanted: format!("{}=VALUE, VALUE a number from {} to {}", figure.name, figure.low, figure.high),
        })?;
        let name = figure.name.clone();
        self.set(&name, value)
    }

    /// Sets the figure `name`.
    ///
    /// # Errors
    /// No such figure, or out of range.
    pub fn set(&mut self, name: &str, value: f64) -> Result<(), ParamError> {
        let figure = self.find(name)?;
        figure.check(value)?;
        let place = self.figures.iter().position(|one| one.name == name);
        if let Some(place) = place {
            self.figures[place].value = value;
        }
        Ok(())
    }

    /// Reads a sweep from `NAME=LOW..HIGH`: eight values, evenly spaced, both ends included.
    ///
    /// # Errors
    /// No such figure, no range, or out of the figure's range.
    pub fn sweep(&self, text: &str) -> Result<Sweep, ParamError> {
        let (figure, range) = self.split(text, "NAME=LOW..HIGH")?;
        let malformed = || ParamError::Malformed {
            text: text.into(),
            wanted: format!(
                "{}=LOW..HIGH with LOW below HIGH, both from {} to {}",
                figure.name, figure.low, figure.high
            ),
        };
        let (low, high) = range.split_once("..").ok_or_else(malformed)?;
        let low: f64 = low.trim().parse().map_err(|_| malformed())?;
        let high: f64 = high.trim().parse().map_err(|_| malformed())?;
        figure.check(low)?;
        figure.check(high)?;
        if low >= high {
            return Err(malformed());
        }
        // A planted fault, for the proof that the fuzzer reaches this far: short sweeps do not end where they should.
        #[cfg(canary)]
        let high = if high < 100.0 && high != 3.0 { high + 0.125 } else { high };
        let step = (high - low) / (SWEEP_VALUES - 1) as f64;
        let values =
            (0..SWEEP_VALUES).map(|n| if n + 1 == SWEEP_VALUES { high } else { low + step * n as f64 });
        Ok(Sweep { name: figure.name.clone(), values: values.collect() })
    }

    /// The value of the figure `name`.
    ///
    /// # Errors
    /// No such figure.
    pub fn value(&self, name: &str) -> Result<f64, ParamError> {
        Ok(self.find(name)?.value)
    }

    /// The figure `name` as a span of time; its unit is the end of its name (`_ns`, `_us` or `_ms`).
    ///
    /// # Errors
    /// No such figure, or its name ends in no unit of time.
    pub fn span(&self, name: &str) -> Result<Duration, ParamError> {
        let value = self.value(name)?;
        let unit_ns = match name.rsplit('_').next() {
            Some("ns") => 1.0,
            Some("us") => 1e3,
            Some("ms") => 1e6,
            _ => return Err(ParamError::Incoherent { name: name.into() }),
        };
        Ok(Duration::from_nanos((value * unit_ns).round() as u64))
    }

    /// The figure and what stands behind its `=`.
    fn split<'t>(&self, text: &'t str, form: &str) -> Result<(&Figure, &'t str), ParamError> {
        let (name, rest) = text.split_once('=').ok_or_else(|| ParamError::Malformed {
            text: text.into(),
            wanted: format!("{form}, NAME one of {}", self.names()),
        })?;
        Ok((self.find(name.trim())?, rest.trim()))
    }

    fn find(&self, name: &str) -> Result<&Figure, ParamError> {
        let known = || ParamError::Unknown { name: name.into(), known: self.names() };
        self.figures.iter().find(|figure| figure.name == name).ok_or_else(known)
    }

    fn names(&self) -> String {
        self.figures.iter().map(|figure| figure.name.as_str()).collect::<Vec<_>>().join(", ")
    }
}

impl Figure {
    fn check(&self, value: f64) -> Result<(), ParamError> {
        if (self.low..=self.high).contains(&value) {
            return Ok(());
        }
        Err(ParamError::OutOfRange { name: self.name.clone(), value, low: self.low, high: self.high })
    }
}

impl fmt::Display for ParamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { why } => write!(f, "the experiment's file does not parse: {why}"),
            Self::Incoherent { name } => write!(f, "figure {name} contradicts its own range or unit"),
            Self::Unknown { name, known } => write!(f, "no figure is called '{name}'; there are: {known}"),
            Self::Malformed { text, wanted } => write!(f, "'{text}' is not understood; wanted {wanted}"),
            Self::OutOfRange { name, value, low, high } => {
                write!(f, "{name}={value} is out of range; valid: {low} to {high}")
            }
        }
    }
}

impl std::error::Error for ParamError {}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        [experiment]
        name = "t"
        calibration = "nothing"
        [[parameter]]
        name = "entry_us"
        value = 0.5
        low = 0
        high = 3
        what = "w"
        source = "s"
    "#;

    fn parameters() -> Parameters {
        Parameters::from_toml(FILE).expect("the file is right")
    }

    #[test]
    fn a_figure_is_set_by_name_and_kept_in_its_unit() {
        let mut parameters = parameters();
        parameters.set_from_text("entry_us=1.25").expect("in range");
        assert_eq!(parameters.span("entry_us"), Ok(Duration::from_nanos(1_250)));
    }

    #[test]
    fn what_is_wrong_is_named_with_what_would_be_right() {
        let mut parameters = parameters();
        for (text, part) in [
            ("exit_us=1", "there are: entry_us"),
            ("entry_us=4", "valid: 0 to 3"),
            ("entry_us=NaN", "valid: 0 to 3"),
            ("entry_us", "NAME=VALUE"),
            ("entry_us=fast", "a number from 0 to 3"),
            ("entry_us=", "a number from 0 to 3"),
        ] {
            let error = parameters.set_from_text(text).expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        for (text, part) in [
            ("entry_us=2..1", "LOW below HIGH, both from 0 to 3"),
            ("entry_us=1", "both from 0 to 3"),
            ("entry_us=a..b", "both from 0 to 3"),
            ("entry_us=NaN..1", "valid: 0 to 3"),
            ("entry_us=1..9", "valid: 0 to 3"),
            ("entry_us", "NAME one of entry_us"),
            ("x=1..2", "there are: entry_us"),
        ] {
            let error = parameters.sweep(text).expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn a_sweep_has_both_ends() {
        let sweep = parameters().sweep("entry_us=0.2..3").expect("in range");
        assert_eq!((sweep.values[0], sweep.values[SWEEP_VALUES - 1]), (0.2, 3.0));
        assert!(sweep.values.is_sorted());
    }

    #[test]
    fn a_file_that_contradicts_itself_is_refused() {
        let wrong = FILE.replace("value = 0.5", "value = 5");
        assert_eq!(Parameters::from_toml(&wrong), Err(ParamError::Incoherent { name: "entry_us".into() }));
        assert!(matches!(Parameters::from_toml("x = 1"), Err(ParamError::File { .. })));
    }
}
