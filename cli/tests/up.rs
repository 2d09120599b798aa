//! A device that one process holds: others look at it, a second holder is told, and no way to end leaves a trace that
//! hinders the next.

mod common;

use common::{Run, command, differs, root};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A folder for locks and sockets, and maybe a process that holds the simulated device in it.
struct Place {
    folder: PathBuf,
    held: Option<(Child, BufReader<ChildStdout>)>,
}

impl Place {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("qhca-up-{name}-{}", std::process::id()));
        // A run that was ended may have left it.
        let _ = std::fs::remove_dir_all(&folder);
        Self { folder, held: None }
    }

    fn up(mut self, more: &[&str]) -> Self {
        let mut child = self.command(&[&["up"], more].concat()).spawn().expect("it starts");
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        out.read_line(&mut line).expect("it says that it is up");
        assert!(line.contains("is up"), "{line} {}", end_of(&mut child));
        self.held = Some((child, out));
        self
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = command();
        command.args(args).env("QHCA_RUN_DIR", &self.folder).env_remove("NOTIFY_SOCKET");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, args: &[&str]) -> Run {
        let output = self.command(args).output().expect("it runs");
        Run {
            code: output.status.code().expect("it ends by itself"),
            stdout: String::from_utf8(output.stdout).expect("UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("UTF-8"),
        }
    }

    fn json(&self, args: &[&str]) -> Value {
        let run = self.run(&[args, &["--json"]].concat());
        assert_eq!(run.code, 0, "{args:?}: {}", run.stderr);
        serde_json::from_str(&run.stdout).expect("JSON")
    }

    fn pid(&self) -> u32 {
        self.held.as_ref().expect("somebody holds it").0.id()
    }

    fn connect(&self) -> Asker {
        let socket = UnixStream::connect(self.folder.join("sim.sock")).expect("it listens");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket");
        Asker(BufReader::new(socket))
    }

    /// Sends a signal and gives the exit code; `None` if the signal ended it.
    fn end(&mut self, signal: &str) -> Option<i32> {
        let (mut child, _out) = self.held.take().expect("somebody holds it");
        let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().expect("kill runs");
        assert!(sent.success());
        child.wait().expect("it ends").code()
    }

    fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.folder).expect("a folder").flatten();
        let mut names: Vec<String> = entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some((child, _)) = &mut self.held {
            // It may have ended already, which the test then has noticed.
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn end_of(child: &mut Child) -> String {
    let mut text = String::new();
    // What it said helps; that it said nothing is no second failure.
    let _ = child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut text));
    text
}

/// A connection to the socket.
struct Asker(BufReader<UnixStream>);

impl Asker {
    fn ask(&mut self, question: &str) -> Value {
        writeln!(self.0.get_mut(), "{question}").expect("it is heard");
        let mut line = String::new();
        self.0.read_line(&mut line).expect("it answers");
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{question}: {e} in {line:?}"))
    }
}

#[test]
fn held_device_is_looked_at_by_every_command_that_only_looks() {
    let place = Place::new("look").up(&[]);
    let start = Instant::now();
    let info = loop {
        let info = place.json(&["info", "-d", "up:sim"]);
        // The links train meanwhile.
        if info["ports"][0]["physical_state"] == "LinkUp" || start.elapsed() > Duration::from_secs(20) {
            break info;
        }
    };
    assert_eq!((&info["name"], &info["ports"][0]["physical_state"]), (&json!("qib0"), &json!("LinkUp")));
    let text = place.run(&["info", "-d", "up:sim", "qib0", "1"]).stdout;
    assert!(text.starts_with("CA: 'qib0'\nPort 1:\nState: "), "{text}");
    let counters = place.json(&["counters", "-d", "up:sim"]);
    assert!(counters["device"][0]["total"].is_u64(), "{counters}");
    let ipath = place.run(&["counters", "-d", "up:sim", "--ipath"]).stdout;
    assert!(ipath.contains("\nInterrupts: "), "{ipath}");
    let revision = place.json(&["regs", "-d", "up:sim", "Revision"]);
    assert_eq!(revision[0]["value"], json!("0x202010602"));
    let all = place.json(&["regs", "-d", "up:sim", "--all"]);
    assert!(all.as_array().expect("registers").len() > 500);
    assert_eq!(place.run(&["info", "--cables", "-d", "up:sim"]).stdout.lines().count(), 2);
}

