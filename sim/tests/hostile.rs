//! Clients that send what they should not: each is told, or closed, and nobody else notices.

use qhca_driver::sys::{EventFd, shared_memory_file};
use qhca_regs::map::device;
use qhca_regs::{BAR_LEN_BYTES, Duration};
use qhca_sim::chip::Config;
use qhca_sim::vfio_user::{Alone, ConfigOptions, Options, Server, Stop};
use qhca_vfu::{
    Capabilities, Command, DmaMap, DmaUnmap, HEADER_LEN_BYTES, Header, IrqAction, IrqData, Kind,
    RegionAccess, Request, SetIrqs, Version, irq, region,
};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread::JoinHandle;

const EINVAL: u32 = 22;
const EEXIST: u32 = 17;
const ENOTSUP: u32 = 95;
const ENOSPC: u32 = 28;

/// A client that has agreed on a version.
struct Client(Alone);

/// What an answer says: the number that refuses, or the payload.
type Answer = Result<Vec<u8>, u32>;

impl Client {
    fn new() -> Self {
        let config = ConfigOptions { flr: true, aer: true };
        let options =
            Options { config, answer_within: std::time::Duration::from_millis(50), ..Options::default() };
        let mut this = Self(Alone::new(Config::default(), options).expect("a session"));
        let version = Request::Version(Version::ours(Capabilities::default()));
        this.ask(&version, &[]).expect("a version is agreed on");
        this
    }

    fn raw(&mut self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Vec<u8> {
        self.0.exchange(bytes, fds, Duration::from_micros(10)).expect("the socket works")
    }

    fn ask(&mut self, request: &Request<'_>, fds: &[BorrowedFd<'_>]) -> Answer {
        let mut message = Vec::new();
        request.encode(7, false, &mut message);
        answer(&self.raw(&message, fds))
    }

    fn read(&mut self, region: u32, offset: u64, len_bytes: u32) -> Answer {
        self.ask(&Request::RegionRead(RegionAccess { offset, region, len_bytes }), &[])
            .map(|payload| payload[16..].to_vec())
    }

    fn write(&mut self, region: u32, offset: u64, data: &[u8]) -> Answer {
        let at = RegionAccess { offset, region, len_bytes: data.len() as u32 };
        self.ask(&Request::RegionWrite(at, data), &[])
    }

    fn register(&mut self, offset: u32) -> u64 {
        let bytes = self.read(region::BAR0, offset.into(), 8).expect("a register");
        u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
    }

    fn map(&mut self, address: u64, len_bytes: u64, writable: bool, file: Option<BorrowedFd<'_>>) -> Answer {
        let map = DmaMap { readable: true, writable, offset: 0, address, len_bytes };
        let fds: Vec<BorrowedFd<'_>> = file.into_iter().collect();
        self.ask(&Request::DmaMap(map), &fds)
    }

    /// Lets the function reach memory.
    fn master_bus(&mut self) {
        self.write(region::CONFIG, 4, &[6, 0]).expect("the command register");
    }

    fn assert_alive(&mut self) {
        assert!(self.0.is_open());
        self.ask(&Request::DeviceReset, &[]).expect("a reset");
        let revision = self.register(device::REVISION.offset());
        assert!(revision != 0 && revision != u64::MAX, "{revision:#x}");
    }
}

fn answer(bytes: &[u8]) -> Answer {
    let head = bytes.first_chunk::<HEADER_LEN_BYTES>().expect("an answer");
    let header = Header::parse(head).expect("a header");
    assert_eq!((header.kind, header.id), (Kind::Reply, 7));
    assert_eq!(bytes.len(), header.size_bytes as usize, "one answer");
    header.error.map_or_else(|| Ok(bytes[HEADER_LEN_BYTES..].to_vec()), Err)
}

