//! The memory layouts: known words field by field, and any bits at all.

use proptest::prelude::*;
use qhca_regs::layout::flash::{self, FlashNotes, Text};
use qhca_regs::layout::{
    ArrayEntry, ArrayEntryError, AvailWords, BufSize, BufferState, Flash, FlashError, FlowPsn, KdError,
    KdFlags, KdHeader, KdTid, PacketType, Pbc, Rhf, RhfErrors, RhfSeq, SdmaDesc, SdmaDescError, Slot,
    TidFlow,
};
use qhca_regs::map::area::RcvArrayEntry;
use qhca_regs::map::user::RcvTidFlowTable;
use qhca_regs::{Buffer, Port, Psn};

#[test]
fn an_rhf_of_an_eager_ib_packet_reads_field_by_field() {
    // dword 0: eager buffer used (31), index 0x123 (27:16), type 2 (13:11), length 530 = 0x212 (10:0).
    // dword 1: header at dword 25 (14:4), sequence 13 (3:0).
    let rhf = Rhf::from_dwords(0x8123_1212, 25 << 4 | 13);
    assert_eq!((rhf.len_dwords(), rhf.kind(), rhf.egr_index()), (530, PacketType::Ib, 0x123));
    assert_eq!((rhf.uses_egr_buf(), rhf.seq(), rhf.hdrq_offset()), (true, 13, 25));
    assert_eq!((rhf.is_good(), rhf.errors()), (true, RhfErrors::empty()));
    assert_eq!(rhf.header_span(32), Some(25..30));
    assert_eq!(rhf.payload_dwords(5), Some(524));
}

#[test]
fn rhf_errors_stand_in_the_upper_bits_of_dword_1() {
    let tid = Rhf::from_dwords(0, 1 << 25);
    assert_eq!((tid.errors(), tid.is_good()), (RhfErrors::TID, false));
    let flow = Rhf::from_dwords(0, 1 << 21);
    assert_eq!((flow.errors(), flow.is_good()), (RhfErrors::TF_SEQ, true));
    assert_eq!(RhfErrors::all() - RhfErrors::PACKET, RhfErrors::TF_SEQ | RhfErrors::TF_GEN);
}

#[test]
fn an_offset_that_leaves_no_room_for_a_header_has_no_span() {
    let at = |offset| Rhf::default().with_hdrq_offset(offset);
    assert_eq!(at(29).header_span(32), Some(29..30));
    assert_eq!(at(30).header_span(32), None);
    assert_eq!(at(0x7FF).header_span(32), None);
    assert_eq!(at(0).header_span(1), None);
    assert_eq!(at(0).header_span(0), None);
}

#[test]
fn sequence_numbers_run_from_1_to_13_and_zeroed_memory_never_matches() {
    let mut seq = RhfSeq::FIRST;
    for expected in (1..=13).chain(1..=13) {
        assert_eq!(seq.value(), expected);
        assert!(seq.matches(Rhf::default().with_seq(expected)) && !seq.matches(Rhf::default()));
        seq = seq.next();
    }
}

#[test]
fn a_pbc_reads_field_by_field() {
    // VL15 (63), VL 2 (61:59), port 1 (58), rate 0x55 (45:32), intr (31), length 72 (10:0).
    let pbc = Pbc::for_port(Port::P1, 72).with_vl(2).with_vl15(true).with_static_rate(0x55).with_intr(true);
    assert_eq!(pbc.0, 1 << 63 | 2 << 59 | 1 << 58 | 0x55 << 32 | 1 << 31 | 72);
    assert_eq!((pbc.port(), pbc.written_dwords()), (Port::P1, 73));
    assert_eq!(Pbc::for_port(Port::P0, 72).port(), Port::P0);
}

#[test]
fn an_array_entry_holds_address_and_size() {
    let entry = ArrayEntry::new(0x1234_5678_9800, BufSize::K4).expect("aligned and low");
    assert_eq!(entry.build(), RcvArrayEntry(2 << 37 | 0x1234_5678_9800 >> 11));
    assert_eq!(Slot::parse(entry.build()), Slot::Buffer(entry));
    assert_eq!(Slot::parse(RcvArrayEntry(0)), Slot::Empty);
    assert_eq!(Slot::parse(RcvArrayEntry(7 << 37)), Slot::Reserved(RcvArrayEntry(7 << 37)));
    assert_eq!(BufSize::ALL.map(BufSize::bytes), [2048, 4096, 8192, 16384, 32768, 65536]);
    assert_eq!((BufSize::of_bytes(4096), BufSize::of_bytes(4095)), (Some(BufSize::K4), None));
}

