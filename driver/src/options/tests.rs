use super::modprobe::parse_file;
use super::*;
use proptest::prelude::*;
use std::collections::HashSet;

fn parse(list: &str) -> Parsed {
    Options::parse(list).unwrap_or_else(|error| panic!("{list}: {error}"))
}

fn refusal(list: &str) -> String {
    match Options::parse(list) {
        Ok(parsed) => panic!("{list} was taken: {parsed:?}"),
        Err(error) => error.to_string(),
    }
}

/// B169: two rows with one name would shadow each other.
#[test]
fn option_names_are_unique() {
    let mut seen = HashSet::new();
    for info in table::all() {
        assert!(seen.insert(info.name), "{} stands twice", info.name);
    }
    assert!(table::GONE.iter().all(|name| !seen.contains(name)));
}

#[test]
fn every_default_reads_back_as_itself_without_a_mended_value() {
    for info in table::all() {
        let setting = format!("{}={}", info.name, info.default);
        let parsed = parse(&setting);
        assert_eq!(parsed.options, Options::default(), "{setting}");
        assert!(!parsed.warnings.iter().any(|w| matches!(w, Warning::Mended { .. })), "{setting}");
    }
}

#[test]
fn list_of_the_published_storm_run_is_read() {
    let Parsed { options, warnings } = parse("krcvqs=1 pcie_caps=0x51 rcvhdrcnt=4096 singleport=1 ibmtu=4");
    assert_eq!((options.krcvqs, options.pcie_caps, options.rcvhdrcnt), (1, 0x51, 4096));
    assert!(options.singleport);
    assert_eq!(options.mtu_bytes(), 2048);
    assert_eq!(warnings, []);
    assert_eq!(options.read_request_code(), Some(5));
    assert_eq!(parse("pcie_caps=1").options.read_request_code(), None, "the payload's half alone");
}

#[test]
fn numbers_are_read_as_the_kernel_reads_them() {
    assert_eq!(parse("rcvhdrcnt=0x10").options.rcvhdrcnt, 16);
    assert_eq!(parse("rcvhdrcnt=010").options.rcvhdrcnt, 8);
    assert_eq!(parse("rcvhdrcnt=10").options.rcvhdrcnt, 10);
    assert_eq!(parse("krcvqs=0").options.krcvqs, 0);
    for bad in ["krcvqs=08", "krcvqs=-1", "krcvqs=0x", "krcvqs=1k", "krcvqs=++1", "krcvqs=0x-1"] {
        assert!(refusal(bad).contains("not a number"), "{bad}");
    }
}

#[test]
fn last_of_several_settings_counts_and_dashes_are_underscores() {
    let options = parse("  krcvqs=2\tkrcvqs=3 num-vls=4 ").options;
    assert_eq!((options.krcvqs, options.num_vls), (3, 4));
}

#[test]
fn out_of_range_value_names_option_value_and_range() {
    assert_eq!(refusal("krcvqs=18"), "option krcvqs: 18 is out of range; valid: 0 to 17");
    assert_eq!(
        refusal("cc_table_size=64"),
        "option cc_table_size: 64 is out of range; valid: 0, or 128 to 1984"
    );
    assert!(refusal("pcie_caps=0x61").starts_with("option pcie_caps: 97 is out of range"));
    assert!(refusal("cfgctxts=4294967297").contains("4294967297"));
}

#[test]
fn unknown_option_suggests_a_near_name() {
    assert!(refusal("krcvq=1").contains("did you mean krcvqs?"));
    assert!(refusal("frobnicate=1").contains("does not exist"));
    assert!(refusal("krcvqs").contains("needs a value"));
    assert!(refusal("krcvqs=").contains("needs a value"));
}

/// What the stock driver replaces in silence is replaced here and said.
#[test]
fn silently_mended_values_are_mended_with_a_warning() {
    let parsed = parse("ibmtu=9 num_vls=3");
    assert_eq!((parsed.options.mtu_bytes(), parsed.options.num_vls), (4096, 4));
    assert_eq!(parsed.warnings.len(), 2);
    assert!(parsed.warnings.iter().all(|w| matches!(w, Warning::Mended { .. })));
}

#[test]
fn eight_lanes_with_a_large_mtu_become_four() {
    assert_eq!(parse("num_vls=8 ibmtu=4").options.num_vls, 8);
    let parsed = parse("num_vls=8");
    assert_eq!(parsed.options.num_vls, 4);
    assert_eq!(parsed.warnings, [Warning::VlsNeedSmallMtu { mtu_bytes: 4096 }]);
}

#[test]
fn header_that_does_not_fit_its_entry_is_refused_whatever_the_order() {
    for list in ["rcvhdrentsize=16 rcvhdrsize=10", "rcvhdrsize=10 rcvhdrentsize=16"] {
        assert!(refusal(list).contains("do not fit"), "{list}");
    }
    assert_eq!(parse("rcvhdrsize=9 rcvhdrentsize=16").options.hdr_entry_dwords(), 16);
}