#[test]
fn messages_of_the_wrong_size_or_kind_are_refused_and_the_session_goes_on() {
    let mut client = Client::new();
    let header = |command: u16| Header {
        id: 7,
        command,
        size_bytes: 0,
        kind: Kind::Command,
        no_reply: false,
        error: None,
    };
    for command in 1..=15_u16 {
        // Nothing behind the header, and half a struct.
        for len in [0, 7] {
            let answered = answer(&client.raw(&header(command).with_payload(&vec![0xFF; len]), &[]));
            let may_be_empty = command == Command::Version as u16 || command == Command::DeviceReset as u16;
            assert!(answered.is_err() || may_be_empty, "command {command}, {len} bytes: {answered:?}");
        }
    }
    assert_eq!(answer(&client.raw(&header(99).with_payload(&[]), &[])), Err(ENOTSUP));
    // An answer that nobody asked for is nothing.
    let stray = Header { kind: Kind::Reply, ..header(Command::DmaRead as u16) };
    assert!(client.raw(&stray.with_payload(&[0; 40]), &[]).is_empty());
    client.assert_alive();
}

#[test]
fn commands_before_the_version_are_refused() {
    let mut client = Client(Alone::new(Config::default(), Options::default()).expect("a session"));
    assert_eq!(client.read(region::BAR0, 0, 8), Err(EINVAL));
    assert_eq!(client.map(0, 4096, true, None), Err(EINVAL));
}

#[test]
fn accesses_beyond_a_region_are_refused() {
    let mut client = Client::new();
    let bar = u64::from(BAR_LEN_BYTES);
    for (region, offset, len) in [
        (region::BAR0, bar, 8),
        (region::BAR0, bar - 4, 8),
        (region::BAR0, u64::MAX - 3, 8),
        (region::BAR0, 0, 0),
        (region::CONFIG, 4095, 2),
        (region::CONFIG, 1 << 40, 1),
        (region::ROM, 0, 4),
        (17, 0, 4),
    ] {
        assert_eq!(client.read(region, offset, len), Err(EINVAL), "{region} {offset:#x} {len}");
        assert!(client.write(region, offset, &vec![0; len as usize]).is_err(), "{region} {offset:#x} {len}");
    }
    assert_eq!(client.write(region::BAR0, 2, &[0; 4]), Err(EINVAL), "not aligned");
    client.assert_alive();
}

#[test]
fn descriptors_that_are_no_memory_are_refused() {
    let mut client = Client::new();
    let (one, _two) = UnixStream::pair().expect("sockets");
    let short = shared_memory_file(4096).expect("memory");
    let null = File::open("/dev/null").expect("/dev/null");
    let event = EventFd::new().expect("an eventfd");
    for wild in [one.as_fd(), null.as_fd(), event.as_fd()] {
        assert_eq!(client.map(0x1000, 4096, true, Some(wild)), Err(EINVAL));
    }
    assert_eq!(client.map(0x1000, 8192, true, Some(short.as_fd())), Err(EINVAL), "longer than its file");
    client.map(0x1000, 4096, true, Some(short.as_fd())).expect("memory");
    // An interrupt's descriptor may be anything: it loses the client's own interrupts and nothing else.
    let set =
        SetIrqs { index: irq::MSIX, start: 0, count: 3, action: IrqAction::Trigger, data: IrqData::Eventfd };
    client.ask(&Request::SetIrqs(set), &[one.as_fd(), null.as_fd(), short.as_fd()]).expect("connected");
    let fire = SetIrqs { data: IrqData::None, ..set };
    client.ask(&Request::SetIrqs(fire), &[]).expect("fired");
    client.assert_alive();
}

#[test]
fn maps_that_overlap_are_refused_and_an_unmapped_range_is_free_again() {
    let mut client = Client::new();
    client.map(0x2000, 0x2000, true, None).expect("free");
    for (address, len) in [(0x2000, 0x1000), (0x3FFF, 1), (0x1000, 0x1001), (0, 1 << 40)] {
        assert_eq!(client.map(address, len, true, None), Err(EEXIST), "{address:#x}");
    }
    assert_eq!(client.map(u64::MAX, 2, true, None), Err(EINVAL), "it would wrap");
    client
        .ask(&Request::DmaUnmap(DmaUnmap { flags: 0, address: 0x2000, len_bytes: 0x2000 }), &[])
        .expect("unmapped");
    client.map(0x3000, 0x1000, true, None).expect("free");
}

