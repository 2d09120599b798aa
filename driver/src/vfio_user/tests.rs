//! The client against a server that does as it is told by the test.

use super::*;
use crate::env::DmaMapper;
use qhca_irq::{IrqSource, Wake};
use qhca_regs::{Bar, GONE, Instant};
use qhca_vfu::{Capabilities, Command, DmaRequest, Header, Kind, ParseError, Reply, Version, error_reply};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::Duration;

/// Answers come at once in these tests, or never.
const WITHIN: Duration = Duration::from_millis(200);

/// The server's end of a connection.
struct Served(UnixStream);

impl Served {
    /// The next message; `None` at the end of the stream.
    fn next(&mut self) -> Option<(Header, Vec<u8>)> {
        let mut head = [0; 16];
        self.0.read_exact(&mut head).ok()?;
        let header = Header::parse(&head).expect("a header");
        let mut payload = vec![0; header.payload_len_bytes()];
        self.0.read_exact(&mut payload).expect("a payload");
        Some((header, payload))
    }

    fn send(&mut self, message: &[u8]) {
        self.0.write_all(message).expect("sent");
    }

    fn agree(&mut self) {
        let (header, payload) = self.next().expect("VERSION");
        let theirs = Version::parse(&payload).expect("a version");
        let answer = theirs.answer(Capabilities::default()).expect("an answer");
        self.send(&Reply::Version(answer).build(&header));
    }

    /// Answers everything as a device with this PCI id would, until it is asked to read a register; gives that request.
    fn serve_until_register(&mut self, pci_id: u32) -> Option<(Header, RegionAccess)> {
        self.agree();
        while let Some((header, payload)) = self.next() {
            let command = Command::from_number(header.command).expect("a command");
            let reply = match Request::parse(command, &payload).expect("a request") {
                Request::DeviceInfo => {
                    Reply::DeviceInfo(DeviceInfo { can_reset: true, regions: 9, irqs: 5 }).build(&header)
                }
                Request::RegionInfo { index, argsz } => {
                    let len_bytes = u64::from(BAR_LEN_BYTES);
                    let info = RegionInfo {
                        index,
                        readable: true,
                        writable: true,
                        len_bytes,
                        ..RegionInfo::default()
                    };
                    Reply::RegionInfo(info, argsz).build(&header)
                }
                Request::RegionRead(at) if at.region == region::CONFIG => {
                    let bytes = pci_id.to_le_bytes();
                    Reply::Read(at, &bytes[..at.len_bytes as usize]).build(&header)
                }
                Request::RegionRead(at) => return Some((header, at)),
                Request::RegionWrite(at, _) => Reply::Written(at).build(&header),
                Request::IrqInfo { index } => {
                    let (count, eventfd) = (3, index == irq_index::MSIX);
                    let (maskable, automasked, noresize) = (false, false, false);
                    Reply::IrqInfo(IrqInfo { index, count, eventfd, maskable, automasked, noresize })
                        .build(&header)
                }
                _ => Reply::Done.build(&header),
            };
            if !header.no_reply {
                self.send(&reply);
            }
        }
        None
    }
}

const RIGHT_ID: u32 = 0x7322_1077;

/// A client, and the thread of the server that `serve` is.
fn connect<T: Send + 'static>(
    serve: impl FnOnce(Served) -> T + Send + 'static,
) -> (Result<VfioUserDevice, VfioUserError>, JoinHandle<T>) {
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    let server = std::thread::spawn(move || serve(Served(theirs)));
    let device = Connection::begin(ours, WITHIN)
        .and_then(|connection| VfioUserDevice::begin(connection, "vfio-user:test".to_owned()));
    (device, server)
}

