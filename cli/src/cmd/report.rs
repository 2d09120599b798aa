//! `qhca report`: one archive with all that the other commands say, to go with a report of a fault.
//!
//! Each part is what this program prints when it is run for it, with its exit code and what it said beside: a part that
//! fails, or takes too long, is told as such and hinders no other. With `--mask-guids` the GUIDs and serial numbers of
//! the device and its cables are replaced by words, everywhere and by the same word each time.

use crate::args::DeviceArg;
use crate::fail::{Failure, Status};
use crate::ui::Ui;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Arguments of `qhca report`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    device: DeviceArg,
    /// The archive
    #[arg(short, long, value_name = "FILE", default_value = "qhca-report.tar.gz")]
    output: PathBuf,
    /// Replace GUIDs and serial numbers by words
    #[arg(long)]
    mask_guids: bool,
    /// Do not open the device: report on the machine alone
    #[arg(long)]
    no_open: bool,
}

/// How long a part may take.
///
/// TIMEOUT: ours; a bring-up takes seconds, and a report must end.
const PART_WITHIN: Duration = Duration::from_secs(60);
/// Most bytes of a part.
const PART_BYTES: u64 = 16 << 20;
/// Most lines of the kernel's log.
const LOG_LINES: usize = 2000;
/// Words by which lines of the kernel's log are chosen.
const LOG_WORDS: [&str; 8] = ["vfio", "iommu", "dmar", "amd-vi", "1077:7322", "ib_qib", "pcieport", "aer:"];

/// One file of the archive.
struct Part {
    name: &'static str,
    text: String,
}

/// Runs `qhca report`.
pub(crate) fn run(args: &Args, ui: &Ui) -> Result<Status, Failure> {
    if args.output.as_os_str().is_empty() {
        return Err(Failure::bad_input("--output: no name of a file")
            .remedy("valid: a path, e.g. qhca-report.tar.gz"));
    }
    let mut parts = vec![Part { name: "versions.txt", text: versions() }];
    for (name, words) in commands(args) {
        ui.progress(&format!("qhca {}", words.join(" ")));
        parts.push(Part { name, text: said_by_this_program(&words) });
    }
    parts.push(Part { name: "kernel-log.txt", text: kernel_log() });
    if args.mask_guids {
        let secrets = secrets(&parts);
        parts.iter_mut().for_each(|part| part.text = masked(&part.text, &secrets));
    }
    let wrote = write_archive(args, &parts);
    wrote.map_err(|error| {
        Failure::new(Status::Output, format!("{}: {error}", args.output.display()))
            .remedy("give another place with --output FILE")
    })?;
    match ui.json {
        true => ui.json(&serde_json::json!({
            "file": args.output.display().to_string(),
            "parts": parts.iter().map(|part| part.name).collect::<Vec<_>>(),
            "masked": args.mask_guids,
        }))?,
        false => ui.line(&format!("{}: {} parts", args.output.display(), parts.len()))?,
    }
    Ok(Status::Done)
}

/// The parts that are commands of this program.
fn commands(args: &Args) -> Vec<(&'static str, Vec<&str>)> {
    let device = args.device.device.as_str();
    let mut commands = vec![("list.json", vec!["list", "--json"]), ("list.txt", vec!["list"])];
    if args.no_open {
        commands.push(("doctor.txt", vec!["doctor", "--no-open"]));
        return commands;
    }
    commands.extend([
        ("doctor.txt", vec!["doctor", "-d", device]),
        ("info.json", vec!["info", "-d", device, "--json"]),
        ("cables.json", vec!["info", "--cables", "-d", device, "--json"]),
        ("regs.txt", vec!["regs", "--all", "-d", device]),
        ("counters.json", vec!["counters", "-d", device, "--json"]),
        ("events.json", vec!["events", "-d", device, "--json"]),
    ]);
    commands
}

fn versions() -> String {
    let read =
        |path: &str| std::fs::read_to_string(path).unwrap_or_else(|error| format!("{path}: {error}\n"));
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    format!(
        "qhca {}\nseconds since 1970: {seconds}\n{}{}{}",
        env!("CARGO_PKG_VERSION"),
        read("/proc/version"),
        read("/proc/cmdline"),
        read("/etc/os-release")
    )
}

/// Runs this program with `words`; what it printed, then what it said beside and its exit code.
fn said_by_this_program(words: &[&str]) -> String {
    match std::env::current_exe().and_then(|program| output_of(Command::new(program).args(words))) {
        Ok((printed, beside)) => format!("{printed}\n--- {beside}"),
        Err(error) => format!("--- it could not be run: {error}\n"),
    }
}

/// Runs a command to its end, or to the end of its time.
fn output_of(command: &mut Command) -> io::Result<(String, String)> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (printed, beside) = (reading(child.stdout.take()), reading(child.stderr.take()));
    let end = end_of(&mut child)?;
    let text = |reader: JoinHandle<String>| reader.join().unwrap_or_default();
    Ok((text(printed), format!("{end}\n{}", text(beside))))
}