#[test]
fn interrupts_are_set_in_every_form_of_data() {
    let mut client = Client::new();
    let events: Vec<EventFd> = (0..4).map(|_| EventFd::new().expect("an eventfd")).collect();
    let base =
        SetIrqs { index: irq::MSIX, start: 2, count: 4, action: IrqAction::Trigger, data: IrqData::Eventfd };
    let fds: Vec<BorrowedFd<'_>> = events.iter().map(AsFd::as_fd).collect();
    client.ask(&Request::SetIrqs(base), &fds).expect("connected");
    let fired = |events: &[EventFd]| events.iter().map(EventFd::drain).collect::<Vec<_>>();
    client.ask(&Request::SetIrqs(SetIrqs { data: IrqData::None, ..base }), &[]).expect("all fire");
    assert_eq!(fired(&events), [1, 1, 1, 1]);
    client
        .ask(&Request::SetIrqs(SetIrqs { data: IrqData::Bool(&[0, 1, 0, 1]), ..base }), &[])
        .expect("two fire");
    assert_eq!(fired(&events), [0, 1, 0, 1]);
    let mask = SetIrqs { action: IrqAction::Mask, data: IrqData::Bool(&[1, 0, 0, 0]), ..base };
    client.ask(&Request::SetIrqs(mask), &[]).expect("one is masked");
    client.ask(&Request::SetIrqs(SetIrqs { data: IrqData::None, ..base }), &[]).expect("three fire");
    assert_eq!(fired(&events), [0, 1, 1, 1]);
    let unmask = SetIrqs { action: IrqAction::Unmask, data: IrqData::None, ..base };
    client.ask(&Request::SetIrqs(unmask), &[]).expect("unmasked");
    assert_eq!(fired(&events), [1, 0, 0, 0], "what fired while it was masked fires then");
    client.ask(&Request::SetIrqs(SetIrqs::disable(irq::MSIX)), &[]).expect("off");
    client.ask(&Request::SetIrqs(SetIrqs { data: IrqData::None, ..base }), &[]).expect("nobody hears");
    assert_eq!(fired(&events), [0, 0, 0, 0]);
    let beyond = SetIrqs { start: 31, count: 2, data: IrqData::None, ..base };
    assert_eq!(client.ask(&Request::SetIrqs(beyond), &[]), Err(EINVAL));
    let more_than_counted = SetIrqs { count: 1, ..base };
    assert_eq!(client.ask(&Request::SetIrqs(more_than_counted), &fds), Err(EINVAL));
}

#[test]
fn function_is_reset_by_its_capability_by_waking_from_d3_and_by_message() {
    const DEVICE_CONTROL: u64 = 0x68;
    const POWER: u64 = 0x44;
    type Reset = fn(&mut Client);
    let resets: [(&str, Reset); 3] = [
        ("FLR", |client| drop(client.write(region::CONFIG, DEVICE_CONTROL, &[0x10, 0xA8]).expect("written"))),
        ("D3hot to D0", |client| {
            client.write(region::CONFIG, POWER, &[3, 0]).expect("asleep");
            client.write(region::CONFIG, POWER, &[0, 0]).expect("awake");
        }),
        ("DEVICE_RESET", |client| drop(client.ask(&Request::DeviceReset, &[]).expect("reset"))),
    ];
    for (what, reset) in resets {
        let mut client = Client::new();
        client.master_bus();
        let scratch = device::SCRATCH.offset();
        client.write(region::BAR0, scratch.into(), &7_u64.to_le_bytes()).expect("written");
        assert_eq!(client.register(scratch), 7);
        reset(&mut client);
        assert_ne!(client.register(scratch), 7, "{what}");
        assert_eq!(client.read(region::CONFIG, 4, 2).expect("the command register"), [0, 0], "{what}");
    }
}

