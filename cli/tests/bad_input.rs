//! Whatever is typed wrong: exit code 2, the cause and what would be right on stderr, nothing on stdout.

mod common;

use common::qhca;

/// Arguments, and words that the message must hold: what was wrong, what is right.
const TABLE: &[(&[&str], &[&str])] = &[
    (&[], &["Usage"]),
    (&["frobnicate"], &["frobnicate", "Usage"]),
    (&["decode"], &["WORD"]),
    (&["decode", "nonsense"], &["nonsense", "0xffffffffffffffff"]),
    (&["decode", "0x"], &["0x", "0xffffffffffffffff"]),
    (&["decode", "0x1g"], &["0x1g", "0xffffffffffffffff"]),
    (&["decode", "0x10000000000000000"], &["0x10000000000000000", "0xffffffffffffffff"]),
    (&["decode", "18446744073709551616"], &["18446744073709551616", "64-bit"]),
    (&["decode", "-1"], &["-1"]),
    (&["decode", ""], &["0xffffffffffffffff"]),
    (&["decode", "--scope", "moon", "1"], &["moon", "device", "hardware", "rhf"]),
    (&["decode", "nothing to see 0x4 here"], &["--scope"]),
    (&["regs", "--map", "Bogus"], &["Bogus", "regs --map"]),
    (&["regs", "--map", "IntStatsu"], &["IntStatsu", "IntStatus"]),
    // B159: only whole, aligned registers.
    (&["regs", "--map", "0x71"], &["0x71", "aligned", "0x70"]),
    (&["regs", "--map", "0x74"], &["0x74", "aligned", "0x70"]),
    (&["regs", "--map", "0x400000"], &["0x400000", "0x3ffff8"]),
    (&["regs", "--map", "0x99999999999999999999"], &["0x3ffff8"]),
    (&["regs", "--map", "0xb8"], &["0xb8", "HwDiagCtrl", "EXTStatus"]),
    (&["regs", "--map", "RcvEgrArray[18432]"], &["RcvEgrArray[18431]"]),
    (&["regs", "--map", "RcvEgrArray[-1]"], &["index"]),
    (&["regs", "--map", "--all", "IntStatus"], &["--all"]),
    (&["regs", "--map", "--device", "sim"], &["--map", "--device"]),
    (&["regs", "-d", "sim:qle9999"], &["qle9999", "sim:qle7340", "sim:qle7342"]),
    (&["regs", "-d", "mlx5_0"], &["mlx5_0", "sim:qle7340"]),
    (&["regs", "-d", ""], &["sim:qle7340"]),
    (&["info", "mlx5_0"], &["mlx5_0", "qib0"]),
    (&["info", "qib0", "3"], &["3", "1, 2"]),
    (&["info", "qib0", "x"], &["x", "1, 2"]),
    (&["info", "qib0", "+1"], &["+1", "1, 2"]),
    (&["info", "-d", "sim:qle7340", "qib0", "2"], &["2", "valid: 1"]),
    (&["info", "-l", "-s"], &["--list-of-cas", "--short"]),
    (&["selftest", "--wrong", "colour"], &["colour", "eeprom-checksum-bad"]),
    (&["selftest", "-d", "sim:"], &["sim:qle7340"]),
    (&["counters", "-d", "sim:qle7340:1"], &["sim:qle7340"]),
    (&["port"], &["DEV:PORT"]),
    (&["port", "sim"], &["sim:1"]),
    (&["port", "sim:0"], &["sim:1"]),
    (&["port", "sim:3"], &["sim:1"]),
    (&["port", "sim:+1"], &["+1", "1 and 2", "sim:1"]),
    (&["port", "sim:01"], &["01", "1 and 2", "sim:1"]),
    (&["port", "sim:1", "explode"], &["explode", "enable, disable, poll, arm, active"]),
    (&["port", "sim:qle7340:2"], &["port 2", "valid: 1"]),
    (&["port", "sim:qle9999:1"], &["qle9999", "sim:qle7340"]),
    (&["regs", "--map", "--up"], &["--map", "--up"]),
    (&["sim", "serve"], &["--socket"]),
    (&["sim", "qemu", "--only", "b"], &["--only b", "--guests 2"]),
    (&["sim", "qemu", "--guests", "3"], &["3", "1..=2"]),
    (&["sim", "qemu", "--kernel", "a,b"], &["a,b", "commas"]),
    (&["storm", "--policy", "nope"], &["nope", "inline", "guarded"]),
    (&["storm", "--storm", "rain"], &["rain", "egrfull"]),
    (&["storm", "--arbitration", "fair"], &["fair", "errors-first"]),
    (&["storm", "--set", "colour=1"], &["colour", "wire_ns", "entry_us"]),
    (&["storm", "--set", "measure_ms=0"], &["measure_ms=0", "1 to"]),
    (&["storm", "--options", "krcvqs=99"], &["krcvqs", "99", "0 to 17"]),
    (&["storm", "--modprobe-conf", "/nonexistent"], &["/nonexistent", "options ib_qib"]),
    (&["storm", "--sweep", "entry_us=3..1"], &["entry_us=3..1", "LOW below HIGH"]),
    (&["storm", "--sweep", "colour=1..2"], &["colour", "entry_us"]),
    (&["storm", "--seed", "x"], &["x", "--seed", "0 to 18446744073709551615"]),
    (&["storm", "--seed", "+1"], &["+1", "0 to 18446744073709551615"]),
    (&["storm", "--seed", "18446744073709551616"], &["0 to 18446744073709551615"]),
    (&["storm", "--set", "entry_us=abc"], &["entry_us=abc", "0 to 5"]),
    (&["storm", "--set", "entry_us"], &["NAME=VALUE", "wire_ns", "entry_us"]),
    (&["storm", "--sweep", "entry_us=1"], &["LOW..HIGH", "0 to 5"]),
    (&["storm", "--sweep", "entry_us=1..99"], &["entry_us=99", "0 to 5"]),
    (&["storm", "--sweep", "entry_us"], &["NAME=LOW..HIGH", "entry_us"]),
    (&["storm", "--real-time", "--set", "entry_us=1"], &["entry_us", "--real-time", "measure_ms, inject_ns"]),
    (&["options", "krcvq"], &["krcvq", "krcvqs", "singleport"]),
    (&["options", "--check", "/nonexistent/ib_qib.conf"], &["/nonexistent/ib_qib.conf", "modprobe.d"]),
    (&["options", "--check", "/"], &["modprobe.d"]),
    (&["options", "--check"], &["FILE"]),
    (&["storm", "--policy", "brave"], &["brave", "guarded", "decoder-only"]),
    (&["storm", "--storm", "snow"], &["snow", "egrfull", "alternate"]),
    (&["storm", "--options", "krcvqs=99"], &["krcvqs", "99", "17"]),
    (&["storm", "--set", "entry=1"], &["entry", "entry_us"]),
    (&["storm", "--set", "entry_us=99"], &["entry_us=99", "0 to 5"]),
    (&["storm", "--sweep", "entry_us=3..1"], &["entry_us=3..1", "LOW below HIGH"]),
    (
        &["storm", "--modprobe-conf", "/nonexistent/ib_qib.conf"],
        &["/nonexistent/ib_qib.conf", "options ib_qib"],
    ),
    (&["storm", "--real-time", "--sweep", "entry_us=1..2"], &["--real-time", "--sweep"]),
    (&["completions", "tcsh"], &["tcsh", "bash"]),
    (&["completions", "bash", "--json"], &["--json"]),
    (&["-q", "-v", "regs", "--map"], &["--quiet", "--verbose"]),
];

