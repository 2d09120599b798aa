//! A simulated card in another process: the whole command works on it, and every scenario gives what it gives here.

mod common;

use common::{command, json_of, qhca, root, stdout_of};
use qhca_sim::chip::WrongChip;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::Mutex;

/// A server process with a card or two, ended with the test.
struct Served {
    child: Child,
    dir: PathBuf,
}

impl Served {
    fn start(name: &str, cards: usize, more: &[&str]) -> Self {
        let dir = std::env::temp_dir().join(format!("qhca-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory for sockets");
        let mut serve = command();
        serve.args(["sim", "serve", "--control"]).arg(dir.join("control")).args(more);
        for n in 0..cards {
            serve.arg("--socket").arg(dir.join(format!("card{n}")));
        }
        let mut child = serve.stderr(Stdio::piped()).spawn().expect("a server");
        // It says so when all its sockets are there.
        let mut line = String::new();
        let said = BufReader::new(child.stderr.take().expect("a pipe")).read_line(&mut line);
        assert!(said.is_ok() && line.contains("serving"), "{line}");
        Self { child, dir }
    }

    fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    fn device(&self, card: usize) -> String {
        format!("vfio-user:{}", self.path(&format!("card{card}")))
    }

    fn order(&self, words: &str) -> Value {
        let control = self.path("control");
        let mut args = vec!["sim", "ctl", "--control", &control];
        args.extend(words.split(' '));
        json_of(&args)
    }

    fn selftest(&self, more: &[&str]) -> Vec<(String, String, Value)> {
        let (device, control) = (self.device(0), self.path("control"));
        checks(&[&["selftest", "-d", &device, "--control", &control][..], more].concat())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended already, which the test then has noticed.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Name, result and reason of every check.
fn checks(args: &[&str]) -> Vec<(String, String, Value)> {
    let run = qhca(&[args, &["--json"]].concat());
    let report: Value =
        serde_json::from_str(&run.stdout).unwrap_or_else(|e| panic!("{e}: {} {}", run.stdout, run.stderr));
    let text = |check: &Value, name: &str| check[name].as_str().expect("a word").to_owned();
    let checks = report["checks"].as_array().expect("checks").iter();
    checks.map(|check| (text(check, "name"), text(check, "result"), check["why"].clone())).collect()
}

/// Checks that may be skipped on a served card and are not on one in this process, with the reason.
const MAY_BE_SKIPPED: &[(&str, &str)] = &[];

#[test]
fn served_card_passes_as_many_checks_as_one_in_this_process() {
    let here = checks(&["selftest", "-d", "sim"]);
    let there = Served::start("same", 1, &[]).selftest(&[]);
    let names =
        |checks: &[(String, String, Value)]| checks.iter().map(|check| check.0.clone()).collect::<Vec<_>>();
    assert_eq!(names(&here), names(&there));
    assert_eq!(here.len(), qhca_hwtests::count());
    for (here, there) in here.iter().zip(&there) {
        let permitted = MAY_BE_SKIPPED.iter().any(|(name, _)| *name == there.0) && there.1 == "skip";
        assert!(permitted || here.1 == there.1, "here {here:?}, in another process {there:?}");
    }
}

/// Servers of wrong chips at a time: they sleep most of it.
const AT_A_TIME: usize = 4;

/// The scenarios notice what is wrong through the socket as they do without. Beside the check that must fail runs one that
/// must pass: a chip that is wrong in everything would prove nothing.
#[test]
fn every_wrong_chip_is_noticed_in_another_process() {
    let left = Mutex::new(WrongChip::ALL.into_iter());
    let unnoticed = Mutex::new(Vec::new());
    let take = || left.lock().expect("no thread panicked").next();
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(wrong) = take() {
                    let fails = qhca_hwtests::noticed_by(wrong);
                    let passes = if fails == "scratch" { "identify" } else { "scratch" };
                    let served = Served::start(wrong.name(), 1, &["--wrong", wrong.name()]);
                    let checks = served.selftest(&["--only", fails, "--only", passes]);
                    let result =
                        |name: &str| checks.iter().find(|check| check.0 == name).map(|check| &*check.1);
                    if (result(fails), result(passes)) != (Some("fail"), Some("pass")) {
                        unnoticed.lock().expect("no thread panicked").push((wrong.name(), checks));
                    }
                }
            });
        }
    });
    let unnoticed = unnoticed.into_inner().expect("no thread panicked");
    assert!(unnoticed.is_empty(), "{unnoticed:#?}");
}