/// Memory without a descriptor is reached by asking for it; a client that does not answer is closed, once.
#[test]
fn memory_without_a_descriptor_is_written_by_messages() {
    let mut client = Client::new();
    client.map(0x10_0000, 0x1000, true, None).expect("free");
    client.master_bus();
    // The chip writes its avail words when it is told where, and to update them.
    client
        .write(region::BAR0, device::SEND_BUF_AVAIL_ADDR.offset().into(), &0x10_0000_u64.to_le_bytes())
        .expect("written");
    let update = device::SendCtrl(0).with_send_buf_avail_upd(true).0;
    let at = RegionAccess { offset: device::SEND_CTRL.offset().into(), region: region::BAR0, len_bytes: 8 };
    let mut message = Vec::new();
    Request::RegionWrite(at, &update.to_le_bytes()).encode(8, false, &mut message);
    let mut came = client.raw(&message, &[]);
    came.extend(client.0.exchange(&[], &[], Duration::from_millis(1)).expect("the socket works"));
    let commands: Vec<(Kind, u16)> =
        headers(&came).iter().map(|header| (header.kind, header.command)).collect();
    assert_eq!(
        commands.first(),
        Some(&(Kind::Reply, Command::RegionWrite as u16)),
        "the write is answered first"
    );
    assert!(commands.contains(&(Kind::Command, Command::DmaWrite as u16)), "{commands:?}");
    assert!(!client.0.is_open(), "nobody answered");
}

fn headers(mut bytes: &[u8]) -> Vec<Header> {
    let mut headers = Vec::new();
    while let Some(head) = bytes.first_chunk::<HEADER_LEN_BYTES>() {
        let header = Header::parse(head).expect("a header");
        bytes = &bytes[header.size_bytes as usize..];
        headers.push(header);
    }
    headers
}

/// SplitMix64: a sequence that is the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }
}

/// Random bytes anywhere in the function's configuration space, the command register and its resets among them.
fn mistreat_config(client: &mut Client, random: &mut Random) {
    for _ in 0..8 {
        let draw = random.next();
        let len = [1, 2, 4][(draw % 3) as usize];
        let offset =
            [(draw >> 8) % 0x100, (draw >> 8) % 0x1000][(draw >> 4) as usize % 2] & !(len as u64 - 1);
        let data = random.next().to_le_bytes();
        client.write(region::CONFIG, offset, &data[..len]).expect("a place in the configuration space");
        client.read(region::CONFIG, offset, len as u32).expect("a place in the configuration space");
    }
}

/// Seconds for which the random writes go on at least, by the clock; unset, only the seeds that always run.
const WRITE_FOR: &str = "QHCA_RANDOM_WRITES_S";

/// Random values, half of them addresses of memory that was once or never given, or given for reading only. Three seeds
/// always, more for as long as `QHCA_RANDOM_WRITES_S` says.
#[test]
fn random_registers_neither_stop_the_server_nor_reach_memory_that_is_not_the_chips() {
    const WRITES: usize = 20_000;
    let registers: Vec<u32> = qhca_regs::map::all().map(|placed| placed.offset).collect();
    const SEEDS: u64 = 3;
    let for_s: u64 = std::env::var(WRITE_FOR).map_or(0, |text| text.parse().expect("seconds"));
    let until = std::time::Instant::now() + std::time::Duration::from_secs(for_s);
    let mut seed = 0;
    while seed < SEEDS || std::time::Instant::now() < until {
        seed += 1;
        println!("seed {seed}");
        let mut random = Random(seed);
        let mut client = Client::new();
        let files: Vec<File> = (0..3).map(|_| shared_memory_file(0x1_0000).expect("memory")).collect();
        let mine = vec![0x5A; 0x1_0000];
        files.iter().for_each(|file| file.write_all_at(&mine, 0).expect("filled"));
        client.map(0x10_0000, 0x1_0000, true, Some(files[0].as_fd())).expect("the chip's");
        client.map(0x20_0000, 0x1_0000, false, Some(files[1].as_fd())).expect("for reading only");
        client.map(0x30_0000, 0x1_0000, true, Some(files[2].as_fd())).expect("given");
        client
            .ask(&Request::DmaUnmap(DmaUnmap { flags: 0, address: 0x30_0000, len_bytes: 0x1_0000 }), &[])
            .expect("taken");
        client.master_bus();
        let mut message = Vec::new();
        for n in 0..WRITES {
            if n % 256 == 255 {
                // Whatever the last one did to the function, it can reach memory again.
                mistreat_config(&mut client, &mut random);
                client.master_bus();
            }
            let draw = random.next();
            let offset = match draw % 4 {
                0 => ((draw >> 8) as u32 % BAR_LEN_BYTES) & !7,
                _ => registers[(draw >> 8) as usize % registers.len()],
            };
            let value = match draw >> 40 & 3 {
                0 => random.next(),
                1 => 1 << (random.next() % 64),
                _ => (0x10_0000 << (random.next() % 3).min(1)) + ((random.next() % 0x2_0000) & !7),
            };
            // One dword, a register, or a run of them.
            let repeats = [1, 1, 1, 16][(draw >> 48) as usize % 4];
            let mut data = value.to_le_bytes().repeat(repeats);
            if draw >> 50 & 7 == 0 {
                data.truncate(4);
            }
            let last = BAR_LEN_BYTES - data.len() as u32;
            let offset = u64::from(offset.min(last & !7));
            let at = RegionAccess { offset, region: region::BAR0, len_bytes: data.len() as u32 };
            Request::RegionWrite(at, &data).encode(9, true, &mut message);
            assert!(client.raw(&message, &[]).is_empty(), "a posted write has no answer");
        }
        client.assert_alive();
        for file in &files[1..] {
            let mut now = vec![0; 0x1_0000];
            file.read_exact_at(&mut now, 0).expect("read");
            assert!(now == mine, "seed {seed}: memory that is not the chip's was written");
        }
    }
}

