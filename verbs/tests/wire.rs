//! Every header there and back, every opcode, and garbage.

use proptest::prelude::*;
use qhca_regs::Lid;
use qhca_verbs::wire::{
    AtomicAckEth, AtomicEth, Bth, Deth, Extra, Gid, Grh, Headers, Lrh, NextHeader, Opcode, Operation, Place,
    Reth, Service, WireError, words_of,
};
use qhca_verbs::{Key, Psn, QpNumber};

prop_compose! {
    fn lrh()(vl in 0u8..16, sl in 0u8..16, next in 0u8..4, dlid: u16, len_dwords in 0u16..2048, slid: u16) -> Lrh {
        let next = [NextHeader::RawEther, NextHeader::RawIpv6, NextHeader::Bth, NextHeader::Grh][usize::from(next)];
        Lrh { vl, sl, next, dlid: Lid(dlid), len_dwords, slid: Lid(slid) }
    }
}

prop_compose! {
    fn grh()(
        traffic_class: u8, flow_label in 0u32..1 << 20, payload_bytes: u16, hop_limit: u8, sgid: u128, dgid: u128
    ) -> Grh {
        Grh { traffic_class, flow_label, payload_bytes, hop_limit, sgid: Gid(sgid), dgid: Gid(dgid) }
    }
}

prop_compose! {
    fn bth()(
        opcode: u8, flags in 0u8..32, pad in 0u8..4, pkey: u16, dest_qp in 0u32..1 << 24, psn in 0u32..1 << 24
    ) -> Bth {
        Bth {
            opcode: Opcode(opcode),
            solicited: flags & 1 != 0,
            migrated: flags & 2 != 0,
            pad,
            pkey,
            fecn: flags & 4 != 0,
            becn: flags & 8 != 0,
            dest_qp: QpNumber::new(dest_qp),
            ack_request: flags & 16 != 0,
            psn: Psn::new(psn),
        }
    }
}

proptest! {
    #[test]
    fn headers_survive_the_wire(lrh in lrh(), grh in grh(), bth in bth()) {
        prop_assert_eq!(Lrh::parse(lrh.build()), Ok(lrh));
        prop_assert_eq!(Grh::parse(grh.build()), Ok(grh));
        prop_assert_eq!(Bth::parse(bth.build()), Ok(bth));
    }

    #[test]
    fn extension_headers_survive_the_wire(a: u64, b: u64, c: u64, key: u32, len: u32, qp in 0u32..1 << 24) {
        let reth = Reth { addr: a, rkey: Key(key), len_bytes: len };
        prop_assert_eq!(Reth::parse(reth.build()), reth);
        let atomic = AtomicEth { addr: a, rkey: Key(key), swap_or_add: b, compare: c };
        prop_assert_eq!(AtomicEth::parse(atomic.build()), atomic);
        prop_assert_eq!(AtomicAckEth::parse(AtomicAckEth(c).build()), AtomicAckEth(c));
        let deth = Deth { qkey: key, src_qp: QpNumber::new(qp) };
        prop_assert_eq!(Deth::parse(deth.build()), deth);
    }

    /// Reserved bits are passed over: setting any of them changes nothing that is read.
    #[test]
    fn reserved_bits_change_nothing(lrh in lrh(), bth in bth(), noise: u32) {
        let [first, second] = lrh.build();
        let noisy = [first | noise & 3 << 18, second | noise & 0x1F << 27];
        prop_assert_eq!(Lrh::parse(noisy), Ok(lrh));
        let [first, second, third] = bth.build();
        let noisy = [first, second | noise & 0x3F << 24, third | noise & 0x7F << 24];
        prop_assert_eq!(Bth::parse(noisy), Ok(bth));
    }

    /// Words of any kind are parsed or refused, never worse; what is parsed can be shown and has its headers.
    #[test]
    fn garbage_is_refused_or_read(words in prop::collection::vec(any::<u32>(), 0..40), payload in 0usize..1100) {
        if let Ok(headers) = Headers::parse(&words, payload) {
            prop_assert!(headers.payload_bytes() <= (headers.rest().len() + payload) * 4);
            prop_assert!(!headers.to_string().is_empty());
        }
    }

    /// The same with everything right but what a bit flips.
    #[test]
    fn flipped_bit_is_refused_or_read(at in 0usize..24, bit in 0u32..32, opcode: u8, payload in 0usize..64) {
        let mut words = packet(Opcode(opcode), payload);
        let at = at % words.len();
        words[at] ^= 1 << bit;
        if let Ok(headers) = Headers::parse(&words, payload) {
            prop_assert!(!headers.to_string().is_empty());
        }
    }
}