#[test]
fn addresses_that_the_array_cannot_hold_are_refused() {
    let new = |iova| ArrayEntry::new(iova, BufSize::K2);
    assert_eq!(new(0x400), Err(ArrayEntryError::Unaligned { iova: 0x400 }));
    assert_eq!(new(1 << 48), Err(ArrayEntryError::TooHigh { iova: 1 << 48 }));
    assert!(new((1 << 48) - 0x800).is_ok());
}

#[test]
fn a_send_dma_descriptor_reads_field_by_field() {
    let mut desc = SdmaDesc::new(0xABCD_1234_5678, 0x7FF).expect("aligned, low, short");
    desc.word0 = desc.word0.with_first(true).with_generation(3).with_buf_offset(2);
    // address low (63:32), generation 3 (31:30), count 0x7FF (26:16), first (12), offset 2 (10:0).
    assert_eq!(desc.word0.0, 0x1234_5678 << 32 | 3 << 30 | 0x7FF << 16 | 1 << 12 | 2);
    assert_eq!((desc.word1, desc.iova()), (0xABCD, 0xABCD_1234_5678));
    assert_eq!(SdmaDesc::new(2, 1), Err(SdmaDescError::Unaligned { iova: 2 }));
    assert_eq!(SdmaDesc::new(1 << 48, 1), Err(SdmaDescError::TooHigh { iova: 1 << 48 }));
    assert_eq!(SdmaDesc::new(0, 0x800), Err(SdmaDescError::TooLong { len_dwords: 0x800 }));
}

#[test]
fn the_last_buffers_of_the_image_stand_in_its_sixth_qword() {
    let vl15 = Buffer::vl15(Port::P1);
    let mut words = AvailWords::default();
    words.set(vl15, BufferState { check: false, busy: true });
    assert_eq!(words.0, [0, 0, 0, 0, 0, 0b1000]);
    assert_eq!(AvailWords::place(vl15), (5, 2));
}

#[test]
fn a_kd_header_reads_field_by_field() {
    let header =
        KdHeader { ctxt_low: 0xB, tid: KdTid::Tid(0x155), offset_dwords: 0x1234, flags: KdFlags::INTR };
    let bytes = header.build(0x40);
    let word = u64::from_le_bytes(bytes);
    // version 2 (31:28), context 0xB (27:24), TID 0x155 (23:13), offset 0x1234 (12:0): 0x2B2A_B234.
    assert_eq!(word as u32, 0x2B2A_B234);
    // 2 + 0x40 − 0x2B2A − 0xB234 − 1 = 0x22E3 modulo 2^16.
    assert_eq!((word >> 32) as u16, 0x22E3);
    assert_eq!((word >> 48) as u16, 1);
    assert_eq!(KdHeader::parse(bytes, 0x40), Ok(header));
    assert_eq!(KdHeader::parse(bytes, 0x41), Err(KdError::Checksum { found: 0x22E3, expected: 0x22E4 }));
    assert_eq!(KdHeader::parse([0; 8], 0x40), Err(KdError::Version { found: 0 }));
}

#[test]
fn a_flow_entry_ignores_the_bits_that_mean_nothing() {
    // The stock driver's "clear errors" value: bits 54 and 56, and nothing where the chip has its mismatch bits.
    assert_eq!(TidFlow::parse(RcvTidFlowTable(1 << 54 | 1 << 56)), TidFlow::default());
    // valid (19), generation 0x81 (18:11), sequence 0x7FF (10:0).
    let flow = TidFlow::parse(RcvTidFlowTable(1 << 19 | 0x81 << 11 | 0x7FF));
    assert_eq!((flow.valid, flow.generation, flow.seq), (true, 0x81, 0x7FF));
    let psn = FlowPsn::parse(Psn::new(0xFF_FFFF));
    assert_eq!((psn.flow, psn.generation, psn.seq), (31, 0xFF, 0x7FF));
}

fn board() -> Flash {
    Flash {
        version: 2,
        base_guid: 0x0011_7500_0012_3456,
        guid_count: 2,
        serial: Text::new(*b"AIB01-FAB12345"),
        made_on: Text::new(*b"20100102"),
        tested_on: Text::new(*b"20100304"),
        error_counts: [1, 2, 3, 4],
        hours_on: 0x1234,
        comment: Text::new(*b"Tested successfully"),
        notes: FlashNotes::empty(),
    }
}