/// What the header announces counts: a payload that is longer than its own struct says, or shorter, is refused or cut, and
/// the message behind it is read from where it begins.
#[test]
fn messages_longer_or_shorter_than_they_announce_leave_the_next_one_whole() {
    let mut client = Client::new();
    let header = |command: Command| Header {
        id: 7,
        command: command as u16,
        size_bytes: 0,
        kind: Kind::Command,
        no_reply: false,
        error: None,
    };
    let at = |len_bytes: u32| {
        let mut payload = u64::from(device::SCRATCH.offset()).to_le_bytes().to_vec();
        payload.extend(region::BAR0.to_le_bytes());
        payload.extend(len_bytes.to_le_bytes());
        payload
    };
    // A write that announces more data than it brings, and a read that announces more than fits in any message.
    let short = [at(64), vec![1; 8]].concat();
    assert_eq!(answer(&client.raw(&header(Command::RegionWrite).with_payload(&short), &[])), Err(EINVAL));
    let huge = at(u32::MAX);
    assert_eq!(answer(&client.raw(&header(Command::RegionRead).with_payload(&huge), &[])), Err(EINVAL));
    // Flags of interrupts with fewer bytes than they count.
    let set = SetIrqs {
        index: irq::MSIX,
        start: 0,
        count: 3,
        action: IrqAction::Trigger,
        data: IrqData::Bool(&[1, 1, 1]),
    };
    let mut flags = set.build();
    flags.pop();
    assert_eq!(answer(&client.raw(&header(Command::DeviceSetIrqs).with_payload(&flags), &[])), Err(EINVAL));
    // More behind a message than it needs: whatever becomes of it, the next message is understood.
    let long = [at(8), vec![0; 8], vec![0xAA; 100]].concat();
    drop(answer(&client.raw(&header(Command::RegionWrite).with_payload(&long), &[])));
    client.assert_alive();
    // A header that announces more than any message may have ends the connection: nobody knows where the next begins.
    let mut endless = header(Command::DeviceReset).with_payload(&[]);
    endless[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    client.raw(&endless, &[]);
    assert!(!client.0.is_open());
}

#[test]
fn interrupt_ranges_that_cannot_be_are_refused() {
    let mut client = Client::new();
    let set = |index, start, count, data| SetIrqs { index, start, count, action: IrqAction::Trigger, data };
    let ones = vec![1; 2048];
    for (index, start, count) in [
        (irq::MSIX, 0, 33),
        (irq::MSIX, 32, 1),
        (irq::MSIX, u32::MAX, 1),
        (irq::MSIX, 1, u32::MAX),
        (irq::MSIX, u32::MAX, u32::MAX),
        (irq::INTX, 0, 2),
        (irq::INTX, 1, 1),
        (irq::ERR, u32::MAX, 1),
        (irq::REQ, 1, u32::MAX),
        (irq::MSI, 0, 1),
        (17, 0, 1),
    ] {
        let none = client.ask(&Request::SetIrqs(set(index, start, count, IrqData::None)), &[]);
        assert_eq!(none, Err(EINVAL), "{index}: {count} from {start}");
        let eventfd = client.ask(&Request::SetIrqs(set(index, start, count, IrqData::Eventfd)), &[]);
        assert_eq!(eventfd, Err(EINVAL), "{index}: {count} from {start} by eventfd");
    }
    // B149: each kind can be switched off, had or not.
    for index in [irq::INTX, irq::MSI, irq::MSIX, irq::ERR, irq::REQ] {
        client
            .ask(&Request::SetIrqs(SetIrqs::disable(index)), &[])
            .unwrap_or_else(|e| panic!("{index}: {e}"));
    }
    let many = set(irq::MSIX, 0, 2048, IrqData::Bool(&ones));
    assert_eq!(client.ask(&Request::SetIrqs(many), &[]), Err(EINVAL));
    client.assert_alive();
}

/// How many descriptors this process has open.
fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("a list of descriptors").count()
}

