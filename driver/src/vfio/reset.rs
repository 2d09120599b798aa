//! Resets by the kernel: of the function, or of its bus if nobody else is there.
//!
//! The kernel is preferred to the chip's own reset register, because it saves what the card forgets (payload and read
//! request sizes, the MSI-X table) and writes it back. Which way it takes it knows best; `reset_method` in sysfs tells
//! which that is.
//!
//! A reset of the bus hits every function on it. The kernel lists them and refuses unless all are ours; here it is not
//! even asked for if there is another (B137).

use std::fmt;
use std::time::{Duration, Instant};

use super::address::PciAddress;
use super::bytes::word;
use super::command::Command;
use super::error::VfioError;
use super::info::ANSWER_MAX_BYTES;
use super::kernel::Kernel;
use super::open::{Route, refused};
use super::session::{Live, Session};
use crate::env::ResetKind;

/// How long a reset is asked for again while the kernel cannot lock the device.
///
/// TIMEOUT: the lock is held for one access to the device's files in sysfs; a second is a thousand of them.
const TRIES_FOR: Duration = Duration::from_secs(1);
/// Rest between two tries.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(5);

/// A reset that was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reset {
    /// How far it reached.
    pub kind: ResetKind,
    /// How long the kernel took.
    pub took: Duration,
}

impl fmt::Display for Reset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ResetKind::Function => "the function",
            ResetKind::Bus => "its bus",
            ResetKind::Chip => "the chip by its own register",
        };
        write!(f, "reset of {kind} in {} ms", self.took.as_millis())
    }
}

/// Resets the card as the kernel can, and says how and in what time.
pub(super) fn pull<K: Kernel>(session: &Session<K>, live: &mut Live<K>) -> Result<Reset, VfioError> {
    let begun = Instant::now();
    let kind = match session.can_reset {
        true => {
            let value =
                |session: &Session<K>| session.calls.request_value(&live.device, Command::DeviceReset, 0);
            again(|| value(session)).map_err(refused(Command::DeviceReset, session.address()))?;
            session.found.reset_kind.unwrap_or(ResetKind::Function)
        }
        false => {
            reset_bus(session, live)?;
            ResetKind::Bus
        }
    };
    let reset = Reset { kind, took: begun.elapsed() };
    log::info!("{}: {reset}", session.address());
    Ok(reset)
}

/// Asks again while the kernel says that it cannot just now.
fn again(mut call: impl FnMut() -> std::io::Result<u32>) -> std::io::Result<u32> {
    let until = Instant::now() + TRIES_FOR;
    loop {
        match call() {
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) && Instant::now() < until => {
                std::thread::sleep(TRY_AGAIN_AFTER);
            }
            result => return result,
        }
    }
}

/// Bytes of the answer's head, and of each function in it.
const HEAD_BYTES: usize = 12;
const ENTRY_BYTES: usize = 8;

/// Resets the bus if the card is alone on it.
fn reset_bus<K: Kernel>(session: &Session<K>, live: &Live<K>) -> Result<(), VfioError> {
    let answer = ask_neighbours(session, live)?;
    let others = others_of(&answer, session.address());
    if !others.is_empty() {
        let others = others.iter().map(ToString::to_string).collect();
        return Err(VfioError::ResetReachesOthers { others });
    }
    // By the group the kernel wants to see that it is ours; by the device's own node it knows.
    let groups: &[i32] = match &live.route {
        Route::Group { group, .. } | Route::NoIommu { group, .. } => &[session.calls.raw_fd(group)],
        Route::Own { .. } => &[],
    };
    let mut bytes = hot_reset(groups);
    again(|| session.calls.request_bytes(&live.device, Command::HotReset, &mut bytes))
        .map(|_zero| ())
        .map_err(refused(Command::HotReset, session.address()))
}

fn hot_reset(groups: &[i32]) -> Vec<u8> {
    let words: Vec<u32> =
        [0, groups.len() as u32].into_iter().chain(groups.iter().map(|fd| *fd as u32)).collect();
    super::bytes::request(&words)
}

/// The kernel's list of the functions that a reset of the bus hits.
fn ask_neighbours<K: Kernel>(session: &Session<K>, live: &Live<K>) -> Result<Vec<u8>, VfioError> {
    let command = Command::HotResetInfo;
    let mut len = HEAD_BYTES + 8 * ENTRY_BYTES;
    loop {
        let mut bytes = vec![0; len];
        bytes[..4].copy_from_slice(&(len as u32).to_ne_bytes());
        match session.calls.request_bytes(&live.device, command, &mut bytes) {
            Ok(_) => return Ok(bytes),
            Err(error) if error.raw_os_error() == Some(libc::ENOSPC) && len < ANSWER_MAX_BYTES => {
                let count = word(&bytes, 2) as usize;
                let wanted = count.saturating_mul(ENTRY_BYTES).saturating_add(HEAD_BYTES);
                len = wanted.clamp(2 * len, ANSWER_MAX_BYTES);
            }
            Err(error) => return Err(refused(command, session.address())(error)),
        }
    }
}

/// The functions in the kernel's list that are not `ours`, as many as it really holds.
fn others_of(answer: &[u8], ours: PciAddress) -> Vec<PciAddress> {
    let entries = answer.get(HEAD_BYTES..).unwrap_or_default();
    let count = word(answer, 2) as usize;
    let place = |entry: &[u8; ENTRY_BYTES]| {
        let domain = u16::from_ne_bytes([entry[4], entry[5]]);
        PciAddress::from_devfn(domain.into(), entry[6], entry[7])
    };
    // The list has 16 bits for a domain.
    let same = |other: &PciAddress| {
        (other.domain(), other.bus(), other.devfn()) == (ours.domain() & 0xFFFF, ours.bus(), ours.devfn())
    };
    entries.as_chunks().0.iter().take(count).map(place).filter(|other| !same(other)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn address(text: &str) -> PciAddress {
        text.parse().expect("an address")
    }

    #[test]
    fn others_on_the_bus_are_named_and_we_are_not() {
        let ours = address("0000:04:00.0");
        let mut answer = super::super::bytes::request(&[0, 3]);
        for (domain, bus, devfn) in [(0_u16, 4, 0), (0, 4, 1), (1, 4, 0)] {
            answer.extend(7_u32.to_ne_bytes());
            answer.extend(domain.to_ne_bytes());
            answer.extend([bus, devfn]);
        }
        assert_eq!(others_of(&answer, ours), [address("0000:04:00.1"), address("0001:04:00.0")]);
        assert_eq!(others_of(&answer[..20], ours), []);
    }

    #[test]
    fn request_for_a_bus_reset_has_exactly_its_bytes() {
        assert_eq!(hot_reset(&[9]), super::super::bytes::request(&[0, 1, 9]));
        assert_eq!(hot_reset(&[]).len(), 12);
    }

    proptest! {
        #[test]
        fn any_list_is_read(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            prop_assert!(others_of(&bytes, address("04:00.0")).len() <= bytes.len() / ENTRY_BYTES);
        }
    }
}