/// Bytes of `board()` changed by `change`, with the checksum made to fit again.
fn changed(change: impl FnOnce(&mut [u8; flash::LEN_BYTES])) -> [u8; flash::LEN_BYTES] {
    let mut bytes = board().build();
    change(&mut bytes);
    bytes[1] = 0;
    let covered = &bytes[..usize::from(bytes[2]).min(flash::LEN_BYTES)];
    bytes[1] = !covered.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    bytes
}

#[test]
fn a_board_reads_back_as_it_was_written() {
    let bytes = board().build();
    assert_eq!(bytes[3..11], [0x00, 0x11, 0x75, 0x00, 0x00, 0x12, 0x34, 0x56]);
    assert_eq!((&bytes[78..82], &bytes[12..22]), (&b"AIB0"[..], &b"1-FAB12345"[..]));
    let read = Flash::parse(&bytes).expect("what was just built");
    assert_eq!(read, board());
    assert_eq!((read.serial.as_str(), read.port_guid(2)), ("AIB01-FAB12345", Some(0x0011_7500_0012_3457)));
}

#[test]
fn a_blank_or_corrupt_eeprom_is_refused_with_its_reason() {
    assert_eq!(Flash::parse(&[0xFF; 128]), Err(FlashError::Length { found: 0xFF }));
    assert_eq!(Flash::parse(&[0; 128]), Err(FlashError::Length { found: 0 }));
    let mut corrupt = board().build();
    corrupt[20] ^= 1;
    assert!(
        matches!(Flash::parse(&corrupt), Err(FlashError::Checksum { found, expected }) if found != expected)
    );
    for guid in [0, u64::MAX] {
        let bytes = changed(|bytes| bytes[3..11].copy_from_slice(&guid.to_be_bytes()));
        assert_eq!(Flash::parse(&bytes), Err(FlashError::Guid { found: guid }));
    }
}

#[test]
fn an_old_layout_is_moved_and_the_factory_default_is_told() {
    let with_guid = |guid: [u8; 8]| {
        let read =
            Flash::parse(&changed(|bytes| bytes[3..11].copy_from_slice(&guid))).expect("a valid board");
        (read.base_guid, read.notes)
    };
    assert_eq!(
        with_guid([0, 0, 0, 0x11, 0x75, 0xAA, 0xBB, 0xCC]),
        (0x0011_7500_00AA_BBCC, FlashNotes::OLD_LAYOUT)
    );
    assert_eq!(
        with_guid([0, 0, 0, 0x11, 0x75, 0, 0, 1]),
        (0x0011_7500_0000_0001, FlashNotes::OLD_LAYOUT | FlashNotes::FACTORY_GUID)
    );
    assert_eq!(with_guid([0, 2, 0xC9, 0, 0, 0, 0, 1]), (0x0002_C900_0000_0001, FlashNotes::FOREIGN_OUI));
}

#[test]
fn prefix_and_comment_count_only_where_they_are_written() {
    let serial = |change: fn(&mut [u8; 128])| Flash::parse(&changed(change)).expect("a valid board").serial;
    assert_eq!(serial(|bytes| bytes[78] = 0).as_str(), "1-FAB12345");
    assert_eq!(serial(|bytes| bytes[78] = 0xFF).as_str(), "1-FAB12345");
    assert_eq!(serial(|bytes| bytes[0] = 1).as_str(), "1-FAB12345");
    let untested = Flash::parse(&changed(|bytes| bytes[46] = b'?')).expect("a valid board");
    assert_eq!(untested.notes, FlashNotes::NOT_TESTED);
}