#[test]
fn every_command_works_on_a_served_card() {
    let served = Served::start("commands", 1, &[]);
    let device = served.device(0);
    let info = json_of(&["info", "-d", &device]);
    assert_eq!(info["node_guid"], "0x0011750000700001");
    assert_eq!(json_of(&["info", "-d", &device, "--no-link"])["node_guid"], info["node_guid"]);
    let revision = json_of(&["regs", "-d", &device, "Revision"]);
    assert_eq!(revision[0]["value"], json_of(&["regs", "Revision"])[0]["value"]);
    assert!(stdout_of(&["regs", "-d", &device, "--up"]).len() > 100);
    assert!(
        json_of(&["counters", "-d", &device]).is_object() || json_of(&["counters", "-d", &device]).is_array()
    );
    assert_eq!(json_of(&["port", &format!("{device}:2")])["port"], 2);
    let unmodelled = qhca(&["regs", "-d", &device, "--unmodelled"]);
    assert_eq!(unmodelled.code, 3);
    assert!(unmodelled.stderr.contains("sim ctl"), "{}", unmodelled.stderr);
}

#[test]
fn device_has_one_client_at_a_time_and_is_free_again_when_that_goes() {
    use std::os::unix::net::UnixStream;
    let served = Served::start("busy", 1, &[]);
    let holder = UnixStream::connect(served.path("card0")).expect("connected");
    let busy = qhca(&["info", "--no-link", "-d", &served.device(0)]);
    assert_eq!(busy.code, 3, "{}", busy.stderr);
    assert!(busy.stderr.contains("another client"), "{}", busy.stderr);
    drop(holder);
    stdout_of(&["info", "--no-link", "-d", &served.device(0)]);
}

#[test]
fn orders_change_what_the_card_sees() {
    let served = Served::start("orders", 2, &["--cable", "a:1=b:1"]);
    assert_eq!(served.order("state")["cards"][0]["ports"][0]["cable"]["to"], "b:1");
    served.order("cable b:1 out");
    assert_eq!(served.order("state")["cards"][0]["ports"][0]["cable"]["plugged"], false);
    served.order("inject b ErrStatus RcvEgrFullErr");
    assert_eq!(served.order("read b ErrStatus")["value"], "0x1000");
    assert_eq!(served.order("read a ErrStatus")["value"], "0x0");
    served.order("module a:2 out");
    assert_eq!(served.order("state")["cards"][0]["ports"][1]["module"], false);
    served.order("remove a");
    let gone = qhca(&["regs", "-d", &served.device(0), "Revision"]);
    assert_eq!(gone.code, 4, "{}", gone.stderr);
    served.order("return a");
    stdout_of(&["regs", "-d", &served.device(0), "Revision"]);
}

/// The control socket's answers have the shapes that docs/json.md promises.
#[test]
fn answers_have_the_shapes_of_the_document() {
    let served = Served::start("shapes", 2, &["--cable", "a:1=b:1,a:2=b:2"]);
    let document = std::fs::read_to_string(root().join("docs/json.md")).expect("docs/json.md");
    let blocks: Vec<Value> = document
        .split("\n```json answer\n")
        .skip(1)
        .map(|rest| serde_json::from_str(rest.split("\n```").next().expect("a block")).expect("JSON"))
        .collect();
    assert_eq!(blocks.len(), 2);
    for (promise, order) in blocks.iter().zip(["state", "stats"]) {
        if let Some(why) = common::differs(promise, &served.order(order), order) {
            panic!("{order}: {why}");
        }
    }
}

