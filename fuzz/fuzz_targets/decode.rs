//! Error words of all scopes into buffers of all lengths, against a walk over all rows.
//!
//! Input: scope, buffer length (2 bytes), word (8 bytes); three of them.

#![no_main]

use libfuzzer_sys::fuzz_target;
use qhca_errdecode::{GONE_TEXT, Report, Scope, TRUNCATION_MARK, Table};
use qhca_fuzz::Bytes;

fuzz_target!(|input: &[u8]| {
    let mut bytes = Bytes::new(input);
    // A few are enough to have every pair of scopes, and keep an execution short.
    for _ in 0..3 {
        let scope = Scope::ALL[usize::from(bytes.u8()) % Scope::ALL.len()];
        let len = usize::from(bytes.u16()) % 1300;
        let word = bytes.u64();
        check_text(scope.table(), word, len);
        check_report(scope, word);
    }
});

fn check_text(table: &Table, word: u64, len: usize) {
    let mut memory = [0xA5; 1300 + 8];
    let (buf, behind) = memory.split_at_mut(len);
    let decoded = table.decode(word, buf);
    let text = std::str::from_utf8(decoded.as_bytes()).expect("always UTF-8");
    assert_eq!(text, decoded.as_str());
    let items = items(table, word);
    let whole = items.join(",");
    assert_eq!(decoded.is_truncated(), whole.len() > len);
    if !decoded.is_truncated() {
        assert_eq!(text, whole);
    } else if len < TRUNCATION_MARK.len() {
        assert_eq!(text, &TRUNCATION_MARK[..len]);
    } else {
        let kept = text.strip_suffix(TRUNCATION_MARK).expect("marked");
        let kept_items = kept.split_terminator(',').count();
        let expected: String = items[..kept_items].iter().map(|item| format!("{item},")).collect();
        assert_eq!(kept, expected);
        let next = expected.len() + items[kept_items].len() + 1 + TRUNCATION_MARK.len();
        assert!(next > len, "{} would have fitted", items[kept_items]);
    }
    assert!(behind.iter().all(|&byte| byte == 0xA5), "written behind the buffer");
}

/// The items of the text, by looking at every bit of every row.
fn items(table: &Table, word: u64) -> Vec<String> {
    if table.is_gone(word) {
        return vec![GONE_TEXT.to_owned()];
    }
    let mut items = Vec::new();
    for row in table.rows() {
        let lsb = row.mask.trailing_zeros();
        let set = (lsb..64).filter(|bit| word & row.mask & 1 << bit != 0);
        let plain = row.mask.is_power_of_two();
        items.extend(set.map(|bit| match plain {
            true => row.name.to_owned(),
            false => format!("{}_{}", row.name, bit - lsb),
        }));
    }
    let named = table.values().iter().fold(table.flags(), |mask, field| mask | field.mask());
    if word & !named != 0 {
        items.push(format!("MORE:{:X}", word & !named));
    }
    items
}

fn check_report(scope: Scope, word: u64) {
    let report = Report::new(scope, word);
    let mut json = String::new();
    report.write_json(&mut json).expect("a String takes all");
    assert!(json.starts_with('{') && json.ends_with("}}") && !json.contains('\n'));
    assert_eq!(json.matches(r#""bit":"#).count(), report.entries().len());
    assert!(report.to_string().ends_with('\n'));
}
