//! `qhca options`: the options of ib_qib, and what each does here; or the check of a modprobe.d file that uses them.

use crate::fail::{Failure, Status};
use crate::ui::Ui;
use qhca_driver::options::{OptionInfo, Options, Parsed, modprobe, table};
use serde::Serialize;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Arguments of `qhca options`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Show these options only, with their meaning
    #[arg(value_name = "NAME", conflicts_with = "check")]
    names: Vec<String>,
    /// Read the `options ib_qib` lines of a modprobe.d file, and say what they amount to here
    #[arg(long, value_name = "FILE")]
    check: Option<PathBuf>,
}

/// Runs `qhca options`.
pub(crate) fn run(args: &Args, ui: &Ui) -> Result<Status, Failure> {
    match &args.check {
        Some(path) => check(path, ui),
        None => list(&args.names, ui),
    }
}

#[derive(Serialize)]
struct JsonOption {
    name: &'static str,
    default: &'static str,
    range: String,
    meaning: &'static str,
    effect_here: &'static str,
    works_here: bool,
}

fn list(names: &[String], ui: &Ui) -> Result<Status, Failure> {
    let infos = match names.is_empty() {
        true => table::all().collect(),
        false => names.iter().map(|name| find(name)).collect::<Result<Vec<_>, _>>()?,
    };
    match ui.json {
        true => ui.json(&infos.iter().map(|info| to_json(info)).collect::<Vec<_>>())?,
        false => ui.text(&to_text(&infos))?,
    }
    Ok(Status::Done)
}

fn find(name: &str) -> Result<&'static OptionInfo, Failure> {
    table::all().find(|info| info.name == name).ok_or_else(|| {
        let names: Vec<&str> = table::all().map(|info| info.name).collect();
        Failure::bad_input(format!("{name:?} is no option of ib_qib"))
            .remedy(format!("valid: {}", names.join(", ")))
    })
}

fn to_json(info: &OptionInfo) -> JsonOption {
    JsonOption {
        name: info.name,
        default: info.default,
        range: info.range.to_string(),
        meaning: info.meaning,
        effect_here: info.effect_here.text(),
        works_here: info.effect_here.works(),
    }
}

fn to_text(infos: &[&OptionInfo]) -> String {
    let mut text = String::new();
    for info in infos {
        let mark = if info.effect_here.works() { "works here" } else { "no effect" };
        let _ = writeln!(text, "{}={}   ({})", info.name, info.default, info.range);
        let _ = writeln!(text, "    {}", info.meaning);
        let _ = writeln!(text, "    {mark}: {}", info.effect_here.text());
    }
    text
}

#[derive(Serialize)]
struct JsonCheck {
    file: String,
    settings: Vec<JsonSetting>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct JsonSetting {
    name: &'static str,
    value: String,
    default: String,
}

fn check(path: &Path, ui: &Ui) -> Result<Status, Failure> {
    let parsed = read_modprobe_file(path)?;
    match ui.json {
        true => ui.json(&check_json(path, &parsed))?,
        false => ui.text(&check_text(path, &parsed))?,
    }
    Ok(Status::Done)
}

/// Reads a modprobe.d file; an error names the file, the line, the option, its value and the valid range.
pub(crate) fn read_modprobe_file(path: &Path) -> Result<Parsed, Failure> {
    let shown = path.display();
    let limit = modprobe::MAX_FILE_BYTES as u64 + 1;
    let bytes = read_at_most(path, limit).map_err(|e| {
        Failure::bad_input(format!("{shown}: {e}"))
            .remedy("valid: a readable modprobe.d file such as /etc/modprobe.d/ib_qib.conf")
    })?;
    modprobe::parse_file(&bytes).map_err(|e| {
        Failure::bad_input(format!("{shown}: {e}")).remedy("`qhca options` lists names, defaults and ranges")
    })
}

fn read_at_most(path: &Path, limit_bytes: u64) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(limit_bytes).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The settings that differ from the defaults.
fn settings(parsed: &Parsed) -> Vec<JsonSetting> {
    let defaults = Options::default();
    table::all()
        .filter_map(|info| {
            let value = parsed.options.value_text(info.name)?;
            let default = defaults.value_text(info.name)?;
            (value != default).then_some(JsonSetting { name: info.name, value, default })
        })
        .collect()
}

/// The settings that differ from the defaults, each with what it does here.
pub(crate) fn settings_in_words(parsed: &Parsed) -> Vec<String> {
    let told = settings(parsed).into_iter().map(|JsonSetting { name, value, .. }| {
        let effect = table::all().find(|info| info.name == name).map_or("", |info| info.effect_here.text());
        match name {
            // F-824.
            "pcie_caps" => format!(
                "{name}={:#x}: {effect}; under VFIO the kernel keeps the payload's half (bits 2:0) to itself and takes \
                 the read request's (bits 6:4)",
                parsed.options.pcie_caps
            ),
            _ => format!("{name}={value}: {effect}"),
        }
    });
    told.collect()
}

fn check_json(path: &Path, parsed: &Parsed) -> JsonCheck {
    JsonCheck {
        file: path.display().to_string(),
        settings: settings(parsed),
        warnings: parsed.warnings.iter().map(ToString::to_string).collect(),
    }
}

fn check_text(path: &Path, parsed: &Parsed) -> String {
    let settings = settings(parsed);
    let mut text = String::new();
    let changed = match settings.len() {
        0 => "no option differs from its default".to_owned(),
        1 => "1 option differs from its default".to_owned(),
        n => format!("{n} options differ from their defaults"),
    };
    let _ = writeln!(text, "{}: {changed}", path.display());
    for JsonSetting { name, value, default } in &settings {
        let _ = writeln!(text, "  {name}={value}   (default {default})");
    }
    for warning in &parsed.warnings {
        let _ = writeln!(text, "  warning: {warning}");
    }
    text
}
