//! Questions to the ports of a fabric, and the ping-pongs of libibverbs' examples.

mod common;

use common::{json_of, qhca, stdout_of};

/// The value of a line `Name:....value`.
fn value<'a>(text: &'a str, name: &str) -> &'a str {
    let line = text.lines().find(|line| line.split(':').next() == Some(name));
    let line = line.unwrap_or_else(|| panic!("{name}: {text}"));
    line[name.len() + 1..].trim_start_matches('.')
}

#[test]
fn counters_of_both_ends_have_the_layout_of_perfquery() {
    let near = stdout_of(&["perfquery"]);
    assert!(near.starts_with("# Port counters: Lid 1 port 1 (CapMask: 0x"), "{near}");
    assert_eq!(
        near.lines().nth(3).map(|line| &line[..33]),
        Some("SymbolErrorCounter:.............0"),
        "{near}"
    );
    let far = stdout_of(&["perfquery", "2", "1"]);
    assert!(value(&far, "PortRcvPkts").parse::<u64>().expect("a number") > 0, "{far}");
    let extended = stdout_of(&["perfquery", "-x", "2"]);
    assert!(extended.starts_with("# Port extended counters: Lid 2 port 1"), "{extended}");
    assert!(value(&extended, "PortXmitPkts").parse::<u64>().expect("a number") > 0, "{extended}");
    assert_eq!(stdout_of(&["perfquery", "-R", "2"]), "");
}

#[test]
fn subnet_agent_of_the_other_end_answers_by_lid_and_by_path() {
    let node = stdout_of(&["smpquery", "nodeinfo", "2"]);
    assert!(node.starts_with("# Node info: Lid 2\n"), "{node}");
    assert_eq!((value(&node, "NodeType"), value(&node, "DevId")), ("Channel Adapter", "0x7322"));
    let by_path = stdout_of(&["smpquery", "-D", "ni", "0,1"]);
    assert_eq!(value(&by_path, "PortGuid"), value(&node, "PortGuid"));
    let own = stdout_of(&["smpquery", "-D", "ni", "0"]);
    assert_ne!(value(&own, "PortGuid"), value(&node, "PortGuid"));
    let port = stdout_of(&["smpquery", "portinfo", "2", "1"]);
    assert_eq!(
        ["Lid", "SMLid", "LinkState", "PhysLinkState", "LinkWidthActive"].map(|name| value(&port, name)),
        ["2", "1", "Active", "LinkUp", "4X"]
    );
    assert!(stdout_of(&["smpquery", "nodedesc", "2"]).contains("qhca"));
    assert!(stdout_of(&["smpquery", "pkeys", "2"]).contains("0xffff"));
    assert!(stdout_of(&["smpquery", "sl2vl", "2"]).contains("SL2VL"));
    assert!(stdout_of(&["smpquery", "guids", "2"]).contains("0x0011750000"));
}

#[test]
fn ping_tells_who_answers_and_a_lid_without_a_port_is_exit_code_1() {
    let run = stdout_of(&["ping", "2", "-c", "3"]);
    assert_eq!(run.lines().filter(|line| line.starts_with("Pong from qhca")).count(), 3, "{run}");
    assert!(run.contains("3 packets transmitted, 3 received, 0% packet loss"), "{run}");
    let nobody = qhca(&["ping", "7", "-t", "20"]);
    assert_eq!((nobody.code, nobody.stdout.as_str()), (1, ""), "{}", nobody.stderr);
    assert!(nobody.stderr.contains("Lid 7"), "{}", nobody.stderr);
    for (args, word) in [
        (&["ping", "0"][..], "49151"),
        (&["ping", "0xffff"], "49151"),
        (&["smpquery", "-D", "ni", "1,1"], "0,1"),
        (&["smpquery", "moon"], "nodeinfo"),
        (&["perfquery", "2", "1", "0x20000"], "0x1ffff"),
    ] {
        let run = qhca(args);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{args:?}: {}", run.stderr);
        assert!(run.stderr.contains(word), "{args:?}: {}", run.stderr);
    }
}

#[test]
fn ping_pongs_exchange_and_check_messages_in_this_process() {
    for (tool, args) in [
        ("rc-pingpong", &["-s", "10000"][..]),
        ("uc-pingpong", &["-m", "2048"]),
        ("ud-pingpong", &[]),
        ("rc-pingpong", &["-e", "-r", "1"]),
    ] {
        let stdout = stdout_of(&[&[tool, "-n", "30"], args].concat());
        assert!(stdout.contains("  local address:  LID 0x0001, QPN 0x"), "{stdout}");
        assert!(stdout.contains("30 iters in "), "{stdout}");
    }
    assert_eq!(json_of(&["ud-pingpong", "-n", "10"])["bytes"], 1024);
    assert_eq!(qhca(&["ud-pingpong", "-s", "5000"]).code, 2);
}

#[test]
fn stress_prints_a_line_a_second_and_the_average_and_checks_what_it_sends() {
    let stdout = stdout_of(&["stress", "-T", "2", "-t", "3", "-d", "4", "-q", "5000", "-a", "100"]);
    assert!(
        stdout.contains("tsks   tx/s   rx/s  tx+rx K/s    mbi K/s    mbo K/s tx us/c   rtt us cpu %"),
        "{stdout}"
    );
    let rows: Vec<Vec<&str>> = stdout
        .lines()
        .filter(|line| line.trim_start().starts_with("3 "))
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows.len(), 3, "{stdout}");
    assert_eq!(rows[2][9], "(average)");
    for row in &rows {
        let figures: Vec<f64> = row[1..4].iter().map(|text| text.parse().expect("a figure")).collect();
        assert!(figures.iter().all(|figure| *figure > 0.0), "{row:?}");
    }
    assert!(stdout.contains("RTT histogram"), "{stdout}");
    let one_way = json_of(&["stress", "-T", "1", "-o"]);
    assert_eq!(one_way["average"]["rx_per_s"], 0.0, "{one_way}");
    assert!(one_way["average"]["tx_per_s"].as_f64().expect("a figure") > 0.0, "{one_way}");
    for (args, word) in
        [(&["stress", "-q", "17M"][..], "16M"), (&["stress", "-t", "1024", "-d", "1024"], "32 MiB")]
    {
        let run = qhca(args);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{args:?}: {}", run.stderr);
        assert!(run.stderr.contains(word), "{}", run.stderr);
    }
}
