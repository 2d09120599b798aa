//! The vector plan against the stock driver's rule, written here a second time and in another way.

use qhca_irq::plan::{Mode, PlanError, negotiate};
use qhca_irq::{ContextSet, Grant, PlanRequest, PortSet, Source, VectorPlan, VectorSet, VectorUse};
use qhca_regs::status::IntBits;
use qhca_regs::{Port, Vector};

/// What the stock driver would do: for each vector from 1 the bit of `IntStatus` that it redirects there.
///
/// Bits are literal, from the data sheet's table of vectors; contexts are walked with a counter as the driver does.
fn stock_rule(dual: bool, krcvqs: u8, krcvq01_no_msi: bool) -> Vec<u32> {
    let mut bits: Vec<u32> =
        if dual { vec![23, 62, 63, 58, 59, 60, 61, 56, 57] } else { vec![23, 62, 58, 60, 56] };
    let ports = if dual { 2 } else { 1 };
    let first_user = (2 + (u32::from(krcvqs.max(1)) - 1) * ports).min(18);
    for context in 0..first_user {
        let exists = dual || context != 1;
        let skipped = krcvq01_no_msi && context < 2;
        if exists && !skipped {
            bits.push(context);
        }
    }
    bits
}

fn request(dual: bool, krcvqs: u8, krcvq01_no_msi: bool) -> PlanRequest {
    let ports = if dual { PortSet::ALL } else { PortSet::only(Port::P0) };
    PlanRequest::new(ports, krcvqs, krcvq01_no_msi).expect("values in range")
}

#[test]
fn every_plan_equals_the_stock_rule_for_all_ports_queues_options_and_grants() {
    let mut compared = 0;
    for dual in [true, false] {
        for krcvqs in 1..=17 {
            for no_msi in [false, true] {
                let request = request(dual, krcvqs, no_msi);
                let stock = stock_rule(dual, krcvqs, no_msi);
                assert_eq!(request.wanted(), 1 + stock.len(), "dual {dual} krcvqs {krcvqs} no_msi {no_msi}");
                for granted in 1..=32 {
                    let plan = VectorPlan::new(&request, Grant::MsiX { vectors: granted });
                    compare(&plan, &stock[..stock.len().min(granted - 1)]);
                    compared += 1;
                }
            }
        }
    }
    assert_eq!(compared, 2 * 17 * 2 * 32);
}

/// Compares the plan's registers and masks with the list of bits that have vectors 1, 2, and so on.
fn compare(plan: &VectorPlan, dedicated: &[u32]) {
    let mut redirect = [0u64; 6];
    let mut main = u64::MAX;
    for (vector, bit) in (1u64..).zip(dedicated) {
        redirect[(bit / 12) as usize] |= vector << (bit % 12 * 5);
        main &= !(1 << bit);
    }
    assert_eq!(plan.redirect().map(|register| register.0), redirect);
    assert_eq!(plan.main_bits().bits(), main);
    assert_eq!(plan.len(), 1 + dedicated.len());
    for source in Source::all() {
        let position = dedicated.iter().position(|bit| *bit == source.bit());
        assert_eq!(plan.vector_of(source).index(), position.map_or(0, |position| position + 1), "{source}");
    }
}

#[test]
fn default_vector_counts_are_those_of_the_data_sheet() {
    assert_eq!(request(true, 1, false).wanted(), 12);
    assert_eq!(request(false, 1, false).wanted(), 7);
    assert_eq!(request(true, 8, false).wanted(), 26);
    assert_eq!(request(true, 17, false).kernel_contexts(), ContextSet::ALL);
}

/// Trap 10: two vectors are saved on a dual-port board, one on a single-port board, where context 1 does not exist.
#[test]
fn krcvq01_no_msi_saves_as_many_vectors_as_contexts_are_really_skipped() {
    for krcvqs in 1..=17 {
        for (dual, saved) in [(true, 2), (false, 1)] {
            let with = request(dual, krcvqs, true);
            let without = request(dual, krcvqs, false);
            assert_eq!(without.wanted() - with.wanted(), saved);
            let plan = VectorPlan::new(&with, Grant::MsiX { vectors: with.wanted() });
            // Their bits stay with the default vector, RcvAvail as well as RcvUrg.
            assert_eq!(plan.main_bits().bits() & 0x3_0000_0003, 0x3_0000_0003);
            assert_eq!(plan.kernel_contexts(), without.kernel_contexts());
        }
    }
}