/// Descriptors that belong to no request, or that one request has too many of, are closed again; those of a client that
/// goes are closed too.
#[test]
fn descriptors_that_nobody_asked_for_do_not_pile_up() {
    const ROUNDS: usize = 64;
    let event = EventFd::new().expect("an eventfd");
    let memory = shared_memory_file(0x1000).expect("memory");
    let before = open_descriptors();
    let mut client = Client::new();
    let mut read = Vec::new();
    let at = RegionAccess { offset: device::REVISION.offset().into(), region: region::BAR0, len_bytes: 8 };
    Request::RegionRead(at).encode(7, false, &mut read);
    for round in 0..ROUNDS {
        let beside = [event.as_fd(); 16];
        answer(&client.raw(&read, &beside)).expect("a register");
        let twice = [memory.as_fd(), event.as_fd()];
        let map = DmaMap {
            readable: true,
            writable: true,
            offset: 0,
            address: 0x1000 * round as u64,
            len_bytes: 0x1000,
        };
        client.ask(&Request::DmaMap(map), &twice).expect("a map, and one too many beside it");
        assert_eq!(client.map(0x1000 * round as u64, 0x1000, true, Some(memory.as_fd())), Err(EEXIST));
    }
    client.assert_alive();
    // Other tests of this process open some, too; piled up, it would be many times as many.
    assert!(open_descriptors() < before + ROUNDS + 40, "{before} before, {} now", open_descriptors());
    drop(client);
    assert!(open_descriptors() < before + ROUNDS, "{before} before, {} at the end", open_descriptors());
}

#[test]
fn more_ranges_than_the_server_takes_are_refused_and_the_others_stay() {
    const RANGES: u64 = 32_768;
    let mut client = Client::new();
    for n in 0..RANGES {
        client.map(n << 12, 0x1000, true, None).unwrap_or_else(|errno| panic!("range {n}: {errno}"));
    }
    assert_eq!(client.map(RANGES << 12, 0x1000, true, None), Err(ENOSPC));
    client
        .ask(&Request::DmaUnmap(DmaUnmap { flags: 0, address: 0, len_bytes: 0x1000 }), &[])
        .expect("unmapped");
    client.map(RANGES << 12, 0x1000, true, None).expect("there is room again");
    client.assert_alive();
}