#[test]
fn events_are_kept_numbered_and_followed() {
    let place = Place::new("events").up(&[]);
    let start = Instant::now();
    let lines = loop {
        let run = place.run(&["events", "--json"]);
        assert_eq!(run.code, 0, "{}", run.stderr);
        // Both ports have a module and a peer.
        if run.stdout.lines().count() >= 4 || start.elapsed() > Duration::from_secs(20) {
            break run.stdout;
        }
    };
    let numbers: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["number"].clone())
        .collect();
    assert!(numbers.len() >= 4 && numbers[0] == 0 && numbers[3] == 3, "{lines}");
    assert_eq!(place.run(&["events", "--from", "3"]).stdout.lines().count(), numbers.len() - 3);
    let nobody = Place::new("nobody").run(&["events"]);
    assert!(nobody.code == 3 && nobody.stderr.contains("qhca up -d DEV"), "{}", nobody.stderr);
}

/// The middle of some measured times: one slow answer on a busy machine is not the holder's.
fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

#[test]
fn info_and_counters_are_answered_within_50_ms() {
    let place = Place::new("fast").up(&[]);
    let mut asker = place.connect();
    for question in ["{\"ask\": \"info\"}", "{\"ask\": \"counters\"}"] {
        let times = (0..21).map(|_| {
            let start = Instant::now();
            assert_eq!(asker.ask(question)["ok"], json!(true));
            start.elapsed()
        });
        let median = median(times.collect());
        assert!(median <= Duration::from_millis(50), "{question}: {median:?}");
    }
}

/// B120: the second is told who is there, and the first goes on.
#[test]
fn second_holder_is_told_the_pid_and_command_of_the_first() {
    let place = Place::new("second").up(&[]);
    let run = place.run(&["up", "-d", "sim"]);
    assert_eq!(run.code, 3);
    assert!(
        run.stderr.contains(&format!("process {}", place.pid())) && run.stderr.contains(" up)"),
        "{}",
        run.stderr
    );
    assert_eq!(place.run(&["info", "-d", "up:sim", "-l"]).stdout, "qib0\n");
}

#[test]
fn after_a_kill_the_next_holder_finds_nothing_in_its_way() {
    let mut place = Place::new("kill").up(&[]);
    assert_eq!(place.end("-KILL"), None);
    assert_eq!(place.files(), ["sim.lock", "sim.sock"], "a killed process tidies nothing");
    assert_eq!(place.run(&["info", "-d", "up:sim"]).code, 3, "nobody answers there");
    let mut place = place.up(&[]);
    assert_eq!(place.run(&["info", "-d", "up:sim", "-l"]).stdout, "qib0\n");
    assert_eq!(place.end("-TERM"), Some(0));
    assert_eq!(place.files(), [""; 0]);
}

#[test]
fn sigterm_and_sigint_end_it_in_order() {
    for signal in ["-TERM", "-INT"] {
        let mut place = Place::new(&format!("end{signal}")).up(&[]);
        assert_eq!(place.end(signal), Some(0), "{signal}");
        assert_eq!(place.files(), [""; 0], "{signal}");
    }
}