/// B38: with 1, 2, 3 and one too few vectors every source still has a vector, and only own vectors are released.
#[test]
fn a_short_grant_leaves_every_source_with_a_vector_that_is_owned() {
    let request = request(true, 2, false);
    for granted in [1, 2, 3, request.wanted() - 1] {
        let plan = VectorPlan::new(&request, Grant::MsiX { vectors: granted });
        let owned: VectorSet = (0..granted).filter_map(Vector::new).collect();
        assert_eq!(plan.vectors(), owned);
        for source in Source::all() {
            let vector = plan.vector_of(source);
            assert!(owned.contains(vector), "{source} went to {vector}, which was not granted");
            let shared = plan.use_of(vector) == Some(VectorUse::Default);
            assert_eq!(shared, plan.main_bits().contains(source.mask()), "{source}");
        }
    }
}

#[test]
fn msi_and_the_interrupt_line_leave_everything_with_the_default_vector() {
    for (grant, mode) in
        [(Grant::Msi, Mode::Msi), (Grant::Intx, Mode::Intx), (Grant::MsiX { vectors: 0 }, Mode::Intx)]
    {
        let plan = VectorPlan::new(&request(true, 4, true), grant);
        assert_eq!((plan.mode(), plan.len()), (mode, 1));
        compare(&plan, &[]);
    }
}

/// B37: MSI-X, then MSI, then the line; the plan's mode is the one that was granted, not the one that was asked for.
#[test]
fn refused_modes_fall_back_in_order_and_the_mode_tells_the_truth() {
    for (granted_at, expected) in
        [(0, Some(Mode::MsiX)), (1, Some(Mode::Msi)), (2, Some(Mode::Intx)), (3, None)]
    {
        let mut asked = Vec::new();
        let grant = negotiate(12, |mode, vectors| {
            asked.push((mode, vectors));
            (asked.len() > granted_at).then_some(vectors)
        });
        let order = [(Mode::MsiX, 12), (Mode::Msi, 1), (Mode::Intx, 1)];
        assert_eq!(asked, order[..(granted_at + 1).min(3)]);
        let mode = grant.map(|grant| VectorPlan::new(&request(true, 1, false), grant).mode());
        assert_eq!(mode, expected);
    }
}

/// B37: a grant of more than was asked for is cut, so that nothing is released that was not asked for.
#[test]
fn a_grant_of_more_than_was_asked_for_is_cut_to_what_was_asked_for() {
    assert_eq!(negotiate(7, |_, _| Some(32)), Some(Grant::MsiX { vectors: 7 }));
    assert_eq!(negotiate(7, |mode, _| (mode != Mode::MsiX).then_some(0)), None);
}

/// B37: the enabled bits are exactly those that a handler serves on this board.
#[test]
fn only_bits_that_have_a_handler_are_enabled() {
    let dual = VectorPlan::new(&request(true, 1, false), Grant::Intx);
    assert_eq!(dual.enabled_bits(), IntBits::NAMED);
    let single = VectorPlan::new(&request(false, 1, false), Grant::Intx);
    // SendDone_1 (25), Err_1 (31), SDmaCleanupDone_1 (57), SDmaIdle_1 (59), SDmaProgress_1 (61), SDma_1 (63).
    let absent: u64 = [25, 31, 57, 59, 61, 63].iter().map(|bit| 1 << bit).sum();
    assert_eq!(single.enabled_bits().bits(), IntBits::NAMED.bits() & !absent);
}

#[test]
fn a_request_out_of_range_is_refused_with_the_range() {
    assert_eq!(PlanRequest::new(PortSet::EMPTY, 1, false), Err(PlanError::NoPorts));
    let refused = PlanRequest::new(PortSet::ALL, 18, false).expect_err("18 queues");
    assert_eq!(refused, PlanError::Krcvqs { given: 18 });
    assert!(refused.to_string().contains("krcvqs=18") && refused.to_string().contains("17"), "{refused}");
}

/// The stock table gives a board with hardware port 1 alone the vectors of port 0; ours follow the port that is there.
#[test]
fn a_board_with_port_1_alone_gets_the_vectors_of_port_1() {
    let request = PlanRequest::new(PortSet::only(Port::P1), 1, false).expect("values in range");
    let plan = VectorPlan::new(&request, Grant::MsiX { vectors: request.wanted() });
    assert_eq!(plan.vector_of(Source::Sdma(Port::P1)).index(), 2);
    assert_eq!(plan.vector_of(Source::Sdma(Port::P0)), Vector::DEFAULT);
    assert_eq!(request.kernel_contexts().bits(), 0b10);
}