/// A packet of this opcode with every header that it implies, and `payload` words elsewhere.
fn packet(opcode: Opcode, payload: usize) -> Vec<u32> {
    let ext = opcode.meaning().map_or(0, |meaning| usize::from(meaning.ext_words));
    let words = Lrh::WORDS + Bth::WORDS + ext;
    let lrh = Lrh {
        vl: 0,
        sl: 3,
        next: NextHeader::Bth,
        dlid: Lid(2),
        len_dwords: (words + payload + 1) as u16,
        slid: Lid(1),
    };
    let bth = Bth {
        opcode,
        solicited: false,
        migrated: true,
        pad: 0,
        pkey: 0xFFFF,
        fecn: false,
        becn: false,
        dest_qp: QpNumber::new(0x123456),
        ack_request: true,
        psn: Psn::new(0xABCDEF),
    };
    let mut all = lrh.build().to_vec();
    all.extend(bth.build());
    all.extend((1..=ext as u32).map(|n| n * 0x0101_0101));
    all
}

/// B91: for every opcode the headers that it implies are there, and no others; a golden length for each.
#[test]
fn every_opcode_has_the_headers_that_it_implies() {
    let mut seen = 0;
    for opcode in Opcode::all() {
        let words = packet(opcode, 4);
        let h = Headers::parse(&words, 4).unwrap_or_else(|error| panic!("{opcode}: {error}"));
        let meaning = h.meaning;
        let begins = meaning.place.begins();
        let has = [
            (
                h.reth().is_some(),
                meaning.operation == Operation::ReadRequest
                    || meaning.operation == Operation::Write && begins,
                4,
            ),
            (
                h.atomic().is_some(),
                matches!(meaning.operation, Operation::CompareSwap | Operation::FetchAdd),
                7,
            ),
            (h.deth().is_some(), meaning.service == Service::Ud, 2),
            (h.immediate().is_some(), meaning.extra == Extra::Immediate, 1),
            (h.invalidate().is_some(), meaning.extra == Extra::Invalidate, 1),
            (h.atomic_ack().is_some(), meaning.operation == Operation::AtomicAcknowledge, 2),
            (
                h.aeth().is_some(),
                matches!(meaning.operation, Operation::Acknowledge | Operation::AtomicAcknowledge)
                    || meaning.operation == Operation::ReadResponse && meaning.place != Place::Middle,
                1,
            ),
        ];
        let total: u8 = has.iter().filter(|(there, ..)| *there).map(|(.., words)| *words).sum();
        assert!(has.iter().all(|(there, wanted, _)| there == wanted), "{opcode}: {has:?}");
        assert_eq!(total, meaning.ext_words, "{opcode}");
        assert_eq!(h.payload_bytes(), 16);
        for short in 0..words.len() {
            assert!(
                Headers::parse(&words[..short], 4 + words.len() - short).is_err(),
                "{opcode} cut to {short}"
            );
        }
        seen += 1;
    }
    assert_eq!(seen, 23 + 12 + 2, "RC, UC and UD");
}

#[test]
fn unknown_versions_are_refused_by_name() {
    let words = packet(Opcode(4), 0);
    let mut link = words.clone();
    link[0] |= 1 << 24;
    assert!(matches!(Headers::parse(&link, 0), Err(WireError::LinkVersion(1))));
    let mut transport = words.clone();
    transport[2] |= 2 << 16;
    assert!(matches!(Headers::parse(&transport, 0), Err(WireError::TransportVersion(2))));
    let mut raw = words.clone();
    raw[0] &= !(3 << 16);
    assert!(matches!(Headers::parse(&raw, 0), Err(WireError::Raw(NextHeader::RawEther))));
    assert!(matches!(Headers::parse(&words, 1), Err(WireError::Length { lrh_dwords: 6, have_dwords: 7 })));
    let mut pad = words;
    pad[2] |= 3 << 20;
    assert!(matches!(Headers::parse(&pad, 0), Err(WireError::Pad { pad: 3, payload_bytes: 0 })));
}

/// A golden packet, written out: LID 1 to LID 2, RC SEND only with immediate to QP 0x48, PSN 7, one byte.
#[test]
fn golden_packet_is_read_as_it_is_written() {
    let bytes = [
        0x00, 0x02, 0x00, 0x02, // VL 0, LVer 0, SL 0, BTH next, DLID 2
        0x00, 0x08, 0x00, 0x01, // 8 dwords, SLID 1
        0x05, 0xF0, 0xFF, 0xFF, // SEND only with immediate, SE, migrated, pad 3, P_Key 0xFFFF
        0x00, 0x00, 0x00, 0x48, // QP 0x48
        0x80, 0x00, 0x00, 0x07, // AckReq, PSN 7
        0xDE, 0xAD, 0xBE, 0xEF, // immediate
    ];
    let words = words_of(&bytes);
    let h = Headers::parse(&words, 1).expect("it is right");
    assert_eq!(h.immediate(), Some(0xDEAD_BEEF));
    assert_eq!(h.payload_bytes(), 1);
    assert_eq!(
        h.to_string(),
        "LRH 0x0001 -> 0x0002 VL 0 SL 0 8 dwords | BTH RC SEND only with immediate QP 72 PSN 7 P_Key 0xffff AckReq SE \
         | ImmDt 0xdeadbeef | 1 bytes"
    );
}
