use super::*;
use crate::scriptbar::ScriptBar;
use proptest::prelude::*;
use qhca_regs::map::device;

fn counts(contexts: usize) -> ChipCounts {
    ChipCounts { contexts, small_buffers: 128, large_buffers: 32, tids: 512, warnings: Vec::new() }
}

fn split(board: u8, list: &str, cpus: usize) -> (Split, Vec<SplitWarning>) {
    let options = Options::parse(list).expect("good options").options;
    Split::new(&Board::by_id(board), &options, cpus, &counts(18)).expect("a split")
}

fn numbers(contexts: impl Iterator<Item = Ctxt>) -> Vec<usize> {
    contexts.map(Ctxt::index).collect()
}

#[test]
fn cpus_choose_the_smallest_configuration_that_holds_them() {
    for (cpus, cfg, used) in [(1, 6, 3), (4, 6, 6), (5, 10, 7), (8, 10, 10), (9, 18, 11), (64, 18, 18)] {
        let (split, _) = split(2, "", cpus);
        assert_eq!((split.cfg.contexts(), split.contexts.len()), (cfg, used), "{cpus} CPUs");
    }
}

#[test]
fn header_queues_have_the_stock_lengths() {
    for (cfgctxts, dual, single) in [(6, 8192, 8192), (10, 4096, 4096), (18, 2048, 4096)] {
        assert_eq!(split(2, &format!("cfgctxts={cfgctxts}"), 1).0.hdr_entries, dual);
        assert_eq!(split(1, &format!("cfgctxts={cfgctxts}"), 1).0.hdr_entries, single);
    }
    let (raised, warnings) = split(2, "cfgctxts=6 rcvhdrcnt=100", 1);
    assert_eq!(raised.hdr_entries, 4096);
    assert_eq!(warnings, [SplitWarning::HdrEntriesRaised { wanted: 100, used: 4096 }]);
}

#[test]
fn one_port_board_skips_context_1_and_gives_context_0_all_kernel_buffers() {
    let (split, _) = split(1, "", 2);
    assert_eq!(numbers(split.contexts.iter().map(|share| share.ctxt)), [0, 2, 3]);
    assert_eq!(split.contexts[0].eager, 0..2048);
    assert_eq!(split.contexts[1].eager.start, 2048);
}

#[test]
fn singleport_on_a_two_port_board_is_a_one_port_board() {
    let (split, _) = split(2, "singleport=1", 2);
    assert_eq!(numbers(split.kernel_contexts().map(|(ctxt, _)| ctxt)), [0]);
    assert_eq!(split.large_buffers, [128..160, 160..160]);
}

#[test]
fn kernel_queues_go_to_the_ports_in_turn() {
    let (split, _) = split(2, "krcvqs=3", 1);
    let owners: Vec<_> = split.kernel_contexts().map(|(ctxt, port)| (ctxt.index(), port.index())).collect();
    assert_eq!(owners, [(0, 0), (1, 1), (2, 0), (3, 1), (4, 0), (5, 1)]);
    assert_eq!(split.first_user, 6);
    let map = |port| (0..5).map(|entry| split.qp_map_entry(port, entry).index()).collect::<Vec<_>>();
    assert_eq!(map(Port::P0), [0, 2, 4, 0, 2]);
    assert_eq!(map(Port::P1), [1, 3, 5, 1, 3]);
}

#[test]
fn qp_map_of_one_port_counts_through() {
    let (split, _) = split(1, "krcvqs=4", 1);
    let map: Vec<_> = (0..6).map(|entry| split.qp_map_entry(Port::P0, entry).index()).collect();
    assert_eq!(map, [0, 2, 3, 4, 0, 2]);
}

#[test]
fn too_many_kernel_queues_are_capped_with_a_warning() {
    let (dual, warnings) = split(2, "krcvqs=17", 1);
    assert_eq!((dual.kernel_queues, dual.first_user), (9, 18));
    assert_eq!(warnings, [SplitWarning::KernelQueuesCapped { wanted: 17, used: 9 }]);
    assert_eq!(dual.user_contexts().count(), 0);
    let (single, warnings) = split(1, "krcvqs=17", 1);
    assert_eq!((single.kernel_queues, single.first_user, warnings.len()), (17, 18, 0));
}

#[test]
fn sixteen_users_get_seven_buffers_and_the_first_eight_one_more() {
    let (split, _) = split(2, "cfgctxts=18", 1);
    let lens: Vec<_> = split.user_contexts().map(|share| share.buffers.len()).collect();
    assert_eq!(lens, [[8; 8], [7; 8]].concat());
    assert_eq!(split.avail_update_threshold, 5);
    assert_eq!(split.kernel_small_buffers(|_| true).len(), 8);
    assert_eq!(split.kernel_small_buffers(|_| false).len(), 128);
}

#[test]
fn cfgctxts_below_the_ports_is_refused_and_below_the_queues_is_raised() {
    let options = Options::parse("cfgctxts=1").expect("in range for one port").options;
    let error = Split::new(&Board::by_id(2), &options, 1, &counts(18)).expect_err("two ports");
    assert_eq!(error.to_string(), "option cfgctxts: 1 contexts for 2 ports; valid: 2 to 18, or 0");
    assert!(Split::new(&Board::by_id(1), &options, 1, &counts(18)).is_ok_and(|(_, w)| w.is_empty()));
    let (raised, warnings) = split(2, "cfgctxts=2 krcvqs=3", 1);
    assert_eq!(raised.contexts.len(), 6);
    assert_eq!(warnings, [SplitWarning::ContextsRaised { wanted: 2, used: 6 }]);
}