#[test]
fn another_chip_is_refused_by_its_id_and_not_written_to() {
    let (device, _server) = connect(|mut served| served.serve_until_register(0x1234_8086));
    match device {
        Err(VfioUserError::NotThisDevice { what: "PCI id", seen: 0x1234_8086, .. }) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn server_that_hangs_is_told_by_its_deadline_and_then_left_alone() {
    let (device, server) = connect(|mut served| {
        served.serve_until_register(RIGHT_ID);
        // No answer: only count what comes until the client closes.
        std::iter::from_fn(|| served.next()).count()
    });
    let device = device.expect("a device");
    let bar = device.bar();
    let begun = std::time::Instant::now();
    assert_eq!(bar.read(0), GONE);
    assert!(begun.elapsed() >= WITHIN);
    assert_eq!(bar.read(0), GONE, "the second does not wait");
    bar.write(8, 1);
    assert_eq!(device.lost_writes(), 1);
    drop((device, bar));
    assert_eq!(server.join().expect("the server's thread"), 0, "nothing is sent on a broken connection");
}

#[test]
fn server_that_vanishes_is_a_card_that_has_gone() {
    let (device, server) = connect(|mut served| served.serve_until_register(RIGHT_ID).is_some());
    let mut device = device.expect("a device");
    assert_eq!(device.bar().read(0), GONE);
    assert!(server.join().expect("the server's thread"));
    assert!(device.reset().is_err());
    assert!(device.mapper().map(4096).is_err());
}

#[test]
fn answers_that_make_no_sense_end_the_connection() {
    type Answer = fn(&Header, RegionAccess) -> Vec<u8>;
    let wrong: [(&str, Answer); 4] = [
        ("another id", |header, at| Reply::Read(at, &[0; 8]).build(&Header { id: header.id + 1, ..*header })),
        ("another command", |header, at| {
            Reply::Read(at, &[0; 8]).build(&Header { command: Command::DmaMap as u16, ..*header })
        }),
        ("too few bytes", |header, at| Reply::Read(at, &[0; 4]).build(header)),
        ("a size that cannot be", |header, at| {
            let mut message = Reply::Read(at, &[0; 8]).build(header);
            message[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
            message
        }),
    ];
    for (what, answer) in wrong {
        let (device, server) = connect(move |mut served| {
            let (header, at) = served.serve_until_register(RIGHT_ID).expect("a read");
            served.send(&answer(&header, at));
            served.next().is_none()
        });
        let device = device.expect("a device");
        assert_eq!(device.bar().read(0), GONE, "{what}");
        assert_eq!(device.bar().read(0), GONE, "{what}");
        drop(device);
        assert!(server.join().expect("the server's thread"), "{what}: nothing more is sent");
    }
}

#[test]
fn refusal_is_told_and_the_connection_goes_on() {
    let (device, _server) = connect(|mut served| {
        let (header, _) = served.serve_until_register(RIGHT_ID).expect("a read");
        served.send(&error_reply(&header, 22));
        let (header, payload) = served.next().expect("another read");
        let Ok(Request::RegionRead(at)) = Request::parse(Command::RegionRead, &payload) else {
            panic!("{header:?}")
        };
        served.send(&Reply::Read(at, &7_u64.to_le_bytes()).build(&header));
    });
    let device = device.expect("a device");
    assert_eq!(device.bar().read(0x40_0000), GONE);
    assert_eq!(device.bar().read(8), 7);
}

/// Whatever the device asks of memory while we wait for its answer is served: memory that it was given, and no other.
#[test]
fn device_that_asks_for_memory_gets_what_is_its() {
    let (device, server) = connect(|mut served| {
        let (read, at) = served.serve_until_register(RIGHT_ID).expect("a read");
        let mut ask = |id, request: DmaRequest<'_>| {
            let (command, payload) = request.build();
            let (command, kind) = (command as u16, Kind::Command);
            let header = Header { id, command, size_bytes: 0, kind, no_reply: false, error: None };
            served.send(&header.with_payload(&payload));
            let (answer, payload) = served.next().expect("an answer");
            assert_eq!((answer.id, answer.kind), (id, Kind::Reply));
            (answer.error, payload)
        };
        let first = 1 << 32;
        let written = ask(1, DmaRequest::Write { address: first + 8, data: &[1, 2, 3] });
        let (none, data) = ask(2, DmaRequest::Read { address: first + 8, len_bytes: 4 });
        let past = ask(3, DmaRequest::Read { address: first + 4094, len_bytes: 4 });
        let foreign = ask(4, DmaRequest::Write { address: 8, data: &[1] });
        served.send(&Reply::Read(at, &[0; 8]).build(&read));
        let parsed = DmaRequest::parse_read_reply(&data, 4).map(<[u8]>::to_vec);
        (written.0, none, parsed, past.0.is_some(), foreign.0.is_some())
    });
    let device = device.expect("a device");
    let region = device.mapper().map(100).expect("memory");
    assert_eq!(region.iova(), 1 << 32);
    assert_eq!(device.bar().read(0), 0);
    let mut bytes = [0; 4];
    region.memory().copy_out(8, &mut bytes);
    assert_eq!(bytes, [1, 2, 3, 0]);
    let seen = server.join().expect("the server's thread");
    assert_eq!(seen, (None, None, Ok::<_, ParseError>(vec![1, 2, 3, 0]), true, true));
}

#[test]
fn no_more_vectors_are_granted_than_there_are_and_none_is_listened_to_twice_in_vain() {
    let (device, _server) = connect(|mut served| served.serve_until_register(RIGHT_ID));
    let mut device = device.expect("a device");
    assert!(device.grant_vectors(Mode::Msi, 1).is_err(), "without descriptors there are no interrupts");
    assert_eq!(device.grant_vectors(Mode::MsiX, 32).expect("granted"), 3);
    let vector = |n| Vector::new(n).expect("a vector");
    assert!(device.irq_source(&[vector(3)]).is_err());
    let mut source = device.irq_source(&[vector(0), vector(2)]).expect("a source");
    device.events[1].signal();
    device.events[2].signal();
    device.events[2].signal();
    assert_eq!(source.wait(None), Wake::Vectors([vector(2)].into_iter().collect()));
    assert_eq!(source.wait(Some(Instant::ZERO)), Wake::Deadline);
}
