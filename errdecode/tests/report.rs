//! Reports for people and for programs.

use proptest::prelude::*;
use qhca_errdecode::{Report, Scope, decode};
use serde_json::{Value, json};

fn to_json(report: &Report) -> Value {
    let mut text = String::new();
    report.write_json(&mut text).expect("a String takes all");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

#[test]
fn report_of_one_bit_says_name_bit_severity_and_advice() {
    let lines = Report::new(Scope::Device, 1 << 12).to_string();
    let row = &Scope::Device.table().rows()[0];
    assert!(lines.starts_with("ErrStatus (device) = 0x0000000000001000: RcvEgrFullErr\n"), "{lines}");
    assert!(lines.contains("RcvEgrFullErr (bit 12, warning, receive)"), "{lines}");
    for part in [row.text.meaning, row.text.cause, row.text.action, row.text.source] {
        assert!(lines.contains(part), "{part:?} in {lines}");
    }
}

#[test]
fn report_of_zero_says_so() {
    assert_eq!(
        Report::new(Scope::Port, 0).to_string(),
        "ErrStatus_p (port) = 0x0000000000000000: no bit set\n"
    );
}

/// B04: the report names the one cause, and no fault.
#[test]
fn report_of_all_ones_says_device_not_responding() {
    let report = Report::new(Scope::Hardware, u64::MAX);
    let lines = report.to_string();
    assert!(report.is_gone() && lines.contains("device not responding"), "{lines}");
    assert!(!lines.contains("(bit ") && !lines.contains("MORE"), "{lines}");
    let json = to_json(&report);
    assert_eq!(json["gone"], true);
    assert_eq!(json["text"], "device not responding");
    assert_eq!((&json["names"], &json["entries"], &json["values"]), (&json!([]), &json!([]), &json!({})));
}

#[test]
fn unknown_bits_are_reported_and_not_dropped() {
    let report = Report::new(Scope::Device, 1 << 20 | 1 << 13);
    let lines = report.to_string();
    assert!(lines.contains("RcvHdrFullErr,MORE:100000"), "{lines}");
    assert!(lines.contains("0x100000: no known meaning"), "{lines}");
    assert_eq!(to_json(&report)["unknown"], "0x100000");
}

#[test]
fn numbers_of_a_word_are_shown_as_numbers() {
    // Sequence 7, header offset 14 dwords, eager buffer 0x123 used, type 2, length 64 dwords, TID error.
    let word = 1 << 57 | 14 << 36 | 7 << 32 | 1 << 31 | 0x123 << 16 | 2 << 11 | 64;
    let report = Report::new(Scope::Rhf, word);
    let json = to_json(&report);
    assert_eq!(json["names"], json!(["TIDErr"]));
    assert_eq!(json["unknown"], "0x0");
    assert_eq!(
        json["values"],
        json!({
            "LengthDwords": 64, "Type": 2, "SWB": 0, "SWA": 0, "EagerIndex": 0x123, "UseEager": 1,
            "Sequence": 7, "HeaderOffsetDwords": 14,
        })
    );
    assert!(report.to_string().contains("EagerIndex = 291"), "{report}");
}

#[test]
fn json_has_the_documented_members() {
    let json = to_json(&Report::new(Scope::Port, 1 << 32 | 1 << 2));
    assert_eq!(json["scope"], "port");
    assert_eq!(json["word"], "0x100000004");
    assert_eq!(json["names"], json!(["SendPktLenErr", "RcvICRCErr"]));
    let entry = &json["entries"][0];
    assert_eq!((&entry["name"], &entry["bit"]), (&json!("SendPktLenErr"), &json!(32)));
    assert_eq!(entry["severity"], "warning");
    assert_eq!(entry["groups"], json!(["send", "packet", "link-training"]));
    for member in ["meaning", "cause", "action", "source"] {
        assert!(entry[member].is_string(), "{member} in {entry}");
    }
}

proptest! {
    #[test]
    fn json_parses_and_agrees_with_the_decoder(word in any::<u64>()) {
        for scope in Scope::ALL {
            let mut buf = [0; 4096];
            let json = to_json(&Report::new(scope, word));
            let text = decode(scope, word, &mut buf);
            prop_assert_eq!(&json["text"], text.as_str());
            prop_assert_eq!(&json["word"], &format!("{word:#x}"));
            prop_assert_eq!(&json["unknown"], &format!("{:#x}", text.unknown()));
            let bits: Vec<_> = qhca_errdecode::entries(scope, word).map(|e| u64::from(e.bit)).collect();
            let listed: Vec<_> =
                json["entries"].as_array().unwrap().iter().map(|e| e["bit"].as_u64().unwrap()).collect();
            prop_assert_eq!(listed, bits);
        }
    }
}
