//! What the user may choose, in the words of the Linux driver.
//!
//! Owners of this card have tuned it with module parameters for years: `krcvqs=1 rcvhdrcnt=4096 singleport=1`. The
//! same list is read here, and the same file ([`modprobe`]). A number that the stock driver replaces in silence is
//! replaced here with a [`Warning`]; anything else outside its range is an [`OptionError`] that names the option, the
//! value and the range.
//!
//! Numbers are read as the kernel reads them: decimal, `0x` hexadecimal, or octal with a leading 0 (F-103). The last
//! of several settings of one option counts. Blanks part settings; a value with blanks is put in double quotes.
//!
//! Not here: what the choices amount to on a given board (`contexts`).

use core::fmt;

mod error;
pub mod modprobe;
pub mod table;
pub mod txselect;

pub use error::{OptionError, Warning};
pub use table::{Effect, OptionInfo, Options, Range};
pub use txselect::TxSelect;

use table::Outside;

/// Longest list that is read, bytes; the kernel's own command line is far shorter.
pub const MAX_LIST_BYTES: usize = 64 * 1024;
/// Longest piece of input that an error repeats, characters.
const QUOTED_CHARS: usize = 60;

/// The options, and what was mended or ignored to get them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    /// What to bring the card up with.
    pub options: Options,
    /// In the order of the input.
    pub warnings: Vec<Warning>,
}

impl Options {
    /// How large read requests are to be at least, as the bus codes it (128 bytes << code); `None` to leave them.
    pub fn read_request_code(&self) -> Option<u8> {
        // The option is at most 0x53: both halves are bounded when it is read.
        let code = (self.pcie_caps >> 4 & 7) as u8;
        (code > 0).then_some(code)
    }

    /// Reads a list such as `krcvqs=2 pcie_caps=0x51 txselect="10 0,1=17"`.
    ///
    /// # Errors
    /// [`OptionError`] names the first setting that cannot be used, and the valid range.
    pub fn parse(list: &str) -> Result<Parsed, OptionError> {
        let mut parsed = Parsed::default();
        parsed.apply_list(list)?;
        parsed.cross_check()?;
        Ok(parsed)
    }

    /// The value of the option `name` as one would type it.
    pub fn value_text(&self, name: &str) -> Option<String> {
        match name {
            "txselect" => Some(self.txselect.to_string()),
            _ => self.number(name).map(|number| number.to_string()),
        }
    }

    /// The MTU that `ibmtu` asks for, bytes.
    pub fn mtu_bytes(&self) -> u32 {
        match self.ibmtu {
            code @ 1..=5 => 128 << code,
            _ => 4096,
        }
    }

    /// Dwords of one header queue entry.
    pub fn hdr_entry_dwords(&self) -> u32 {
        if self.rcvhdrentsize == 0 { 32 } else { self.rcvhdrentsize }
    }

    /// Dwords of header that the chip keeps beyond LRH and BTH.
    pub fn hdr_dwords(&self) -> u32 {
        if self.rcvhdrsize == 0 { 9 } else { self.rcvhdrsize }
    }
}

impl fmt::Display for Options {
    /// The settings that differ from the defaults, as a list that [`Options::parse`] reads back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let defaults = Self::default();
        let mut gap = "";
        for info in table::all() {
            let (Some(value), Some(default)) = (self.value_text(info.name), defaults.value_text(info.name))
            else {
                continue;
            };
            if value != default {
                let quote = if value.contains(' ') { "\"" } else { "" };
                write!(f, "{gap}{}={quote}{value}{quote}", info.name)?;
                gap = " ";
            }
        }
        Ok(())
    }
}

impl Parsed {
    /// Applies the settings of one list on top of what is there.
    pub(crate) fn apply_list(&mut self, list: &str) -> Result<(), OptionError> {
        if list.len() > MAX_LIST_BYTES {
            return Err(OptionError::TooLong { len_bytes: list.len(), max_bytes: MAX_LIST_BYTES });
        }
        let mut rest = list.trim_ascii_start();
        while !rest.is_empty() && !rest.starts_with('#') {
            let (setting, after) = split_setting(rest)?;
            self.apply(&setting)?;
            rest = after.trim_ascii_start();
        }
        Ok(())
    }

