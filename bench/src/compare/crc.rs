//! What the two sums of a packet cost, beside the copy that the packet needs anyway. Reported; no bar.

use std::hint::black_box;

use qhca_sim::fabric::crc::Crcs;

use super::Section;
use crate::interleave::{Candidate, interleave};

/// One section for each length.
pub(super) fn sections(rounds: usize) -> Vec<Section> {
    [64, 256, 2048, 4096].into_iter().map(|len_bytes| section(rounds, len_bytes)).collect()
}

fn section(rounds: usize, len_bytes: usize) -> Section {
    let packet: Vec<u8> = (0..len_bytes).map(|n| n as u8).collect();
    let mut copy = vec![0; len_bytes];
    let sums = Crcs::new();
    let repeats = 4_000_000 / (len_bytes as u32 + 256);
    let candidates = vec![
        Candidate::timed("memcpy", repeats, || {
            copy.copy_from_slice(black_box(&packet));
            black_box(&mut copy);
        }),
        Candidate::timed("ICRC of the fabric", repeats, || {
            black_box(sums.icrc(black_box(&packet)));
        }),
        Candidate::timed("VCRC of the fabric", repeats, || {
            black_box(sums.vcrc(black_box(&packet)));
        }),
        Candidate::timed("crc32fast alone", repeats, || {
            black_box(crc32fast::hash(black_box(&packet)));
        }),
        Candidate::timed("crc-fast CRC-32 alone", repeats, || {
            black_box(crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, black_box(&packet)));
        }),
    ];
    Section {
        title: format!("sums over {len_bytes} bytes"),
        comparison: interleave(rounds, candidates),
        limits: Vec::new(),
    }
}