/// Memory given for writing by a descriptor that allows none: the chip's writes fail, each for itself.
#[test]
fn memory_that_cannot_be_written_after_all_costs_its_client_only() {
    use std::os::fd::AsRawFd;
    let mut client = Client::new();
    let memory = shared_memory_file(0x1000).expect("memory");
    let path = format!("/proc/self/fd/{}", memory.as_fd().as_raw_fd());
    let read_only = File::open(path).expect("the same memory, for reading");
    client.map(0x1000, 0x1000, true, Some(read_only.as_fd())).expect("it holds the range");
    client.master_bus();
    client
        .write(region::BAR0, device::SEND_BUF_AVAIL_ADDR.offset().into(), &0x1000_u64.to_le_bytes())
        .expect("written");
    let update = device::SendCtrl(0).with_send_buf_avail_upd(true).0;
    client.write(region::BAR0, device::SEND_CTRL.offset().into(), &update.to_le_bytes()).expect("written");
    client.raw(&[], &[]);
    assert!(client.0.refused_accesses() > 0, "the chip could not write");
    client.assert_alive();
}

/// A server with a card behind each of `paths`, on a thread of its own, which tells whether it ended well.
fn serve(paths: &[PathBuf]) -> (Stop, JoinHandle<bool>) {
    let (tell, told) = std::sync::mpsc::channel();
    let paths = paths.to_vec();
    let thread = std::thread::spawn(move || {
        let mut server = Server::new(1, false).expect("a server");
        for path in &paths {
            server.add(path, Config::default(), Options::default()).expect("a socket");
        }
        tell.send(server.stopper()).expect("the test waits");
        server.run().is_ok()
    });
    (told.recv().expect("the server is up"), thread)
}

