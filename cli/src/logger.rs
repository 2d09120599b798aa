//! What the libraries have to say while they work, on stderr: nothing unless it is asked for.
//!
//! With `-v` their warnings and remarks, with `-vv` the details too: which request the kernel refused and with what, why
//! the next best way was taken. What a person must know is said by the commands themselves.

use log::{LevelFilter, Log, Metadata, Record};
use std::io::Write;

struct Stderr;

impl Log for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("qhca")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            // A closed stderr is nobody's error.
            let _ = writeln!(
                std::io::stderr(),
                "qhca: {}: {}",
                record.level().as_str().to_lowercase(),
                record.args()
            );
        }
    }

    fn flush(&self) {}
}

static STDERR: Stderr = Stderr;

/// Listens as `verbose` says. Whoever calls it twice is not heard.
pub(crate) fn listen(verbose: u8) {
    let level = match verbose {
        0 => return,
        1 => LevelFilter::Info,
        _ => LevelFilter::Debug,
    };
    if log::set_logger(&STDERR).is_ok() {
        log::set_max_level(level);
    }
}
