//! The decoder against a slow and obvious one, for many words and every buffer length.

use proptest::prelude::*;
use qhca_errdecode::{GONE_TEXT, Origin, Scope, Table, decode, is_gone};

/// The items of a word's text, by walking all rows and all their bits.
fn items(table: &Table, word: u64) -> Vec<String> {
    if word == u64::MAX && table.origin() == Origin::Register {
        return vec![GONE_TEXT.to_owned()];
    }
    let mut items = Vec::new();
    let mut left = word;
    for field in table.values() {
        left &= !field.mask();
    }
    for row in table.rows() {
        let lsb = row.mask.trailing_zeros();
        for bit in (0..64).filter(|bit| left & row.mask & 1 << bit != 0) {
            items.push(match row.mask.count_ones() {
                1 => row.name.to_owned(),
                _ => format!("{}_{}", row.name, bit - lsb),
            });
        }
        left &= !row.mask;
    }
    if left != 0 {
        items.push(format!("MORE:{left:X}"));
    }
    items
}

/// What a buffer of `len` bytes should hold.
fn expected(items: &[String], len: usize) -> (String, bool) {
    let whole = items.join(",");
    if whole.len() <= len {
        return (whole, false);
    }
    let with_mark = |kept: usize| [&items[..kept], &["...".to_owned()]].concat().join(",");
    let best = (0..=items.len()).rev().map(with_mark).find(|text| text.len() <= len);
    (best.unwrap_or_else(|| "..."[..len].to_owned()), true)
}

/// Decodes into every buffer length up to a little more than needed, canaries behind the buffer.
fn check_all_lengths(table: &Table, word: u64) {
    let items = items(table, word);
    let longest = items.join(",").len() + 40;
    for len in 0..=longest {
        let mut memory = vec![0xA5; len + 16];
        let (buf, behind) = memory.split_at_mut(len);
        let decoded = table.decode(word, buf);
        let (text, truncated) = expected(&items, len);
        let case = format!("{} {word:#x} into {len} bytes", table.word_name());
        assert_eq!(std::str::from_utf8(decoded.as_bytes()), Ok(&*text), "{case}");
        assert_eq!(decoded.as_str(), text, "{case}");
        assert_eq!((decoded.len(), decoded.is_empty()), (text.len(), text.is_empty()), "{case}");
        assert_eq!(decoded.is_truncated(), truncated, "{case}");
        let unknown = if table.is_gone(word) { 0 } else { table.unknown(word) };
        assert_eq!(decoded.unknown(), unknown, "{case}");
        assert!(behind.iter().all(|&byte| byte == 0xA5), "{case}: written behind the buffer");
    }
}

/// Trap 7: lengths 0..n, separators, left-over hex, multi-bit index.
#[test]
fn single_bits_and_pairs_decode_in_every_buffer() {
    for scope in Scope::ALL {
        for a in 0..64 {
            for b in a..64 {
                check_all_lengths(scope.table(), 1 << a | 1 << b);
            }
        }
    }
}

/// Trap 7, with nothing, everything but one bit, and everything.
#[test]
fn full_and_empty_words_decode_in_every_buffer() {
    for scope in Scope::ALL {
        let table = scope.table();
        for word in [0, table.flags(), !table.flags(), u64::MAX] {
            check_all_lengths(table, word);
        }
        for bit in 0..64 {
            check_all_lengths(table, !(1 << bit));
        }
    }
}

