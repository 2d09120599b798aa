//! What an engine counts: packets in and out, and why one was not taken.

use std::fmt;

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Drop {
    /// It could not be read.
    Malformed,
    /// It is for another port.
    NotOurLid,
    /// No queue pair has its number.
    NoSuchQp,
    /// The queue pair is in a state that takes no packets.
    QpState,
    /// The queue pair is of another service.
    WrongService,
    /// It comes from another port than the queue pair is connected to.
    WrongSource,
    /// Its P_Key is not the queue pair's, or both are limited members.
    PKey,
    /// Its Q_Key is not the queue pair's.
    QKey,
    /// No receive was posted, on a service that does not repeat.
    NoReceive,
    /// It is out of sequence.
    OutOfSequence,
    /// It repeats what was done.
    Duplicate,
    /// An answer to something that was answered, or was never asked.
    Ghost,
    /// It does not fit into the receive, on a service that cannot say so.
    TooLong,
    /// It is part of a message of which a part was lost, on a service that does not repeat.
    Incomplete,
    /// A datagram to a multicast group that no queue pair is attached to.
    NoMember,
}

impl Drop {
    /// All reasons, in the order of the counters.
    pub const ALL: [Self; 15] = [
        Self::Malformed,
        Self::NotOurLid,
        Self::NoSuchQp,
        Self::QpState,
        Self::WrongService,
        Self::WrongSource,
        Self::PKey,
        Self::QKey,
        Self::NoReceive,
        Self::OutOfSequence,
        Self::Duplicate,
        Self::Ghost,
        Self::TooLong,
        Self::Incomplete,
        Self::NoMember,
    ];
}

impl fmt::Display for Drop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "malformed",
            Self::NotOurLid => "not our LID",
            Self::NoSuchQp => "no such QP",
            Self::QpState => "QP state",
            Self::WrongService => "wrong service",
            Self::WrongSource => "wrong source",
            Self::PKey => "P_Key",
            Self::QKey => "Q_Key",
            Self::NoReceive => "no receive",
            Self::OutOfSequence => "out of sequence",
            Self::Duplicate => "duplicate",
            Self::Ghost => "ghost",
            Self::TooLong => "too long",
            Self::Incomplete => "incomplete",
            Self::NoMember => "no member",
        })
    }
}

/// The counters of an engine, all since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Packets that came.
    pub packets_received: u64,
    /// Packets that went to the wire.
    pub packets_sent: u64,
    /// Packets that went to ourselves.
    pub packets_looped: u64,
    /// Acknowledges that went out.
    pub acks_sent: u64,
    /// NAKs for a sequence error that went out.
    pub sequence_naks_sent: u64,
    /// RNR NAKs that went out.
    pub rnr_naks_sent: u64,
    /// NAKs that end a connection that went out.
    pub fatal_naks_sent: u64,
    /// NAKs for a sequence error that came.
    pub sequence_naks_received: u64,
    /// RNR NAKs that came.
    pub rnr_naks_received: u64,
    /// Times that a requester went back, for whatever reason.
    pub rewinds: u64,
    /// Acknowledge timers that ran out.
    pub timeouts: u64,
    /// Completions that found no room.
    pub completions_lost: u64,
    /// P_Key violations, as the port's 16-bit counter that a subnet manager reads.
    pub pkey_violations: u16,
    /// Q_Key violations, as the port's 16-bit counter that a subnet manager reads.
    pub qkey_violations: u16,
    dropped: [u64; Drop::ALL.len()],
}

impl Counters {
    /// Packets that were dropped for `reason`.
    pub fn dropped(&self, reason: Drop) -> u64 {
        self.dropped[reason as usize]
    }

    #[cold]
    pub(crate) fn drop_for(&mut self, reason: Drop) {
        self.dropped[reason as usize] += 1;
        match reason {
            Drop::PKey => self.pkey_violations = self.pkey_violations.saturating_add(1),
            Drop::QKey => self.qkey_violations = self.qkey_violations.saturating_add(1),
            _ => {}
        }
    }
}