/// What a unit of `Type=notify` waits for.
#[test]
fn service_manager_is_told_when_the_device_is_up_and_when_it_goes() {
    let mut place = Place::new("notify");
    std::fs::create_dir_all(&place.folder).expect("a folder");
    let heard = UnixDatagram::bind(place.folder.join("notify")).expect("a socket");
    heard.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
    let mut child =
        place.command(&["up"]).env("NOTIFY_SOCKET", place.folder.join("notify")).spawn().expect("it starts");
    let out = BufReader::new(child.stdout.take().expect("a pipe"));
    place.held = Some((child, out));
    let hear = || {
        let mut room = [0; 64];
        let len = heard.recv(&mut room).expect("it says something");
        String::from_utf8_lossy(&room[..len]).into_owned()
    };
    assert_eq!(hear(), "READY=1");
    assert_eq!(place.end("-TERM"), Some(0));
    assert_eq!(hear(), "STOPPING=1");
}

#[test]
fn socket_is_the_users_alone_unless_a_group_is_named() {
    let mode = |place: &Place| {
        std::fs::metadata(place.folder.join("sim.sock")).expect("a socket").permissions().mode() & 0o777
    };
    assert_eq!(mode(&Place::new("own").up(&[])), 0o600);
    let gid = Command::new("id").arg("-g").output().expect("id runs").stdout;
    let gid = String::from_utf8(gid).expect("a number");
    assert_eq!(mode(&Place::new("group").up(&["--group", gid.trim()])), 0o660);
    let run = Place::new("nogroup").run(&["up", "--group", "no-such-group"]);
    assert!(run.code == 2 && run.stderr.contains("no-such-group"), "{}", run.stderr);
}

#[test]
fn hostile_and_silent_clients_hinder_nobody_and_nothing_can_be_written() {
    let place = Place::new("hostile").up(&[]);
    let mut asker = place.connect();
    for bad in [
        "nonsense",
        "{\"ask\": \"write\", \"offset\": 0, \"value\": 1}",
        "{\"ask\": \"read\", \"offsets\": [4]}",
        "{\"ask\": \"read\", \"offsets\": [4294967288]}",
        "{\"ask\": \"read\", \"offsets\": [-1]}",
        // encryption_key_low may only be written.
        "{\"ask\": \"read\", \"offsets\": [384]}",
    ] {
        let answer = asker.ask(bad);
        assert_eq!((&answer["ok"], &answer["code"]), (&json!(false), &json!(2)), "{bad}: {answer}");
    }
    let many = format!("{{\"ask\": \"read\", \"offsets\": {:?}}}", vec![0; 513]);
    assert_eq!(asker.ask(&many)["ok"], json!(false));
    let silent: Vec<Asker> = (0..40).map(|_| place.connect()).collect();
    let mut endless = place.connect();
    // The server closes in the middle of it.
    let _ = endless.0.get_mut().write_all(&vec![b'x'; 1 << 20]);
    assert_eq!(asker.ask("{\"ask\": \"holder\"}")["result"]["pid"], json!(place.pid()));
    let mut deaf = place.connect();
    drop(silent);
    for _ in 0..200 {
        // It asks and never reads.
        if writeln!(deaf.0.get_mut(), "{{\"ask\": \"counters\"}}").is_err() {
            break;
        }
    }
    assert_eq!(asker.ask("{\"ask\": \"info\"}")["ok"], json!(true));
    assert_eq!(place.run(&["info", "-d", "up:sim", "-l"]).stdout, "qib0\n");
}

#[test]
fn answers_have_the_shapes_that_are_promised() {
    let place = Place::new("shapes").up(&[]);
    let document = std::fs::read_to_string(root().join("docs/json.md")).expect("docs/json.md is there");
    let (_, section) = document.split_once("\n## up\n").expect("a section");
    let (_, block) = section.split_once("```json line\n").expect("a block");
    let (block, _) = block.split_once("\n```").expect("a block is closed");
    let lines: Vec<&str> = block.lines().collect();
    assert!(lines.len() >= 8 && lines.len().is_multiple_of(2), "questions and answers");
    let mut asker = place.connect();
    let start = Instant::now();
    while asker.ask("{\"ask\": \"events\"}")["result"]["events"] == json!([]) {
        assert!(start.elapsed() < Duration::from_secs(20), "links make events");
        std::thread::sleep(Duration::from_millis(20));
    }
    for pair in lines.chunks(2) {
        let promise: Value = serde_json::from_str(pair[1]).unwrap_or_else(|e| panic!("{e}: {}", pair[1]));
        assert_eq!(differs(&promise, &asker.ask(pair[0]), ""), None, "{}", pair[0]);
    }
}