/// One wake-up in ten milliseconds, at a hundred microseconds each, would be a hundredth of a core.
#[test]
fn server_that_nobody_uses_hardly_wakes() {
    let served = Served::start("idle", 2, &["--cable", "a:1=b:1,a:2=b:2"]);
    let wakeups = |stats: &Value| stats["wakeups"].as_u64().expect("a count");
    let cpu = |stats: &Value| {
        stats["cpu_user_ns"].as_u64().expect("a time") + stats["cpu_system_ns"].as_u64().expect("a time")
    };
    let before = served.order("stats");
    std::thread::sleep(std::time::Duration::from_millis(500));
    let after = served.order("stats");
    // The order itself wakes it: to accept, to answer, to see the end of the connection.
    let woken = wakeups(&after) - wakeups(&before);
    assert!(woken <= 10, "{woken} wake-ups in half a second");
    let span = after["uptime_ns"].as_u64().expect("a time") - before["uptime_ns"].as_u64().expect("a time");
    let used = cpu(&after) - cpu(&before);
    assert!(used * 100 < span, "{used} ns of processor time in {span} ns");
}

/// Two processes, each with a card of one fabric: the client's table, and the server's banner.
#[test]
fn tools_of_two_processes_measure_the_fabric_between_them() {
    let served = Served::start("perf", 2, &["--cable", "a:1=b:1"]);
    for (n, tool) in
        [&["write-bw", "-s", "4096"][..], &["send-bw", "-b", "-s", "1024"], &["write-lat"], &["read-lat"]]
            .iter()
            .enumerate()
    {
        // A port of this process alone: the number is the process's.
        let port = (20_000 + (std::process::id() % 10_000) + 10_000 * (n as u32 & 1)).to_string();
        let common = [tool, &["-n", "20", "-p", &port][..]].concat();
        let (server_dev, client_dev) = (served.device(0), served.device(1));
        let mut server = command()
            .args([&common[..], &["-d", &server_dev]].concat())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a server");
        let mut out = BufReader::new(server.stdout.take().expect("a pipe"));
        let mut line = String::new();
        while !line.contains("Waiting for client") {
            line.clear();
            assert!(out.read_line(&mut line).expect("its words") > 0, "the server ended");
        }
        let report = json_of(&[&common[..], &["-d", &client_dev, "127.0.0.1"]].concat());
        assert_eq!(report["results"][0]["iterations"], 20, "{report}");
        assert!(server.wait().expect("it ends").success(), "{tool:?}");
    }
}

/// What the two sides of a ping-pong say to each other is what the stock programs say: a line of 51 characters and a zero
/// byte, and "done".
#[test]
fn ping_pong_speaks_the_stock_exchange() {
    use std::io::{Read, Write};
    let served = Served::start("pingpong", 2, &["--cable", "a:1=b:1"]);
    let port = (31_000 + std::process::id() % 1000).to_string();
    // A server of ours, and a client whose words are looked at on the way.
    let relay = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let relay_port = relay.local_addr().expect("it has one").port().to_string();
    let mut server = command()
        .args(["rc-pingpong", "-n", "50", "-p", &port, "-d", &served.device(0)])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a server");
    let mut line = String::new();
    BufReader::new(server.stderr.take().expect("a pipe")).read_line(&mut line).expect("its words");
    assert!(line.contains("waiting for a client"), "{line}");
    let mut client = command()
        .args(["rc-pingpong", "-n", "50", "-p", &relay_port, "-d", &served.device(1), "127.0.0.1"])
        .stdout(Stdio::null())
        .spawn()
        .expect("a client");
    let mut from_client = relay.accept().expect("the client").0;
    let mut to_server =
        std::net::TcpStream::connect(("127.0.0.1", port.parse().expect("a port"))).expect("ours");
    let mut words = [0; 52];
    from_client.read_exact(&mut words).expect("its address");
    assert_eq!((words[4], words[11], words[18], words[51]), (b':', b':', b':', 0));
    assert!(words[19..51].iter().all(u8::is_ascii_hexdigit), "{words:?}");
    to_server.write_all(&words).expect("passed on");
    to_server.read_exact(&mut words).expect("the server's");
    from_client.write_all(&words).expect("passed on");
    let mut done = [0; 5];
    from_client.read_exact(&mut done).expect("its last word");
    assert_eq!(&done, b"done\0");
    to_server.write_all(&done).expect("passed on");
    assert!(client.wait().expect("it ends").success());
    assert!(server.wait().expect("it ends").success());
}