proptest! {
    #[test]
    fn any_rhf_reads_without_panic_and_builds_back(bits: u64, entry_dwords in 0usize..64, header in 0usize..64) {
        let rhf = Rhf(bits);
        prop_assert_eq!(Rhf::parse(rhf.build()), rhf);
        let [dword0, dword1] = rhf.dwords();
        prop_assert_eq!(Rhf::from_dwords(dword0, dword1), rhf);
        let again = rhf.with_len_dwords(rhf.len_dwords()).with_kind(rhf.kind()).with_egr_index(rhf.egr_index())
            .with_seq(rhf.seq()).with_hdrq_offset(rhf.hdrq_offset()).with_errors(rhf.errors());
        prop_assert_eq!(again, rhf);
        if let Some(span) = rhf.header_span(entry_dwords) {
            prop_assert!(span.start < span.end && span.end + 2 == entry_dwords);
        }
        if let Some(payload) = rhf.payload_dwords(header) {
            prop_assert_eq!(payload + header + 1, usize::from(rhf.len_dwords()));
        }
    }

    #[test]
    fn any_pbc_reads_without_panic_and_builds_back(bits: u64) {
        let pbc = Pbc(bits);
        prop_assert_eq!(Pbc::parse(pbc.build()), pbc);
        let [dword0, dword1] = pbc.dwords();
        prop_assert_eq!(Pbc::from_dwords(dword0, dword1), pbc);
        prop_assert!(pbc.vl() < 8 && pbc.len_dwords() <= Pbc::MAX_LEN_DWORDS);
        prop_assert!(pbc.written_dwords() <= 0x800);
    }

    #[test]
    fn any_array_word_keeps_its_meaning(bits in 0u64..1 << 40) {
        let word = RcvArrayEntry(bits);
        match Slot::parse(word) {
            Slot::Empty => prop_assert_eq!(word.rt_buf_size(), 0),
            slot => prop_assert_eq!(slot.build(), word),
        }
    }

    #[test]
    fn any_descriptor_reads_and_builds_back(bytes: [u8; 16]) {
        let desc = SdmaDesc::parse(bytes);
        prop_assert_eq!(desc.build(), bytes);
        prop_assert!(desc.iova() < 1 << 48);
    }

    #[test]
    fn a_buffers_state_touches_no_other(bytes in any::<[[u8; 8]; 6]>(), n in 0usize..162, check: bool, busy: bool) {
        let bytes: [u8; 48] = bytes.concat().try_into().expect("48 bytes");
        let before = AvailWords::parse(bytes);
        prop_assert_eq!(before.build(), bytes);
        let (buffer, state) = (Buffer::new(n).expect("below 162"), BufferState { check, busy });
        let mut after = before;
        after.set(buffer, state);
        for other in (0..162).filter_map(Buffer::new) {
            let expected = if other == buffer { state } else { before.state(other) };
            prop_assert_eq!(after.state(other), expected);
        }
    }

    #[test]
    fn a_kd_header_survives_its_own_bytes(
        ctxt_low in 0u8..16, tid in 0u16..0x800, offset_dwords in 0u16..0x2000, flags: u16, len: u16,
    ) {
        let tid = if tid == KdTid::EAGER_CODE { KdTid::Eager } else { KdTid::Tid(tid) };
        let header = KdHeader { ctxt_low, tid, offset_dwords, flags: KdFlags::from_bits_retain(flags) };
        prop_assert_eq!(KdHeader::parse(header.build(len), len), Ok(header));
    }

    #[test]
    fn a_flipped_bit_in_a_kd_header_never_passes(offset_dwords in 0u16..0x2000, flags: u16, len: u16, bit in 0usize..64) {
        let header = KdHeader { ctxt_low: 3, tid: KdTid::Eager, offset_dwords, flags: KdFlags::from_bits_retain(flags) };
        let mut bytes = header.build(len);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(KdHeader::parse(bytes, len).is_err());
    }

    #[test]
    fn any_kd_bytes_parse_or_say_why(bytes: [u8; 8], len: u16) {
        if let Ok(header) = KdHeader::parse(bytes, len) {
            prop_assert_eq!(header.build(len), bytes);
        }
    }

    #[test]
    fn any_flow_word_keeps_its_named_bits(bits: u64) {
        let named = 0x1F << 19 & !(1 << 23) | 0x7_FFFF | 3 << 27;
        prop_assert_eq!(TidFlow::parse(RcvTidFlowTable(bits)).build().0, bits & named);
        let psn = Psn::new(bits as u32);
        prop_assert_eq!(FlowPsn::parse(psn).build(), psn);
    }

    #[test]
    fn any_eeprom_parses_or_says_why(
        head in any::<[u8; 32]>(), rest in any::<[[u8; 32]; 3]>(), len in prop_oneof![82u8..=128, any::<u8>()], mend: bool,
    ) {
        let mut bytes: [u8; 128] = [head, rest[0], rest[1], rest[2]].concat().try_into().expect("128 bytes");
        bytes[2] = len;
        if mend {
            bytes = changed(|board| *board = bytes);
        }
        if let Ok(board) = Flash::parse(&bytes) {
            prop_assert!(board.serial.as_str().len() <= 16);
            prop_assert!(board.base_guid != 0);
        }
    }
}
