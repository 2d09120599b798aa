//! Every memory layout that the chip or a packet brings: parsing never panics, and building gives the bytes back.
//!
//! Input: which layout, then its bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use qhca_fuzz::Bytes;
use qhca_regs::layout::{
    ArrayEntry, AvailWords, BufSize, FlowPsn, KdHeader, Pbc, Rhf, RhfSeq, SdmaDesc, Slot, TidFlow,
};
use qhca_regs::map::area::RcvArrayEntry;
use qhca_regs::map::user::RcvTidFlowTable;
use qhca_regs::{Buffer, Psn};

fuzz_target!(|input: &[u8]| {
    let mut bytes = Bytes::new(input);
    while !bytes.is_empty() {
        match bytes.u8() % 7 {
            0 => rhf(&mut bytes),
            1 => pbc(&mut bytes),
            2 => array_entry(&mut bytes),
            3 => sdma_desc(&mut bytes),
            4 => avail(&mut bytes),
            5 => kd_header(&mut bytes),
            _ => tid_flow(&mut bytes),
        }
    }
});

fn rhf(bytes: &mut Bytes) {
    let raw = bytes.array();
    let entry_dwords = usize::from(bytes.u8());
    let rhf = Rhf::parse(raw);
    assert_eq!(rhf.build(), raw);
    let [dword0, dword1] = rhf.dwords();
    assert_eq!(Rhf::from_dwords(dword0, dword1), rhf);
    if let Some(span) = rhf.header_span(entry_dwords) {
        assert!(span.start < span.end && span.end + Rhf::LEN_DWORDS == entry_dwords);
        if let Some(payload) = rhf.payload_dwords(span.len()) {
            assert_eq!(span.len() + payload + 1, usize::from(rhf.len_dwords()));
        }
    }
    let can_be_new = (RhfSeq::FIRST.value()..=RhfSeq::LAST.value()).contains(&rhf.seq());
    let mut seq = RhfSeq::FIRST;
    let mut waiting = 0;
    for _ in 0..RhfSeq::LAST.value() {
        waiting += usize::from(seq.matches(rhf));
        seq = seq.next();
    }
    assert_eq!(waiting, usize::from(can_be_new), "an entry is new to one reader at most");
    assert_eq!(seq, RhfSeq::FIRST);
}

fn pbc(bytes: &mut Bytes) {
    let raw = bytes.array();
    let pbc = Pbc::parse(raw);
    assert_eq!(pbc.build(), raw);
    let [dword0, dword1] = pbc.dwords();
    assert_eq!(Pbc::from_dwords(dword0, dword1), pbc);
    let len = pbc.len_dwords();
    assert!(len <= Pbc::MAX_LEN_DWORDS && pbc.written_dwords() == usize::from(len) + 1);
    assert_eq!(Pbc::for_port(pbc.port(), len).port(), pbc.port());
}

fn array_entry(bytes: &mut Bytes) {
    let word = RcvArrayEntry(bytes.u64());
    let slot = Slot::parse(word);
    assert_eq!(Slot::parse(slot.build()), slot, "{word:?}");
    if let Slot::Buffer(entry) = slot {
        assert_eq!(ArrayEntry::new(entry.iova(), entry.size()), Ok(entry));
        assert_eq!(BufSize::of_bytes(entry.size().bytes()), Some(entry.size()));
    }
}

fn sdma_desc(bytes: &mut Bytes) {
    let raw = bytes.array();
    let desc = SdmaDesc::parse(raw);
    assert_eq!(desc.build(), raw);
    if let Ok(made) = SdmaDesc::new(desc.iova(), usize::from(desc.word0.len_dwords())) {
        assert_eq!((made.iova(), made.word0.len_dwords()), (desc.iova(), desc.word0.len_dwords()));
    }
}

fn avail(bytes: &mut Bytes) {
    let raw = bytes.array();
    let words = AvailWords::parse(raw);
    assert_eq!(words.build(), raw);
    let mut copy = AvailWords::default();
    for buffer in (0..Buffer::COUNT).filter_map(Buffer::new) {
        copy.set(buffer, words.state(buffer));
        assert_eq!(copy.state(buffer), words.state(buffer));
    }
}

fn kd_header(bytes: &mut Bytes) {
    let raw = bytes.array();
    let len_dwords = bytes.u16();
    match KdHeader::parse(raw, len_dwords) {
        Ok(header) => assert_eq!(header.build(len_dwords), raw),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn tid_flow(bytes: &mut Bytes) {
    let word = bytes.u64();
    let flow = TidFlow::parse(RcvTidFlowTable(word));
    assert_eq!(TidFlow::parse(flow.build()), flow);
    let psn = Psn::new(word as u32 & 0xFF_FFFF);
    assert_eq!(FlowPsn::parse(psn).build(), psn);
}