    /// Applies one `name=value`, quotes already removed.
    fn apply(&mut self, setting: &str) -> Result<(), OptionError> {
        let (typed_name, value) = match setting.split_once('=') {
            Some((name, value)) => (name, Some(value.trim_ascii())),
            None => (setting, None),
        };
        // The kernel takes a dash for an underscore in parameter names.
        let name = typed_name.trim_ascii().replace('-', "_");
        if table::GONE.contains(&name.as_str()) {
            self.warnings.push(Warning::Gone { name });
            return Ok(());
        }
        let Some(info) = table::all().find(|info| info.name == name) else {
            return Err(OptionError::Unknown { nearest: nearest(&name), name: quotable(&name) });
        };
        let value = value.filter(|value| !value.is_empty());
        let value = value.ok_or(OptionError::MissingValue { name: info.name, range: info.range })?;
        match info.range {
            Range::TxSelect => self.options.txselect = value.parse().map_err(OptionError::TxSelect)?,
            _ => self.apply_number(info, value)?,
        }
        if !info.effect_here.works() {
            let warning = Warning::NoEffect { name: info.name, why: info.effect_here.text() };
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
        Ok(())
    }

    fn apply_number(&mut self, info: &'static OptionInfo, value: &str) -> Result<(), OptionError> {
        let (name, range) = (info.name, info.range);
        let Some(number) = parse_wide(value) else {
            return Err(OptionError::NotANumber { name, value: quotable(value), range });
        };
        let fitting = u32::try_from(number).ok().filter(|&number| range.holds(number));
        // A planted fault, for the proof that the fuzzer reaches this far: one more than the range allows is taken.
        #[cfg(canary)]
        let fitting = fitting.or(u32::try_from(number).ok().filter(|&n| n > 16 && range.holds(n - 1)));
        let used = match (fitting, info.outside) {
            (Some(number), _) => number,
            (None, Outside::MendedTo(used)) => {
                self.warnings.push(Warning::Mended { name, given: number, used, range });
                used
            }
            (None, Outside::Refused) => return Err(OptionError::OutOfRange { name, value: number, range }),
        };
        self.options.set_number(name, used);
        Ok(())
    }

    /// What no single option can be blamed for.
    fn cross_check(&mut self) -> Result<(), OptionError> {
        if self.options.num_vls == 8 && self.options.mtu_bytes() > 2048 {
            self.warnings.push(Warning::VlsNeedSmallMtu { mtu_bytes: self.options.mtu_bytes() });
            self.options.num_vls = 4;
        }
        let (entry_dwords, header_dwords) = (self.options.hdr_entry_dwords(), self.options.hdr_dwords());
        // An entry ends with 2 dwords of flags and holds LRH and BTH, 5 dwords, before the kept header (F-104).
        if header_dwords + 7 > entry_dwords {
            return Err(OptionError::HeaderTooLong { header_dwords, entry_dwords });
        }
        Ok(())
    }
}

/// Takes one setting off the front of `list`: up to a blank outside double quotes. Quotes are removed.
fn split_setting(list: &str) -> Result<(String, &str), OptionError> {
    let (mut setting, mut quoted) = (String::new(), false);
    for (at, letter) in list.char_indices() {
        match letter {
            '"' => quoted = !quoted,
            _ if letter.is_ascii_whitespace() && !quoted => return Ok((setting, &list[at..])),
            _ => setting.push(letter),
        }
    }
    match quoted {
        true => Err(OptionError::OpenQuote { setting: quotable(&setting) }),
        false => Ok((setting, "")),
    }
}

/// A number as the kernel reads it (F-103), if it is one.
fn parse_wide(text: &str) -> Option<u64> {
    let digits = text.strip_prefix('+').unwrap_or(text);
    let (digits, radix) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&digits[2..], 16),
        [b'0', _, ..] => (&digits[1..], 8),
        _ => (digits, 10),
    };
    match digits.as_bytes().first() {
        // `from_str_radix` would take a second sign.
        Some(b'+' | b'-') | None => None,
        Some(_) => u64::from_str_radix(digits, radix).ok(),
    }
}

/// The same, if it fits 32 bits.
pub(crate) fn parse_number(text: &str) -> Option<u32> {
    parse_wide(text).and_then(|number| u32::try_from(number).ok())
}

/// Input as an error may repeat it: cut, and control characters made visible.
pub(crate) fn quotable(text: &str) -> String {
    let mut quoted: String = text.chars().take(QUOTED_CHARS).flat_map(char::escape_debug).collect();
    if text.chars().nth(QUOTED_CHARS).is_some() {
        quoted.push('…');
    }
    quoted
}

/// The option whose name is closest to `name`, if any is close.
fn nearest(name: &str) -> Option<&'static str> {
    let name = name.get(..QUOTED_CHARS.min(name.len()))?;
    let scored = table::all().map(|info| (edit_distance(name, info.name), info.name));
    scored.min().filter(|&(distance, _)| distance <= 2).map(|(_, name)| name)
}

/// Insertions, removals and replacements that make `a` into `b`.
fn edit_distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests;