proptest! {
    // A case is 35 words, each into some hundred buffers.
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Trap 7 for words of any density.
    #[test]
    fn any_word_decodes_in_every_buffer(a in any::<u64>(), b in any::<u64>(), c in any::<u64>()) {
        for scope in Scope::ALL {
            for word in [a, a & b, a & b & c, a | b, a | b | c] {
                check_all_lengths(scope.table(), word);
            }
        }
    }

    #[test]
    fn entries_are_the_names_of_the_text(word in any::<u64>()) {
        for scope in Scope::ALL {
            let mut buf = [0; 4096];
            let decoded = decode(scope, word, &mut buf);
            let entries = qhca_errdecode::entries(scope, word);
            prop_assert_eq!(entries.len() as u32, (scope.table().flags() & word).count_ones());
            let mut names: Vec<String> = entries.map(|entry| entry.name.to_owned()).collect();
            if decoded.unknown() != 0 {
                names.push(format!("MORE:{:X}", decoded.unknown()));
            }
            prop_assert_eq!(decoded.as_str(), names.join(","));
        }
    }
}

#[test]
fn overflows_come_first_although_their_bits_are_lowest() {
    let mut buf = [0; 64];
    let word = 1 << 62 | 1 << 13 | 1 << 12;
    assert_eq!(decode(Scope::Device, word, &mut buf).as_str(), "RcvEgrFullErr,RcvHdrFullErr,HardwareErr");
}

#[test]
fn names_keep_their_port() {
    let mut buf = [0; 64];
    let both = decode(Scope::Hardware, 3 << 62, &mut buf);
    assert_eq!(both.as_str(), "IBSerdesPClkNotDetect_1,IBSerdesPClkNotDetect_0");
}

#[test]
fn row_of_several_bits_says_which() {
    let mut buf = [0; 64];
    let decoded = decode(Scope::Hardware, 0b101 << 31, &mut buf);
    assert_eq!(decoded.as_str(), "PCIeBusParityErr_0,PCIeBusParityErr_2");
}

#[test]
fn unknown_bits_are_kept_in_upper_case_hex() {
    let mut buf = [0; 64];
    let decoded = decode(Scope::Device, 1 << 35 | 0xABC, &mut buf);
    assert_eq!(decoded.as_str(), "SendArmLaunchErr,MORE:ABC");
    assert_eq!(decoded.unknown(), 0xABC);
}

/// B04: not a list of 64 faults.
#[test]
fn all_ones_from_a_register_is_a_device_that_is_gone() {
    assert!(is_gone(u64::MAX) && !is_gone(u64::MAX - 1) && !is_gone(0));
    for scope in Scope::ALL.into_iter().filter(|scope| *scope != Scope::Rhf) {
        let mut buf = [0; 64];
        let decoded = decode(scope, u64::MAX, &mut buf);
        assert_eq!((decoded.as_str(), decoded.unknown()), ("device not responding", 0), "{scope}");
        assert_eq!(qhca_errdecode::entries(scope, u64::MAX).len(), 0, "{scope}");
    }
}

#[test]
fn all_ones_in_memory_is_a_damaged_entry() {
    let mut buf = [0; 256];
    let decoded = decode(Scope::Rhf, u64::MAX, &mut buf);
    assert!(decoded.as_str().starts_with("ICRCErr,VCRCErr,"), "{decoded}");
    assert_eq!(decoded.unknown(), Scope::Rhf.table().unknown(u64::MAX));
}

mod wide {
    use qhca_errdecode::{Groups, Severity, Text};

    const PLAIN: Text = Text {
        groups: Groups::CHIP,
        severity: Severity::Info,
        meaning: "a row of the test",
        cause: "the test",
        action: "none at all",
        source: "F-700",
    };

    qhca_errdecode::table! {
        /// One row of all bits but two, so that the suffix has two digits and names are longest.
        pub(crate) static WIDE: "Wide", Memory;
        AnUnusuallyLongNameOfOne @ 61:0 => PLAIN;
        B @ 63 => PLAIN;
    }
}

#[test]
fn two_digit_suffixes_and_longest_names_decode_in_every_buffer() {
    assert_eq!(wide::WIDE.entries(1 << 61).next().map(|e| e.name), Some("AnUnusuallyLongNameOfOne_61"));
    for word in [0, 1 << 9 | 1 << 10, 1 << 61 | 1 << 62, u64::MAX, u64::MAX >> 2] {
        check_all_lengths(&wide::WIDE, word);
    }
}