#[test]
fn names_of_earlier_releases_are_accepted_and_ignored() {
    let parsed = parse("wc_pat=1 krcvqs=2");
    assert_eq!(parsed.options.krcvqs, 2);
    assert_eq!(parsed.warnings, [Warning::Gone { name: "wc_pat".into() }]);
}

#[test]
fn txselect_takes_exceptions_in_quotes() {
    let options = parse("txselect=\"4 0,1=17 1,2=0x3,12\" krcvqs=1").options;
    assert_eq!(options.txselect.preset, 4);
    assert_eq!(options.txselect.exceptions.len(), 2);
    assert_eq!(options.txselect.exceptions[1].h1, Some(12));
    assert_eq!(options.txselect.to_string(), "4 0,1=17 1,2=3,12");
    for bad in ["36", "x", "4 0,3=1", "4 0,1=36", "4 0,1=1,32", "4 0=1", "4 0,1"] {
        assert!(refusal(&format!("txselect=\"{bad}\"")).starts_with("option txselect: "), "{bad}");
    }
    assert!(refusal("txselect=\"4 0,1=17").contains("not closed"));
}

#[test]
fn options_print_as_a_list_that_reads_back() {
    let options = parse("txselect=\"4 0,1=17\" krcvqs=3 singleport=1").options;
    assert_eq!(options.to_string(), "singleport=1 txselect=\"4 0,1=17\" krcvqs=3");
    assert_eq!(parse(&options.to_string()).options, options);
}

#[test]
fn modprobe_file_is_read_with_comments_continuations_and_strangers() {
    let file = b"# TrueScale\r\noptions ib_qib krcvqs=2 \\\n  rcvhdrcnt=4096\nalias x y\n\
                 options mlx4_core log_num_mtt=24\n#options ib_qib krcvqs=99\n\
                 \toptions ib-qib singleport=1 wc_pat=1 # why not\n";
    let parsed = parse_file(file).expect("a good file");
    assert_eq!((parsed.options.krcvqs, parsed.options.rcvhdrcnt), (2, 4096));
    assert!(parsed.options.singleport);
    assert_eq!(parsed.warnings, [Warning::Gone { name: "wc_pat".into() }]);
}

#[test]
fn fault_in_a_file_names_its_line() {
    let error = parse_file(b"\n\noptions ib_qib \\\nkrcvqs=40\n").expect_err("40 queues");
    assert_eq!(error.to_string(), "line 3: option krcvqs: 40 is out of range; valid: 0 to 17");
    let error = parse_file(b"options ib_qib krcvqs=\xFF\n").expect_err("not text");
    assert_eq!(error.to_string(), "line 1: the line is not UTF-8 text");
    assert!(std::error::Error::source(&error).is_some());
}

#[test]
fn bytes_that_are_no_text_in_other_lines_do_not_matter() {
    assert!(parse_file(b"options radeon \xFF\xFE=1\noptions ib_qib krcvqs=1").is_ok());
}

/// A typing error in the first word, or the wrong file, must not read as "no option differs".
#[test]
fn file_without_our_line_is_told_and_a_program_is_refused() {
    for nothing in
        [&b""[..], b"\n# options ib_qib krcvqs=1\n", b"option ib_qib krcvqs=1", b"options ib_qib2 a=1"]
    {
        assert_eq!(parse_file(nothing).map(|parsed| parsed.warnings), Ok(vec![Warning::NothingInFile]));
    }
    assert_eq!(parse_file(b"\x7FELF\0options ib_qib krcvqs=1"), Err(OptionError::Binary));
}

#[test]
fn oversized_input_is_refused_before_it_is_read() {
    let list = "krcvqs=1 ".repeat(MAX_LIST_BYTES);
    assert!(matches!(Options::parse(&list), Err(OptionError::TooLong { .. })));
    let file = vec![b' '; modprobe::MAX_FILE_BYTES + 1];
    assert!(matches!(parse_file(&file), Err(OptionError::TooLong { .. })));
}

proptest! {
    /// No bytes make the file reader panic.
    #[test]
    fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse_file(&bytes);
    }

    /// Neither do strings that look like settings, and what is taken is in range.
    #[test]
    fn settings_of_any_shape_are_answered_and_in_range(
        words in proptest::collection::vec(("[a-z_\\-]{0,12}|krcvqs|ibmtu|num_vls|pcie_caps|txselect|rcvhdrcnt",
            "[-+0-9xXa-f,\"= ]{0,12}|é"), 0..6)
    ) {
        let list: Vec<String> = words.iter().map(|(name, value)| format!("{name}={value}")).collect();
        if let Ok(parsed) = Options::parse(&list.join(" ")) {
            for info in table::all() {
                if let Some(number) = parsed.options.number(info.name) {
                    prop_assert!(info.range.holds(number) || number == info.default.parse().unwrap_or(number));
                }
            }
            let again = Options::parse(&parsed.options.to_string());
            prop_assert_eq!(again.map(|p| p.options), Ok(parsed.options));
        }
    }
}
