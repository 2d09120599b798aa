//! The bandwidth and latency tools on two simulated HCAs: columns, figures, exit codes.

mod common;

use common::{json_of, qhca, stdout_of};

#[test]
fn all_sizes_print_a_line_each_under_the_columns_that_users_know() {
    let stdout = stdout_of(&["write-bw", "-a", "-n", "3"]);
    assert!(stdout.contains("RDMA_Write BW Test"), "{stdout}");
    assert!(
        stdout.contains(" #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]")
    );
    for power in 1..=23 {
        let bytes = (1_u32 << power).to_string();
        let line = stdout.lines().find(|line| line.split_whitespace().next() == Some(&bytes));
        let fields: Vec<&str> =
            line.unwrap_or_else(|| panic!("{bytes}: {stdout}")).split_whitespace().collect();
        assert_eq!((fields.len(), fields[1]), (5, "3"), "{fields:?}");
        let figures: Vec<f64> = fields[2..].iter().map(|field| field.parse().expect("a figure")).collect();
        assert!(figures[0] >= figures[1] && figures[1] > 0.0, "{fields:?}");
    }
    assert!(stdout.contains("payload of every buffer was checked"), "{stdout}");
}

#[test]
fn every_tool_measures_and_checks_what_it_is_for() {
    for (args, verb) in [
        (&["read-bw", "-s", "5000", "-n", "40", "-q", "3", "--verify"][..], "RDMA_Read BW"),
        (&["send-bw", "-c", "UD", "-m", "2048", "-n", "40"][..], "Send BW"),
        (&["send-bw", "-c", "uc", "-b", "-n", "40", "-I", "64", "-s", "40"][..], "Send Bidirectional BW"),
        (&["send-bw", "--use-srq", "-q", "4", "-n", "40", "-e"][..], "Send BW"),
        (&["atomic-bw", "-n", "40", "-A", "cmp_and_swap"][..], "Atomic BW"),
        (&["write-bw", "-n", "40", "-l", "4", "-Q", "8", "-t", "16", "--report_gbits"][..], "Post List BW"),
        (&["write-lat", "-n", "40", "-s", "64"][..], "RDMA_Write Latency"),
        (&["read-lat", "-n", "40"][..], "RDMA_Read Latency"),
        (&["send-lat", "-n", "40", "-c", "UD", "-U"][..], "Send Latency"),
        (&["atomic-lat", "-n", "40"][..], "Atomic Latency"),
    ] {
        let stdout = stdout_of(args);
        assert!(stdout.contains(verb), "qhca {args:?}: {stdout}");
    }
}

#[test]
fn as_many_messages_are_sent_as_fit_unless_a_number_is_given() {
    let of = |args: &[&str]| json_of(args)["results"][0]["iterations"].as_u64().expect("a number");
    assert_eq!(of(&["send-lat", "-n", "77"]), 77);
    assert_eq!(of(&["write-bw", "-s", "64", "-n", "50", "-q", "2"]), 100);
    let free = of(&["write-bw", "-s", "262144"]);
    assert!((1..=5000).contains(&free), "{free}");
    let timed = json_of(&["write-bw", "-s", "64", "-D", "1"]);
    assert!(timed["results"][0]["bw_peak_mb_s"].is_null(), "{timed}");
}

#[test]
fn figure_below_the_bar_is_exit_code_1_with_the_table_all_the_same() {
    let run = qhca(&["write-bw", "-s", "64", "-n", "20", "--fail-below", "1000000"]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(run.stderr.contains("64 bytes") && run.stdout.contains("#iterations"), "{}", run.stderr);
    assert_eq!(qhca(&["write-bw", "-s", "64", "-n", "20", "--fail-below", "0.000001"]).code, 0);
}

/// B171: fewer receives than messages under way are worth a word.
#[test]
fn receives_that_are_too_few_are_warned_of_with_what_suffices() {
    let run = qhca(&["send-bw", "-r", "4", "-n", "20", "-s", "64"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stderr.contains("-r 128"), "{}", run.stderr);
}

#[test]
fn what_cannot_be_measured_is_refused_with_what_can() {
    for (args, words) in [
        (&["write-bw", "-c", "UD"][..], &["UD", "RC, UC"][..]),
        (&["read-lat", "-c", "uc"][..], &["valid: RC"][..]),
        (&["send-bw", "-c", "UD", "-s", "4097"][..], &["4097", "4096"][..]),
        (&["atomic-bw", "-s", "16"][..], &["16", "8"][..]),
        (&["write-bw", "-m", "1500"][..], &["1500", "2048"][..]),
        (&["write-bw", "-l", "200"][..], &["200", "128"][..]),
        (&["write-bw", "somewhere"][..], &["sim serve", "vfio-user"][..]),
        (&["write-bw", "-d", "sim:qle7340", "-i", "2"][..], &["valid: 1"][..]),
        (&["write-bw", "-o", "17"][..], &["17", "16"][..]),
        (&["write-bw", "-s", "0"][..], &["0"][..]),
    ] {
        let run = qhca(args);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "qhca {args:?}: {}", run.stderr);
        for word in words {
            assert!(run.stderr.contains(word), "qhca {args:?}: {}", run.stderr);
        }
    }
}
