//! vfio-user messages: the codec on its own, then a session that gets them from a client.
//!
//! Input: messages, each a byte that says what is fed and how, a command, and a payload; or raw bytes for the stream. A
//! parsed request is built again and must read back as itself, its lengths must be what it carries, and a session must
//! answer every command that wants an answer once, in order.

#![no_main]

use libfuzzer_sys::fuzz_target;
use qhca_driver::sys::shared_memory_file;
use qhca_fuzz::Bytes;
use qhca_regs::Duration;
use qhca_sim::chip::Config;
use qhca_sim::vfio_user::{Alone, ConfigOptions, Options};
use qhca_vfu::{
    Capabilities, Command, DmaRequest, HEADER_LEN_BYTES, Header, Kind, Request, TRIGGERS_MAX, Version,
};
use std::os::fd::{AsFd, BorrowedFd};

/// Messages of one input; more teach nothing new.
const MESSAGES_MAX: usize = 24;
const ANSWER_WITHIN: std::time::Duration = std::time::Duration::from_millis(1);

fuzz_target!(|input: &[u8]| {
    let mut bytes = Bytes::new(input);
    let options = Options {
        config: ConfigOptions { flr: true, aer: true },
        transfer_max_bytes: 4096,
        answer_within: ANSWER_WITHIN,
        ..Options::default()
    };
    let mut session = Alone::new(Config::default(), options).expect("a session");
    let memory = shared_memory_file(0x1_0000).expect("memory");
    let mut out = Vec::new();
    Request::Version(Version::ours(Capabilities::default())).encode(1, false, &mut out);
    session.exchange(&out, &[], Duration::ZERO).expect("a version");
    let mut bent = false;
    for id in 2..MESSAGES_MAX as u16 {
        if bytes.is_empty() || !session.is_open() {
            break;
        }
        let (how, command, len) = (bytes.u8(), u16::from(bytes.u8() % 17), usize::from(bytes.u8() % 96));
        let payload: [u8; 96] = bytes.array();
        let payload = &payload[..len];
        codec(command, payload);
        let no_reply = how & 1 != 0;
        let header = Header { id, command, size_bytes: 0, kind: Kind::Command, no_reply, error: None };
        let mut message = header.with_payload(payload);
        if how & 0x80 != 0 {
            // The header itself is bent: from here on the stream may be cut elsewhere, and answers come later.
            bent = true;
            message[usize::from(how >> 2) % HEADER_LEN_BYTES] ^= 1 << (how & 7);
        }
        let fds = [memory.as_fd(), memory.as_fd()];
        let fds: &[BorrowedFd<'_>] = &fds[..usize::from(how >> 1 & 1) + usize::from(how >> 2 & 1)];
        let after = Duration::from_nanos(u64::from(how >> 3 & 7) * 1000);
        let Ok(answers) = session.exchange(&message, fds, after) else { break };
        if !bent && session.is_open() {
            check_answers(&answers, id, no_reply);
        }
    }
});

/// What is parsed is built again, and is what it says.
fn codec(command: u16, payload: &[u8]) {
    let Ok(command) = Command::from_number(command) else { return };
    if let Ok(request) = Request::parse(command, payload) {
        if let Request::SetIrqs(set) = &request {
            assert!(set.count <= TRIGGERS_MAX && set.start <= TRIGGERS_MAX, "{set:?}");
        }
        if let Request::RegionWrite(at, data) = &request {
            assert_eq!(at.len_bytes as usize, data.len());
        }
        let (again, bytes) = request.build();
        assert_eq!(again, command);
        assert_eq!(Request::parse(command, &bytes), Ok(request));
    }
    if let Ok(DmaRequest::Write { data, .. }) = DmaRequest::parse(command, payload) {
        assert!(data.len() <= payload.len());
    }
}

/// One answer to a command that wants one, none to one that does not; the session's own questions come beside them.
fn check_answers(mut bytes: &[u8], id: u16, no_reply: bool) {
    let mut answered = 0;
    while let Some(head) = bytes.first_chunk::<HEADER_LEN_BYTES>() {
        let header = Header::parse(head).expect("the server's own header");
        let len = header.size_bytes as usize;
        assert!(len <= bytes.len(), "half a message");
        if header.kind == Kind::Reply {
            assert_eq!(header.id, id);
            answered += 1;
        }
        bytes = &bytes[len..];
    }
    assert!(bytes.is_empty());
    assert_eq!(answered, u32::from(!no_reply));
}