/// The event loop itself: one client sends rubbish, one vanishes in the middle of a message, one goes on.
#[test]
fn other_clients_go_on_when_one_is_hostile_and_one_vanishes() {
    let dir = std::env::temp_dir().join(format!("qhca-hostile-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let paths = [dir.join("a"), dir.join("b")];
    let (stop, server) = serve(&paths);
    let good = qhca_driver::vfio_user::VfioUserDevice::open(&paths[0]).expect("a device");
    use qhca_driver::env::Backend;
    use qhca_regs::Bar;
    let revision = good.bar().read(device::REVISION.offset());
    let mut random = Random(9);
    for round in 0..30 {
        let mut hostile = UnixStream::connect(&paths[1]).expect("the socket is free again");
        let rubbish: Vec<u8> = (0..200).map(|_| random.next() as u8).collect();
        let mut version = Vec::new();
        Request::Version(Version::ours(Capabilities::default())).encode(1, false, &mut version);
        let bytes: &[u8] = match round % 5 {
            0 => &rubbish,
            1 => &version[..version.len() - 3],
            2 => &version,
            // Agreed on a version, and gone within a write that announces 4 KiB.
            3 => &[&version[..], &half_a_write()].concat(),
            // Gone with the chip about to ask for its memory.
            _ => &[&version[..], &asks_for_memory()].concat(),
        };
        // A server that has closed already is as good.
        let _ = hostile.write_all(bytes);
        if round % 5 == 0 {
            let mut end = Vec::new();
            hostile.set_read_timeout(Some(std::time::Duration::from_millis(200))).expect("a timeout");
            let _ = hostile.read_to_end(&mut end);
        }
        drop(hostile);
        assert_eq!(good.bar().read(device::REVISION.offset()), revision, "round {round}");
    }
    assert_eq!(good.lost_writes(), 0);
    drop(good);
    stop.stop();
    assert!(server.join().expect("the server does not panic"), "it ends as it was told");
    std::fs::remove_dir_all(&dir).expect("removed");
}

/// B146: whatever its predecessor left and wherever it vanished, a client finds the chip as after a reset, no range mapped,
/// and no interrupt connected.
#[test]
fn client_that_comes_after_another_finds_nothing_of_it() {
    let dir = std::env::temp_dir().join(format!("qhca-after-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let path = dir.join("card");
    let (stop, server) = serve(std::slice::from_ref(&path));
    let at = |offset: u32| RegionAccess { offset: offset.into(), region: region::BAR0, len_bytes: 8 };
    let scratch = at(device::SCRATCH.offset());
    let mut events: Vec<EventFd> = Vec::new();
    for round in 0..12_usize {
        let mut socket = UnixStream::connect(&path).expect("the socket is free again");
        socket.set_read_timeout(Some(std::time::Duration::from_secs(5))).expect("a timeout");
        let mut ask = |request: &Request<'_>, fds: &[BorrowedFd<'_>]| {
            let mut message = Vec::new();
            request.encode(7, false, &mut message);
            let sent = qhca_driver::sys::send_with_fds(socket.as_fd(), &message, fds).expect("sent");
            assert_eq!(sent, message.len());
            let mut head = [0; HEADER_LEN_BYTES];
            socket.read_exact(&mut head).expect("an answer");
            let size = Header::parse(&head).expect("a header").size_bytes as usize;
            let mut rest = vec![0; size - HEADER_LEN_BYTES];
            socket.read_exact(&mut rest).expect("the rest of it");
            answer(&[&head[..], &rest].concat())
        };
        ask(&Request::Version(Version::ours(Capabilities::default())), &[]).expect("a version");
        let seen = ask(&Request::RegionRead(scratch), &[]).expect("a register");
        assert_eq!(seen[16..], [0; 8], "round {round}: the scratch register of the last client");
        let memory = shared_memory_file(0x1000).expect("memory");
        let map = DmaMap { readable: true, writable: true, offset: 0, address: 0x1000, len_bytes: 0x1000 };
        ask(&Request::DmaMap(map), &[memory.as_fd()]).expect("a range that the last client had is free");
        ask(&Request::RegionWrite(scratch, &[0xA5; 8]), &[]).expect("written");
        let mine = EventFd::new().expect("an eventfd");
        let set = SetIrqs {
            index: irq::MSIX,
            start: round as u32 % 4,
            count: 1,
            action: IrqAction::Trigger,
            data: IrqData::Eventfd,
        };
        ask(&Request::SetIrqs(set), &[mine.as_fd()]).expect("connected");
        let fire = SetIrqs { start: 0, count: 4, data: IrqData::None, ..set };
        ask(&Request::SetIrqs(fire), &[]).expect("fired");
        assert_eq!(mine.drain(), 1);
        assert!(events.iter().all(|event| event.drain() == 0), "round {round}: another client's interrupt");
        events.push(mine);
        // Gone at any place of the next message.
        let mut last = Vec::new();
        Request::RegionWrite(scratch, &[0x5A; 8]).encode(9, true, &mut last);
        socket.write_all(&last[..last.len() * round / 12]).expect("sent");
    }
    stop.stop();
    assert!(server.join().expect("the server does not panic"), "it ends as it was told");
    std::fs::remove_dir_all(&dir).expect("removed");
}

/// A write of 4 KiB of which 16 bytes come.
fn half_a_write() -> Vec<u8> {
    let mut message = Vec::new();
    let at = RegionAccess { offset: 0x10_0000, region: region::BAR0, len_bytes: 4096 };
    Request::RegionWrite(at, &[0; 4096]).encode(2, true, &mut message);
    message.truncate(HEADER_LEN_BYTES + 32);
    message
}

/// Memory without a descriptor, the bus, and a send-DMA engine that has its ring there.
fn asks_for_memory() -> Vec<u8> {
    let mut all = Vec::new();
    let mut tell = |request: &Request<'_>| {
        let mut message = Vec::new();
        request.encode(3, true, &mut message);
        all.extend(message);
    };
    let map = DmaMap { readable: true, writable: true, offset: 0, address: 0x10_0000, len_bytes: 0x1000 };
    tell(&Request::DmaMap(map));
    let write = |region, offset: u32, data: &[u8]| {
        let at = RegionAccess { offset: offset.into(), region, len_bytes: data.len() as u32 };
        (at, data.to_vec())
    };
    for (at, data) in [
        write(region::CONFIG, 4, &[6, 0]),
        write(region::BAR0, device::SEND_BUF_AVAIL_ADDR.offset(), &0x10_0000_u64.to_le_bytes()),
        write(
            region::BAR0,
            device::SEND_CTRL.offset(),
            &device::SendCtrl(0).with_send_buf_avail_upd(true).0.to_le_bytes(),
        ),
    ] {
        tell(&Request::RegionWrite(at, &data));
    }
    all
}
