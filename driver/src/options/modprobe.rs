//! Options from a modprobe.d file, as owners of the card have kept them.
//!
//! ```text
//! # /etc/modprobe.d/ib_qib.conf
//! options ib_qib krcvqs=1 singleport=1 \
//!         rcvhdrcnt=4096
//! options mlx4_core log_num_mtt=24          <- another module: ignored
//! ```
//!
//! A line is a command and its words; `#` at its start makes it a comment; a backslash at its end joins the next
//! one. Only `options ib_qib` is read, wherever it stands and however often; later settings win. Other commands
//! (`alias`, `install`, `softdep` …) are not ours to judge.

use super::{MAX_LIST_BYTES, OptionError, Parsed, Warning};

/// Largest file that is read, bytes.
pub const MAX_FILE_BYTES: usize = 1024 * 1024;

/// Reads the options of ib_qib from the bytes of a modprobe.d file.
///
/// # Errors
/// [`OptionError::InFile`] with the line where the faulty setting's logical line begins; [`OptionError::TooLong`];
/// [`OptionError::Binary`] for a file with zero bytes in it.
pub fn parse_file(bytes: &[u8]) -> Result<Parsed, OptionError> {
    if bytes.len() > MAX_FILE_BYTES {
        return Err(OptionError::TooLong { len_bytes: bytes.len(), max_bytes: MAX_FILE_BYTES });
    }
    if bytes.contains(&0) {
        return Err(OptionError::Binary);
    }
    let (mut parsed, mut found) = (Parsed::default(), false);
    let mut last_line = 1;
    for (line, text) in logical_lines(bytes) {
        let Some(list) = options_of_ib_qib(&text) else { continue };
        (last_line, found) = (line, true);
        let list = core::str::from_utf8(list).map_err(|_| OptionError::NotText);
        list.and_then(|list| parsed.apply_list(list)).map_err(|error| in_file(line, error))?;
    }
    parsed.cross_check().map_err(|error| in_file(last_line, error))?;
    if !found {
        parsed.warnings.push(Warning::NothingInFile);
    }
    Ok(parsed)
}

fn in_file(line: usize, error: OptionError) -> OptionError {
    OptionError::InFile { line, error: Box::new(error) }
}

/// The lines with continuations joined, each with the number of its first physical line.
fn logical_lines(bytes: &[u8]) -> Vec<(usize, Vec<u8>)> {
    let mut lines: Vec<(usize, Vec<u8>)> = Vec::new();
    let mut open = false;
    for (index, physical) in bytes.split(|&byte| byte == b'\n').enumerate() {
        let text = physical.strip_suffix(b"\r").unwrap_or(physical);
        let (text, continues) = match text.strip_suffix(b"\\") {
            Some(text) => (text, true),
            None => (text, false),
        };
        match lines.last_mut() {
            Some((_, line)) if open => {
                line.push(b' ');
                line.extend_from_slice(text);
            }
            _ => lines.push((index + 1, text.to_vec())),
        }
        open = continues;
    }
    lines
}

/// The list of a line `options ib_qib LIST`; other lines have none.
fn options_of_ib_qib(line: &[u8]) -> Option<&[u8]> {
    let (command, rest) = first_word(line)?;
    let (module, list) = first_word(rest)?;
    let ours = module.len() == 6 && module.starts_with(b"ib") && module.ends_with(b"qib");
    // modprobe takes a dash for an underscore in module names.
    (command == b"options" && ours && matches!(module[2], b'_' | b'-')).then_some(list)
}

fn first_word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.trim_ascii_start();
    let end = text.iter().position(u8::is_ascii_whitespace).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

const _: () = assert!(MAX_FILE_BYTES >= MAX_LIST_BYTES, "a file holds at least one list");
