//! Cards of a machine: listed, bound on paper, and every wrong address refused.

mod common;

use common::{Run, differs, qhca, root};
use qhca_host::fake::FakeHost;
use serde_json::Value;
use std::path::PathBuf;

/// A copy of a made-up machine's files, removed with the test.
struct Copy(PathBuf);

impl Copy {
    fn of(name: &str, host: &FakeHost) -> Self {
        let folder = std::env::temp_dir().join(format!("qhca-host-{name}-{}", std::process::id()));
        // A run that was ended may have left it.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        host.write_to(&folder).expect("a copy");
        Self(folder)
    }

    fn run(&self, args: &[&str]) -> Run {
        let root = self.0.display().to_string();
        qhca(&[args, &["--root", &root]].concat())
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Two cards, one of them in use and in a group with a neighbour, one without a driver.
fn machine() -> FakeHost {
    let mut host = FakeHost::with_card("vfio-pci");
    host.add_function("0000:04:00.1", "0x020000", Some("e1000e"), Some(26));
    host.add_card("0000:05:00.0", None, Some(27));
    host.remove("/sys/bus/pci/devices/0000:05:00.0/current_link_speed");
    host.file("/sys/bus/pci/devices/0000:05:00.0/current_link_width", "255\n");
    host.process(611, "qhca\0up\0-d\0 04:00.0\0", &["/dev/vfio/26"]);
    host
}

#[test]
fn list_has_the_layout_of_binding_tools() {
    let run = Copy::of("list", &machine()).run(&["list"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let expected = "
InfiniBand HCAs using a VFIO driver
===================================
0000:04:00.0 'IBA7322 QDR InfiniBand HCA 7322' name=qib0 numa_node=0 group=26 link=5.0GT/s,x8 drv=vfio-pci unused= *Active*
  in use by process 611 (qhca up -d  04:00.0)
  same group: 0000:04:00.1 drv=e1000e
  the group is not viable: an ordinary driver has a member; `qhca doctor` says more

InfiniBand HCAs without a driver
================================
0000:05:00.0 'IBA7322 QDR InfiniBand HCA 7322' name=qib1 numa_node=0 group=27 link=unknown,x? drv= unused=vfio-pci
  odd: /sys/bus/pci/devices/0000:05:00.0/current_link_width says \"255\", which is not a number of lanes
";
    assert_eq!(run.stdout, expected);
}

/// The block of docs/json.md that begins with "```json WORD".
fn promised(word: &str) -> Value {
    let document = std::fs::read_to_string(root().join("docs/json.md")).expect("docs/json.md is there");
    let (_, after) = document.split_once(&format!("\n```json {word}\n")).expect("a block");
    let (shape, _) = after.split_once("\n```").expect("a block is closed");
    serde_json::from_str(shape).expect("JSON")
}

#[test]
fn list_and_bind_print_the_json_that_is_promised() {
    let copy = Copy::of("json", &machine());
    for (args, block) in
        [(&["list", "--json"][..], "list"), (&["bind", "05:00.0", "--dry-run", "--json"][..], "bind")]
    {
        let run = copy.run(args);
        assert_eq!(run.code, 0, "{}", run.stderr);
        let value: Value = serde_json::from_str(&run.stdout).expect("JSON");
        let value = match block {
            // The second card has neither neighbours nor a holder.
            "list" => Value::Array(value.as_array().expect("cards")[..1].to_vec()),
            _ => value,
        };
        assert_eq!(differs(&promised(block), &value, ""), None, "{value}");
    }
}

#[test]
fn machine_without_a_card_lists_none_and_binds_none() {
    let copy = Copy::of("none", &FakeHost::empty());
    let run = copy.run(&["list"]);
    assert!(run.code == 0 && run.stdout.contains("No 'QLogic 7322' devices detected"), "{}", run.stdout);
    let run = copy.run(&["bind", "--all"]);
    assert!(
        run.code == 3 && run.stdout.is_empty() && run.stderr.contains("no QLogic 7322"),
        "{}",
        run.stderr
    );
}

#[test]
fn steps_of_a_binding_are_printed_and_not_done() {
    let copy = Copy::of("dry", &machine());
    let run = copy.run(&["bind", "05:00.0", "--dry-run", "--persist", "--user", "1000"]);
    let steps: Vec<&str> = run.stdout.lines().collect();
    assert_eq!(steps.len(), 6, "{} {}", run.stdout, run.stderr);
    assert_eq!(steps[0], "echo vfio-pci > /sys/bus/pci/devices/0000:05:00.0/driver_override");
    assert_eq!(copy.run(&["bind", "05:00.0", "--dry-run"]).stdout.lines().count(), 2, "nothing was done");
}

#[test]
fn wrong_address_is_refused_and_a_right_one_of_nothing_is_missing() {
    let copy = Copy::of("wrong", &machine());
    for (bdf, code, said) in [
        ("qib0", 2, "no PCI address"),
        ("0000:04:20.0", 2, "device is above 0x1f"),
        ("0000:04:00.9", 2, "function is above 0x7"),
        ("04:00.1", 3, "no QLogic 7322"),
        ("0000:77:00.0", 3, "valid: 0000:04:00.0, 0000:05:00.0"),
    ] {
        let run = copy.run(&["bind", bdf]);
        assert!(run.code == code && run.stderr.contains(said), "{bdf}: {} {}", run.code, run.stderr);
        assert_eq!(run.stdout, "");
    }
    for bdf in ["05:00.0", "0000:05:00.0", "0000:05:00.0".to_uppercase().as_str()] {
        assert_eq!(copy.run(&["bind", "--dry-run", bdf]).code, 0, "{bdf}");
    }
}

/// B120: a card in use is not given away, and whoever uses it is named.
#[test]
fn card_in_use_is_not_given_away() {
    let run = Copy::of("busy", &machine()).run(&["unbind", "04:00.0"]);
    assert!(run.code == 3 && run.stderr.contains("process 611 (qhca up"), "{}", run.stderr);
}

#[test]
fn copy_of_a_machine_is_not_changed() {
    let run = Copy::of("copy", &machine()).run(&["bind", "05:00.0"]);
    assert!(run.code == 3 && run.stderr.contains("takes no orders"), "{}", run.stderr);
}

#[test]
fn user_that_is_not_there_is_refused() {
    let mut host = machine();
    host.file("/etc/passwd", "root:x:0:0::/root:/bin/sh\n");
    let run = Copy::of("user", &host).run(&["bind", "05:00.0", "--user", "bob"]);
    assert!(run.code == 2 && run.stderr.contains("bob"), "{}", run.stderr);
}

/// An old file of options beside a machine in order.
fn machine_with_old_options() -> FakeHost {
    let mut host = FakeHost::healthy("vfio-pci");
    host.file("/etc/modprobe.d/blacklist.conf", "blacklist nouveau\n");
    host.file("/etc/modprobe.d/ib_qib.conf", "options ib_qib krcvqs=2 pcie_caps=0x51 ibmtu=9\n");
    host
}

#[test]
fn doctor_finds_nothing_in_the_way_and_tells_what_old_options_mean_here() {
    let run = Copy::of("healthy", &machine_with_old_options()).run(&["doctor"]);
    assert_eq!(run.code, 0, "{} {}", run.stdout, run.stderr);
    for part in [
        "note  options     /etc/modprobe.d/ib_qib.conf",
        "krcvqs=2: ",
        "pcie_caps=0x51: ",
        "warning: ",
        "?     eeprom      not looked at, because this is a copy of a machine's files",
    ] {
        assert!(run.stdout.contains(part), "{part}: {}", run.stdout);
    }
    assert!(!run.stdout.contains("blacklist.conf"), "{}", run.stdout);
}

#[test]
fn doctors_exit_code_names_the_first_thing_in_the_way() {
    let mut host = machine_with_old_options();
    host.add_function("0000:04:00.1", "0x020000", Some("e1000e"), Some(26));
    host.file("/etc/modprobe.d/ib_qib.conf", "options ib_qib krcvqs=many\n");
    let copy = Copy::of("cause", &host);
    let run = copy.run(&["doctor", "-d", "04:00.0"]);
    assert!(run.code == 16 && run.stdout.contains("BAD   group"), "{}: {}", run.code, run.stdout);
    assert!(run.stdout.contains("not looked at, because"), "{}", run.stdout);
    let run = copy.run(&["doctor", "-d", "0000:77:00.0"]);
    assert!(
        run.code == 10 && run.stdout.contains("0000:77:00.0 is no QLogic 7322"),
        "{}: {}",
        run.code,
        run.stdout
    );
    let run = copy.run(&["doctor", "-d", "mlx5_0"]);
    assert!(run.code == 2 && run.stdout.is_empty(), "{}", run.stderr);
    let run = Copy::of("empty", &FakeHost::empty()).run(&["doctor"]);
    assert!(run.code == 10 && run.stdout.contains("mend:"), "{}", run.stdout);
}

#[test]
fn doctor_prints_the_json_that_is_promised() {
    let run = Copy::of("doctor-json", &machine_with_old_options()).run(&["doctor", "--json"]);
    let value: Value = serde_json::from_str(&run.stdout).expect("JSON");
    assert_eq!(differs(&promised("doctor"), &value, ""), None, "{value}");
}

/// The codes of `qhca doctor --help` are those of the checks.
#[test]
fn exit_codes_of_the_doctor_are_in_its_help() {
    let help = qhca(&["doctor", "--help"]).stdout;
    for check in qhca_host::doctor::Check::ALL {
        let (code, name) = (check.exit_code(), check.name());
        let may_be_bad = !matches!(name, "pcie" | "irqbalance" | "options" | "cable" | "link");
        let listed = help.lines().any(|line| line.contains(&format!("{code} {name} ")));
        assert_eq!(listed, may_be_bad, "{code} {name}: {help}");
    }
}

#[test]
fn doctor_looks_at_eeprom_cables_and_links_of_a_device_that_opens() {
    let run = qhca(&["doctor", "-d", "sim"]);
    assert_eq!(run.code, 0, "{} {}", run.stdout, run.stderr);
    for part in [
        "ok    eeprom      InfiniPath_QLE7342, GUID 0x0011750000700001",
        "ok    cable       port 1: ",
        "link        port 2: ",
    ] {
        assert!(run.stdout.contains(part), "{part}: {}", run.stdout);
    }
}

/// B21: on a machine without a card every command says so at once.
#[test]
fn machine_without_a_card_is_told_within_a_tenth_of_a_second() {
    let copy = Copy::of("fast", &FakeHost::empty());
    for args in [&["list"][..], &["doctor"], &["bind", "--all"]] {
        let fastest = (0..5).map(|_| {
            let start = std::time::Instant::now();
            copy.run(args);
            start.elapsed()
        });
        let fastest = fastest.min().expect("five runs");
        assert!(fastest.as_millis() < 100, "{args:?}: {fastest:?}");
    }
}
