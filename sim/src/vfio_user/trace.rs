//! A record of every register access, one line each: time, kind and width, offset, value, name.
//!
//! ```text
//! 17.785569 R8 000000 0000000202010602 Revision
//! ```

use qhca_regs::{Instant, map};
use std::collections::HashMap;
use std::io::Write;

/// Where accesses are recorded, if anywhere.
#[derive(Default)]
pub(super) struct Trace {
    out: Option<Box<dyn Write>>,
    names: HashMap<u32, String>,
    /// Lines that could not be written.
    pub(super) lost: u64,
}

impl Trace {
    /// A record that goes to `out`.
    pub(super) fn new(out: Box<dyn Write>) -> Self {
        let names = map::all().map(|placed| (placed.offset, placed.to_string())).collect();
        Self { out: Some(out), names, lost: 0 }
    }

    pub(super) fn read(&mut self, now: Instant, offset: u32, width: usize, value: u64) {
        self.line(now, 'R', offset, width, value);
    }

    pub(super) fn write(&mut self, now: Instant, offset: u32, width: usize, value: u64) {
        self.line(now, 'W', offset, width, value);
    }

    fn line(&mut self, now: Instant, kind: char, offset: u32, width: usize, value: u64) {
        let Some(out) = &mut self.out else { return };
        let (seconds, micros) = (now.as_nanos() / 1_000_000_000, now.as_nanos() / 1_000 % 1_000_000);
        let digits = 2 * width;
        let name = self.names.get(&offset).map_or("-", String::as_str);
        let line = writeln!(out, "{seconds}.{micros:06} {kind}{width} {offset:06x} {value:0digits$x} {name}");
        if line.is_err() {
            self.lost += 1;
        }
    }

    /// Writes out what is still buffered.
    pub(super) fn flush(&mut self) {
        if let Some(out) = &mut self.out
            && out.flush().is_err()
        {
            self.lost += 1;
        }
    }
}