#[test]
fn bad_input_is_refused_with_cause_and_valid_range() {
    for (args, words) in TABLE {
        let run = qhca(args);
        assert_eq!(run.code, 2, "qhca {args:?}: {}{}", run.stdout, run.stderr);
        assert_eq!(run.stdout, "", "qhca {args:?}");
        for word in *words {
            assert!(run.stderr.contains(word), "qhca {args:?} does not say {word:?}:\n{}", run.stderr);
        }
        assert!(!run.stderr.contains("panicked"), "qhca {args:?}:\n{}", run.stderr);
    }
}

/// Whatever is typed, a message can be read: no word of it is repeated at full length.
#[test]
fn long_words_are_cut_in_every_message() {
    let long = "x".repeat(9000);
    let figure = format!("entry_us={long}");
    let device = format!("sim:{long}");
    let cases: &[&[&str]] = &[
        &[&long],
        &["decode", &long],
        &["decode", "--scope", &long, "1"],
        &["regs", "--map", &long],
        &["info", "-d", &device],
        &["info", &long],
        &["info", "qib0", &long],
        &["port", &long],
        &["port", &device],
        &["port", "sim:1", &long],
        &["storm", "--policy", &long],
        &["storm", "--seed", &long],
        &["storm", "--set", &long],
        &["storm", "--set", &figure],
        &["storm", "--sweep", &figure],
        &["storm", "--options", &long],
        &["options", &long],
        &["selftest", "--wrong", &long],
        &["completions", &long],
    ];
    for args in cases {
        let run = qhca(args);
        let shown: Vec<_> = args.iter().map(|word| &word[..word.len().min(20)]).collect();
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{shown:?}: {}", run.stderr);
        assert!(!run.stderr.contains(&long[..65]) && run.stderr.len() < 3000, "{shown:?}: {}", run.stderr);
    }
}

#[test]
fn card_that_is_not_on_this_machine_is_missing_and_no_bad_input() {
    for device in ["ffff:04:1f.7", "vfio:ffff:04:1f.7", "vfio:FFFF:04:1F.7,group,intx"] {
        let run = qhca(&["regs", "-d", device]);
        assert_eq!((run.code, run.stdout.as_str()), (3, ""), "{device}: {}", run.stderr);
        assert!(run.stderr.contains("no PCI function ffff:04:1f.7"), "{}", run.stderr);
    }
    for device in ["vfio:", "vfio:04:00", "04:00.8", "vfio:04:00.0,fast"] {
        let run = qhca(&["regs", "-d", device]);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{device}: {}", run.stderr);
    }
}

#[test]
fn socket_that_nobody_serves_is_missing_and_the_remedy_says_how_to_serve_it() {
    let run = qhca(&["regs", "-d", "vfio-user:/nowhere/qhca.sock"]);
    assert_eq!((run.code, run.stdout.as_str()), (3, ""), "{}", run.stderr);
    assert!(run.stderr.contains("qhca sim serve --socket /nowhere/qhca.sock"), "{}", run.stderr);
}
