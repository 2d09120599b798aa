//! A register read over vfio-user beside what any question over a Unix socket costs.
//!
//! The echo does nothing but receive and send messages of the same lengths, asleep in between: one call each. The server
//! has other descriptors to watch, so it sleeps in its event loop, one call more; while a client asks one question after
//! another it looks for the next a few microseconds before it does.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread::JoinHandle;

use qhca_driver::env::Backend;
use qhca_driver::vfio_user::{VfioUserBar, VfioUserDevice};
use qhca_regs::Bar;
use qhca_regs::map::device::{REVISION, SCRATCH};
use qhca_sim::chip::Config;
use qhca_sim::vfio_user::{Options, Server, Stop};

use super::{Limit, Section};
use crate::interleave::{Candidate, interleave};

/// Bytes of a register read's request and answer.
const REQUEST_BYTES: usize = 32;
const ANSWER_BYTES: usize = 40;
/// Questions a turn, in sixteen batches.
const REPEATS: u32 = 1600;
/// Posted writes before a read that waits for them.
const WRITES: u32 = 63;

const ECHO: &str = "echo over a socket, bare";
const READ: &str = "register read over vfio-user";

/// One section.
pub(super) fn sections(rounds: usize) -> Vec<Section> {
    let (mut echo, served) = (Echo::start(), Served::start());
    let device = VfioUserDevice::open(&served.path).expect("the device that was just served");
    let bar = device.bar();
    let candidates = vec![
        Candidate::timed(ECHO, REPEATS, || echo.ask()),
        Candidate::timed(READ, REPEATS, || {
            std::hint::black_box(bar.read(REVISION.offset()));
        }),
        Candidate::timed("63 posted writes and a read", REPEATS / 16, || post(&bar)),
    ];
    vec![Section {
        title: "register access over vfio-user".to_owned(),
        comparison: interleave(rounds, candidates),
        limits: vec![Limit::new(READ, ECHO, 1.2)],
    }]
}

fn post(bar: &VfioUserBar) {
    for value in 0..WRITES {
        bar.write(SCRATCH.offset(), u64::from(value));
    }
    std::hint::black_box(bar.read(SCRATCH.offset()));
}

/// Somebody who answers every message with one of the other length.
struct Echo {
    socket: UnixStream,
}

impl Echo {
    fn start() -> Self {
        let (socket, mut theirs) = UnixStream::pair().expect("sockets");
        std::thread::spawn(move || {
            let (mut request, answer) = ([0; REQUEST_BYTES], [0; ANSWER_BYTES]);
            while theirs.read_exact(&mut request).is_ok() && theirs.write_all(&answer).is_ok() {}
        });
        Self { socket }
    }

    fn ask(&mut self) {
        let mut answer = [0; ANSWER_BYTES];
        self.socket.write_all(&[0; REQUEST_BYTES]).expect("sent");
        self.socket.read_exact(&mut answer).expect("an answer");
        std::hint::black_box(answer);
    }
}

/// A chip behind a socket, on a thread of its own.
struct Served {
    path: PathBuf,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    fn start() -> Self {
        let path = std::env::temp_dir().join(format!("qhca-bench-{}", std::process::id()));
        let (tell, told) = std::sync::mpsc::channel();
        let at = path.clone();
        let thread = std::thread::spawn(move || {
            let mut server = Server::new(1, false).expect("a server");
            server.add(&at, Config::default(), Options::default()).expect("a socket");
            tell.send(server.stopper()).expect("somebody waits for it");
            server.run().expect("an event loop");
        });
        let stop = told.recv().expect("the server is up");
        Self { path, stop, thread: Some(thread) }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the server ends as it was told");
        }
    }
}
