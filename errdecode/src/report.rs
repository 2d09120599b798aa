//! A word explained: several lines for a person, one JSON object for a program.
//!
//! Nothing here is on a hot path; it writes to any [`fmt::Write`], so it works without an allocator.

use core::fmt::{self, Write};

use crate::{Entries, GONE_TEXT, Scope};

/// One word of one scope, ready to be explained.
///
/// `Display` gives lines for people, [`write_json`](Self::write_json) an object for programs.
///
/// ```
/// use qhca_errdecode::{Report, Scope};
///
/// let report = Report::new(Scope::Port, 1 << 32);
/// let lines = report.to_string();
/// assert!(lines.starts_with("ErrStatus_p (port) = 0x0000000100000000: SendPktLenErr\n"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    scope: Scope,
    word: u64,
}

impl Report {
    /// A report on `word`.
    #[must_use]
    pub const fn new(scope: Scope, word: u64) -> Self {
        Self { scope, word }
    }

    /// The scope the word was read in.
    #[must_use]
    pub const fn scope(&self) -> Scope {
        self.scope
    }

    /// The word itself.
    #[must_use]
    pub const fn word(&self) -> u64 {
        self.word
    }

    /// Whether the word says that the device did not answer.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.scope.table().is_gone(self.word)
    }

    /// The flags set; none if the device is gone.
    #[must_use]
    pub fn entries(&self) -> Entries {
        self.scope.table().entries(self.word)
    }

    /// The bits set that have no name; none if the device is gone.
    #[must_use]
    pub fn unknown(&self) -> u64 {
        if self.is_gone() { 0 } else { self.scope.table().unknown(self.word) }
    }

    /// Writes the whole one-line text that [`decode`](crate::decode()) gives with room enough.
    ///
    /// # Errors
    /// Whatever `out` answers.
    pub fn write_text(&self, out: &mut dyn Write) -> fmt::Result {
        if self.is_gone() {
            return out.write_str(GONE_TEXT);
        }
        let mut separator = "";
        for entry in self.entries() {
            write!(out, "{separator}{}", entry.name)?;
            separator = ",";
        }
        match self.unknown() {
            0 => Ok(()),
            unknown => write!(out, "{separator}MORE:{unknown:X}"),
        }
    }

    /// Writes one JSON object, without a line end.
    ///
    /// ```text
    /// {"scope":"device","word":"0x1000","gone":false,"names":["RcvEgrFullErr"],"unknown":"0x0",
    ///  "text":"RcvEgrFullErr","entries":[{"name":"RcvEgrFullErr","bit":12,"severity":"warning",
    ///  "groups":["receive"],"meaning":"…","cause":"…","action":"…","source":"F-700"}],"values":{}}
    /// ```
    ///
    /// # Errors
    /// Whatever `out` answers.
    pub fn write_json(&self, out: &mut dyn Write) -> fmt::Result {
        write!(out, r#"{{"scope":"{}","word":"{:#x}","gone":{}"#, self.scope, self.word, self.is_gone())?;
        out.write_str(r#","names":"#)?;
        write_list(out, self.entries(), |out, entry| write_json_string(out, entry.name))?;
        write!(out, r#","unknown":"{:#x}","text":""#, self.unknown())?;
        self.write_text(&mut Escaped(out))?;
        out.write_str(r#"","entries":"#)?;
        write_list(out, self.entries(), |out, entry| {
            out.write_str(r#"{"name":"#)?;
            write_json_string(out, entry.name)?;
            let text = &entry.row.text;
            write!(out, r#","bit":{},"severity":"{}","groups":"#, entry.bit, text.severity)?;
            write_list(out, text.groups.names(), write_json_string)?;
            write_json_member(out, "meaning", text.meaning)?;
            write_json_member(out, "cause", text.cause)?;
            write_json_member(out, "action", text.action)?;
            write_json_member(out, "source", text.source)?;
            out.write_char('}')
        })?;
        out.write_str(r#","values":{"#)?;
        for (n, field) in self.values().enumerate() {
            write!(out, r#"{}"{}":{}"#, if n == 0 { "" } else { "," }, field.name, field.get(self.word))?;
        }
        out.write_str("}}")
    }

    /// The number fields of the word; none if the device is gone.
    fn values(&self) -> impl Iterator<Item = &'static crate::ValueField> {
        let fields = if self.is_gone() { &[] } else { self.scope.table().values() };
        fields.iter()
    }

    fn write_entry(&self, f: &mut fmt::Formatter<'_>, entry: &crate::Entry) -> fmt::Result {
        let text = &entry.row.text;
        writeln!(f, "  {} (bit {}, {}, {})", entry.name, entry.bit, text.severity, text.groups)?;
        writeln!(f, "    meaning  {}", text.meaning)?;
        writeln!(f, "    cause    {}", text.cause)?;
        writeln!(f, "    action   {}", text.action)?;
        writeln!(f, "    source   {}", text.source)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let register = self.scope.table().word_name();
        write!(f, "{register} ({}) = {:#018x}: ", self.scope, self.word)?;
        if self.word == 0 {
            return f.write_str("no bit set\n");
        }
        self.write_text(f)?;
        f.write_char('\n')?;
        if self.is_gone() {
            f.write_str("  meaning  every bit is set, as when no device completes a read\n")?;
            f.write_str("  cause    the card was removed, lost power or its PCIe link is down\n")?;
            return f.write_str("  action   access it no more; find it in lspci, then reset or reseat it\n");
        }
        for entry in self.entries() {
            self.write_entry(f, &entry)?;
        }
        for field in self.values() {
            writeln!(f, "  {} = {}", field.name, field.get(self.word))?;
        }
        match self.unknown() {
            0 => Ok(()),
            unknown => {
                writeln!(f, "  {unknown:#x}: no known meaning in this word; note it with the card's revision")
            }
        }
    }
}

/// Writes `[a,b,…]`, each item by `write`.
fn write_list<T>(
    out: &mut dyn Write,
    items: impl Iterator<Item = T>,
    write: impl Fn(&mut dyn Write, T) -> fmt::Result,
) -> fmt::Result {
    out.write_char('[')?;
    for (n, item) in items.enumerate() {
        if n > 0 {
            out.write_char(',')?;
        }
        write(out, item)?;
    }
    out.write_char(']')
}

/// Writes `,"key":"value"`.
fn write_json_member(out: &mut dyn Write, key: &str, value: &str) -> fmt::Result {
    write!(out, r#","{key}":"#)?;
    write_json_string(out, value)
}

fn write_json_string(out: &mut dyn Write, text: &str) -> fmt::Result {
    out.write_char('"')?;
    Escaped(out).write_str(text)?;
    out.write_char('"')
}

/// Escapes what it is given as the inside of a JSON string.
struct Escaped<'w>(&'w mut dyn Write);

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            match c {
                '"' => self.0.write_str("\\\"")?,
                '\\' => self.0.write_str("\\\\")?,
                '\u{0}'..='\u{1F}' => write!(self.0, "\\u{:04x}", c as u32)?,
                _ => self.0.write_char(c)?,
            }
        }
        Ok(())
    }
}