/// B170: counts that no chip has are refused, or cut with a warning; nothing is sized by them.
#[test]
fn absurd_counts_are_refused_or_cut() {
    let registers = [
        device::CONTEXT_CNT.offset(),
        device::RCV_TID_CNT.offset(),
        device::SEND_BUF_CNT.offset(),
        device::SEND_BUF_SIZE.offset(),
        device::PAGE_ALIGN.offset(),
        device::USER_REG_BASE.offset(),
    ];
    for offset in registers {
        for value in [0, 1, 0xFFFF_FFFF, u64::MAX] {
            let bar = ScriptBar::reset();
            bar.set(offset, value);
            if let Ok(counts) = ChipCounts::read(&bar) {
                assert!(counts.contexts <= 18 && counts.tids <= 512, "{offset:#x} = {value:#x}");
                assert_eq!((counts.small_buffers, counts.large_buffers), (128, 32));
                let is_tid_cnt = offset == device::RCV_TID_CNT.offset();
                assert!(
                    is_tid_cnt && value <= 512 || !counts.warnings.is_empty(),
                    "{offset:#x} = {value:#x}"
                );
            }
        }
    }
}

#[test]
fn eager_count_must_follow_the_configuration() {
    let bar = ScriptBar::reset();
    let mut counts = ChipCounts::read(&bar).expect("reset values");
    assert_eq!(counts.check_eager(ContextCfg::Six, &bar), Ok(()));
    for too_few in [0, 1, 4095] {
        bar.set(device::RCV_EGR_CNT.offset(), too_few);
        assert!(matches!(counts.check_eager(ContextCfg::Six, &bar), Err(CountsError::TooFew { .. })));
    }
    bar.set(device::RCV_EGR_CNT.offset(), 0xFFFF_FFFF);
    assert_eq!(counts.check_eager(ContextCfg::Six, &bar), Ok(()));
    assert_eq!(counts.warnings.len(), 1);
    bar.vanish();
    assert!(matches!(counts.check_eager(ContextCfg::Six, &bar), Err(CountsError::Gone { .. })));
}

#[test]
fn chip_with_ten_contexts_never_gets_the_larger_configuration() {
    let options = Options::default();
    let (split, _) = Split::new(&Board::by_id(2), &options, 64, &counts(10)).expect("ten are enough");
    assert_eq!((split.cfg, split.contexts.len()), (ContextCfg::Ten, 10));
    assert!(Split::new(&Board::by_id(2), &options, 1, &counts(5)).is_err());
}

/// The entries of the eager array (F-115).
const EAGER_ARRAY_ENTRIES: u32 = 18_432;

proptest! {
    /// B18: whatever is asked for, shares never overlap or exceed the chip, leave no gap, and the kernel has one.
    #[test]
    fn shares_never_overlap_nor_exceed_the_chip(
        board in proptest::sample::select(vec![1u8, 2, 3, 6, 8, 200]),
        cpus in proptest::sample::select(vec![0usize, 1, 4, 5, 8, 9, 64, usize::MAX]),
        krcvqs in 0u32..=17, cfgctxts in 0u32..=18, singleport: bool, rcvhdrcnt in 0u32..=65_536,
        contexts in 6usize..=18,
    ) {
        let options = Options { krcvqs, cfgctxts, singleport, rcvhdrcnt, ..Options::default() };
        let made = Split::new(&Board::by_id(board), &options, cpus, &counts(contexts));
        let Ok((split, _)) = made else {
            prop_assert!(cfgctxts == 1, "{made:?}");
            return Ok(());
        };
        prop_assert!(split.contexts.len() <= split.cfg.contexts() && split.cfg.contexts() <= contexts);

        let mut next_eager = 0;
        let mut next_buffer = 0;
        for share in &split.contexts {
            prop_assert!(!share.eager.is_empty());
            prop_assert_eq!(share.eager.start, next_eager, "a gap or overlap before {}", share.ctxt);
            next_eager = share.eager.end;
            if share.owner == Owner::User {
                prop_assert_eq!(share.buffers.start, next_buffer);
                prop_assert!(!share.buffers.is_empty());
                next_buffer = share.buffers.end;
            }
        }
        prop_assert!(next_eager <= EAGER_ARRAY_ENTRIES);
        prop_assert!(next_buffer == 0 || next_buffer == 120);
        prop_assert!(split.hdr_entries >= split.cfg.eager_entries());

        for port in split.ports.iter() {
            prop_assert!(split.kernel_contexts().any(|(_, of)| of == port), "{port} has no context");
            for entry in 0..32 {
                let ctxt = split.qp_map_entry(port, entry);
                let owner = split.context(ctxt).map(|share| share.owner);
                prop_assert_eq!(owner, Some(Owner::Kernel(port)));
            }
        }
        let large: usize = split.large_buffers.iter().map(|range| range.len()).sum();
        prop_assert_eq!(large, 32);
    }
}
