//! The configuration space: whatever is written to it, a bus walk finds the same device and the same capabilities.
//!
//! Input: one byte of options, then accesses of any length at any offset, the end of the space included.

#![no_main]

use libfuzzer_sys::fuzz_target;
use qhca_fuzz::Bytes;
use qhca_sim::vfio_user::{ConfigOptions, ConfigSpace, Effect};

const COMMAND: usize = 0x04;
const CAPABILITIES: usize = 0x34;
const DEVICE_CONTROL: usize = 0x68;

fuzz_target!(|input: &[u8]| {
    let mut bytes = Bytes::new(input);
    let options = bytes.u8();
    let offered = ConfigOptions { flr: options & 1 != 0, aer: options & 2 != 0 };
    let mut space = ConfigSpace::new(offered, 32);
    let walked = walk(&space);
    assert_eq!(walked.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [0x01, 0x11, 0x10]);
    for _ in 0..64 {
        if bytes.is_empty() {
            break;
        }
        let at = usize::from(bytes.u16()) % (ConfigSpace::LEN_BYTES + 8);
        let data: [u8; 8] = bytes.array();
        let len = usize::from(bytes.u8() % 9);
        let mastered = space.bus_master();
        let effect = space.write(at, &data[..len]);
        check(&space, &walked);
        if effect == Effect::FunctionReset {
            assert!(!space.bus_master(), "a function that was reset masters no bus");
            assert!(at <= DEVICE_CONTROL + 1, "only power state and device control reset");
        } else if at >= COMMAND + 2 || at + len <= COMMAND {
            assert_eq!(space.bus_master(), mastered, "the command register was not written");
        }
        if !offered.flr && at == DEVICE_CONTROL {
            assert_eq!(effect, Effect::None, "what is not offered does not act");
        }
    }
});

fn byte(space: &ConfigSpace, at: usize) -> u8 {
    let mut byte = [0];
    space.read(at, &mut byte);
    byte[0]
}

/// Capability ids and where they are.
fn walk(space: &ConfigSpace) -> Vec<(u8, u8)> {
    let mut found = Vec::new();
    let mut at = byte(space, CAPABILITIES);
    while at != 0 && found.len() < 16 {
        found.push((byte(space, at.into()), at));
        at = byte(space, usize::from(at) + 1);
    }
    found
}

fn check(space: &ConfigSpace, walked: &[(u8, u8)]) {
    let mut id = [0; 4];
    space.read(0, &mut id);
    assert_eq!(u32::from_le_bytes(id), 0x7322_1077);
    assert_eq!(walk(space), walked, "the capability list changed");
    assert_eq!(byte(space, ConfigSpace::LEN_BYTES), 0xFF);
}