/// Interrupt mode rests: less than a hundredth of a core over two seconds.
#[test]
fn idle_holder_uses_less_than_a_hundredth_of_a_core() {
    let place = Place::new("idle").up(&[]);
    let used_ns = || -> u64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", place.pid())).expect("threads").flatten();
        let of_task = |path: PathBuf| std::fs::read_to_string(path.join("schedstat")).unwrap_or_default();
        tasks.filter_map(|task| of_task(task.path()).split(' ').next()?.parse::<u64>().ok()).sum()
    };
    // The links come up first.
    std::thread::sleep(Duration::from_secs(1));
    let (before, start) = (used_ns(), Instant::now());
    std::thread::sleep(Duration::from_secs(2));
    let share = (used_ns() - before) as f64 / start.elapsed().as_nanos() as f64;
    assert!(before > 0 && share < 0.01, "{share} of a core");
}

#[test]
fn device_that_is_none_or_options_that_are_wrong_are_refused_before_anything_is_held() {
    let place = Place::new("bad");
    for (args, said) in [
        (&["up", "-d", "mlx5_0"][..], "mlx5_0"),
        (&["up", "--options", "krcvqs=many"], "krcvqs"),
        (&["up", "--modprobe-conf", "/nonexistent/file"], "/nonexistent/file"),
    ] {
        let run = place.run(args);
        assert!(
            run.code == 2 && run.stderr.contains(said) && run.stdout.is_empty(),
            "{args:?}: {}",
            run.stderr
        );
    }
    assert!(!place.folder.exists() || place.files().is_empty());
}

fn promised_report() -> Value {
    let document = std::fs::read_to_string(root().join("docs/json.md")).expect("docs/json.md is there");
    let (_, after) = document.split_once("\n```json report\n").expect("a block");
    serde_json::from_str(after.split_once("\n```").expect("a block is closed").0).expect("JSON")
}

/// The files of an archive, by the system's own program.
fn unpacked(archive: &std::path::Path, name: &str) -> String {
    let output = Command::new("tar").arg("-xzOf").arg(archive).arg(format!("qhca-report/{name}")).output();
    String::from_utf8(output.expect("tar runs").stdout).expect("UTF-8")
}

#[test]
fn report_holds_what_the_commands_say_and_no_guid_if_so_wished() {
    let place = Place::new("report").up(&[]);
    for (masked, name) in [(false, "plain.tar.gz"), (true, "masked.tar.gz")] {
        let archive = place.folder.join(name);
        let path = archive.display().to_string();
        let mut args = vec!["report", "-d", "up:sim", "-o", &path];
        args.extend(masked.then_some("--mask-guids"));
        let told = place.json(&args);
        assert_eq!(differs(&promised_report(), &told, ""), None);
        assert!(told["parts"].as_array().expect("parts").len() >= 9, "{told}");
        let info = unpacked(&archive, "info.json");
        assert_eq!(info.contains("0x0011750000700001"), !masked, "{info}");
        assert!(info.contains("InfiniPath_QLE7342") && info.contains("exit status: 0"), "{info}");
        for part in
            ["regs.txt", "counters.json", "doctor.txt", "events.json", "versions.txt", "kernel-log.txt"]
        {
            let text = unpacked(&archive, part);
            assert!(text.len() > 20, "{part}: {text}");
            assert!(!masked || !text.contains("11750000700001"), "{part}");
        }
    }
    let run = place.run(&["report", "-d", "up:sim", "--no-open", "-o", "/nonexistent/folder/x.tar.gz"]);
    assert!(run.code == 5 && run.stderr.contains("/nonexistent/folder"), "{}", run.stderr);
}