/// Reads a pipe on a thread of its own, so that neither of two fills up.
fn reading(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What was read before an error is as good as ever.
            let _ = pipe.by_ref().take(PART_BYTES).read_to_end(&mut bytes);
            // The rest is thrown away, so that the writer can end.
            let _ = io::copy(&mut pipe, &mut io::sink());
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn end_of(child: &mut Child) -> io::Result<String> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.to_string());
        }
        if start.elapsed() > PART_WITHIN {
            child.kill()?;
            child.wait()?;
            return Ok(format!("ended, having taken more than {} s", PART_WITHIN.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The lines of the kernel's log that may have to do with a card, if this user may read it.
fn kernel_log() -> String {
    match output_of(&mut Command::new("dmesg")) {
        Ok((log, _)) if !log.is_empty() => {
            let ours = |line: &&str| {
                let line = line.to_ascii_lowercase();
                LOG_WORDS.iter().any(|word| line.contains(word))
            };
            let lines: Vec<&str> = log.lines().filter(ours).collect();
            lines[lines.len().saturating_sub(LOG_LINES)..].join("\n") + "\n"
        }
        Ok((_, beside)) => format!("--- the kernel's log could not be read: {beside}"),
        Err(error) => format!("--- the kernel's log could not be read: {error}\n"),
    }
}

/// GUIDs and serial numbers that the parts name, each with its word.
fn secrets(parts: &[Part]) -> Vec<(String, String)> {
    let (mut guids, mut serials) = (Vec::new(), Vec::new());
    for value in
        parts.iter().flat_map(|part| part.text.lines()).filter_map(|line| serde_json::from_str(line).ok())
    {
        collect(&value, &mut guids, &mut serials);
    }
    for list in [&mut guids, &mut serials] {
        list.sort();
        list.dedup();
    }
    let mut secrets = Vec::new();
    for (n, guid) in guids.iter().enumerate() {
        let word = format!("GUID{}", n + 1);
        let parts: Vec<&str> = [0, 4, 8, 12].iter().filter_map(|at| guid.get(*at..at + 4)).collect();
        secrets.push((guid.clone(), word.clone()));
        secrets.push((parts.join(":"), word.clone()));
        // As a number, without its leading zeros.
        secrets.push((guid.trim_start_matches('0').to_owned(), word));
    }
    secrets.extend(serials.into_iter().enumerate().map(|(n, serial)| (serial, format!("SERIAL{}", n + 1))));
    // The longest first: one may be part of another.
    secrets.sort_by_key(|(secret, _)| std::cmp::Reverse(secret.len()));
    secrets
}

/// Shortest text that is taken for a secret: less would blot out half of the report.
const SECRET_CHARS: usize = 6;

fn collect(value: &Value, guids: &mut Vec<String>, serials: &mut Vec<String>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| collect(value, guids, serials)),
        Value::Object(members) => {
            for (name, value) in members {
                match value.as_str() {
                    Some(text) if name.ends_with("guid") => {
                        let digits = text.trim_start_matches("0x").to_ascii_lowercase();
                        guids.extend(
                            Some(digits).filter(|digits| digits.trim_matches('0').len() >= SECRET_CHARS),
                        );
                    }
                    Some(text) if name == "serial" && text.len() >= SECRET_CHARS => {
                        serials.push(text.to_owned())
                    }
                    _ => collect(value, guids, serials),
                }
            }
        }
        _ => {}
    }
}

fn masked(text: &str, secrets: &[(String, String)]) -> String {
    secrets.iter().fold(text.to_owned(), |text, (secret, word)| text.replace(secret, word))
}

fn write_archive(args: &Args, parts: &[Part]) -> io::Result<()> {
    let mut archive = tar::Builder::new(GzEncoder::new(File::create(&args.output)?, Compression::default()));
    for part in parts {
        let mut header = tar::Header::new_ustar();
        header.set_size(part.text.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, format!("qhca-report/{}", part.name), part.text.as_bytes())?;
    }
    archive.into_inner()?.finish()?.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guids_and_serials_are_masked_in_every_form_and_by_one_word_each() {
        let info = r#"{"node_guid": "0x0011750000700001", "ports": [{"port_guid": "0x0011750000700002"}]}"#;
        let cable = r#"{"serial": "APF1234567", "vendor": "x"}"#;
        let part = |text: &str| Part { name: "x", text: text.to_owned() };
        let secrets = secrets(&[part(info), part(cable), part("no JSON 0011750000700003")]);
        let text = masked(
            "0x0011750000700001 0011:7500:0070:0001 0x11750000700002 APF1234567 0x0011750000700003",
            &secrets,
        );
        assert_eq!(text, "0xGUID1 GUID1 0xGUID2 SERIAL1 0x0011750000700003");
    }

    #[test]
    fn blank_guid_is_no_secret() {
        let part =
            Part { name: "x", text: r#"{"node_guid": "0x0000000000000000", "serial": "1"}"#.to_owned() };
        assert!(secrets(&[part]).is_empty());
    }
}
