//! The scenarios on the simulated card: all pass on a right chip, and on each wrong chip some named one fails.

use qhca::{Opening, SimSetup};
use qhca_hwtests::{Alone, Check, InWorld, Outcome, count, names, run};
use qhca_sim::backend::SimDevice;
use qhca_sim::chip::{Board, Config, Description, EagerFull, Habits, Module, WrongChip, WrongSet};
use std::collections::BTreeSet;

fn open(config: Config) -> SimDevice {
    let cards = SimSetup::new(config).on_manual_clock().open().expect("a card that nobody has open");
    match cards.card {
        Opening::Sim(opening) => opening.into_backend(),
        _ => unreachable!("a simulated card was set up"),
    }
}

fn run_on(config: Config) -> Vec<Check> {
    let device = open(config);
    let mut around = InWorld::of(&device);
    run(device, &mut around)
}

fn right(board: Board) -> Config {
    // One module with several pages, one with a single one.
    let [_, flat] = Config::default().modules;
    let paged = Module::new(&Description { flat: false, ..Description::default() });
    Config { board, modules: [Some(paged.with_serial("QHCAPAGED0001")), flat], ..Config::default() }
}

/// The checks by how they ended, one line each, for messages.
fn told(checks: &[Check]) -> String {
    checks.iter().map(|check| format!("{check}\n")).collect()
}

fn failed(checks: &[Check]) -> BTreeSet<&'static str> {
    checks.iter().filter(|check| check.failed()).map(|check| check.name).collect()
}

#[test]
fn a_right_two_port_card_passes_every_check_and_none_is_skipped() {
    let checks = run_on(right(Board::Qle7342));
    assert_eq!(checks.len(), count());
    assert!(checks.iter().map(|check| check.name).eq(names()));
    assert!(checks.iter().all(|check| check.result == Outcome::Pass), "{}", told(&checks));
}

#[test]
fn a_right_one_port_card_skips_what_needs_a_second_port_and_passes_the_rest() {
    let checks = run_on(right(Board::Qle7340));
    assert_eq!(checks.len(), count());
    for check in &checks {
        match (check.name, &check.result) {
            ("port-selection", Outcome::Skip(why)) => assert!(why.contains("one port"), "{why}"),
            (_, result) => assert_eq!(result, &Outcome::Pass, "{}", told(&checks)),
        }
    }
}

/// Behaviour in which two right cards may differ is no failure.
#[test]
fn every_habit_of_a_right_card_passes() {
    for eager_full in [EagerFull::Report, EagerFull::ReportAsUsed, EagerFull::Drop] {
        let habits = Habits { eager_full, ..Habits::default() };
        let checks = run_on(Config { habits, ..right(Board::Qle7342) });
        assert!(failed(&checks).is_empty(), "{eager_full:?}\n{}", told(&checks));
    }
}

#[test]
fn a_card_that_is_alone_skips_what_it_cannot_do_to_itself_and_says_so() {
    let checks = run(open(right(Board::Qle7342)), &mut Alone);
    let skipped: Vec<&Check> =
        checks.iter().filter(|check| matches!(check.result, Outcome::Skip(_))).collect();
    let expected: BTreeSet<&str> = ["wrong-icrc", "qsfp-insert"].into();
    assert_eq!(
        skipped.iter().map(|check| check.name).collect::<BTreeSet<_>>(),
        expected,
        "{}",
        told(&checks)
    );
    assert!(skipped.iter().all(|check| check.result.why().is_some_and(|why| why.len() > 20)));
    assert!(failed(&checks).is_empty(), "{}", told(&checks));
}

/// The checks leave nothing behind: a second run gives the same, and the chip never wrote to memory that was not its.
#[test]
fn two_runs_on_one_card_give_the_same_result_and_no_access_to_foreign_memory() {
    let device = open(right(Board::Qle7342));
    let mut around = InWorld::of(&device);
    let (world, node) = (around.world().clone(), around.node());
    drop(device);
    for _ in 0..2 {
        let checks = run(world.open(node).expect("the card is given back"), &mut around);
        assert!(failed(&checks).is_empty(), "{}", told(&checks));
        let (refused, mapped) =
            world.with(|world| (world.host(node).refused(), world.host(node).mapped_bytes()));
        assert_eq!((refused, mapped), (0, 0), "accesses to foreign memory, bytes still mapped");
    }
}

/// For each wrong chip, a check that must notice it.
fn noticed_by(wrong: WrongChip) -> &'static str {
    match wrong {
        WrongChip::IntClearDoesNotReraise => "mask-and-reraise",
        WrongChip::AvailCheckStuck | WrongChip::AvailBusyStuck => "avail-image",
        WrongChip::DisarmIgnored => "disarm",
        WrongChip::SequenceSkips => "loopback-packets",
        WrongChip::HeadCountIgnored => "count-and-timer",
        WrongChip::ErrClearTooWide => "clear-is-exact",
        WrongChip::RedirectOffByOne => "every-vector",
        WrongChip::PbcPortIgnored => "port-selection",
        WrongChip::TailDoesNotWrap => "queue-wraps",
        WrongChip::EagerIndexOffByOne | WrongChip::PayloadShifted => "loopback-packets",
        WrongChip::EagerHeadIgnored => "eager-full",
        WrongChip::PkeyCheckOff => "partition-keys",
        WrongChip::IntMaskIgnored => "mask-and-reraise",
        WrongChip::LinkStaysDown => "link-up",
        WrongChip::EepromChecksumBad => "eeprom",
        WrongChip::CountersClearOnRead => "counters",
        WrongChip::IcrcFlagLost => "wrong-icrc",
        WrongChip::LaunchesEarly => "launch-rule",
        WrongChip::EagerCountFixed => "eager-partitions",
        WrongChip::HeaderFullOverwrites => "queue-full",
        WrongChip::AvailAddrReadsZero => "avail-address",
        WrongChip::QpMapIgnored => "qp-map",
        WrongChip::ActiveWithoutArmed => "active-needs-armed",
        WrongChip::LinkChangeSilent => "link-change-interrupts",
        WrongChip::ScratchHalf => "scratch",
        WrongChip::SdmaHeadNotWritten => "sdma-head",
        WrongChip::SdmaCleanupSilent | WrongChip::SdmaHaltSilent => "sdma-halt",
        WrongChip::SdmaGenerationIgnored => "sdma-generation",
        WrongChip::SdmaIntrIgnored => "sdma-interrupt",
        WrongChip::FreezeIgnored => "freeze",
        WrongChip::ResetKeepsRegister => "reset",
        WrongChip::HeartbeatSilent => "heartbeat",
        WrongChip::TailDmaMissing => "tail-dma",
        WrongChip::SpecialTriggerIgnored => "special-trigger",
        WrongChip::SamplesStandStill => "samples",
        WrongChip::QsfpPageIgnored => "qsfp",
        WrongChip::ModuleInsertUnnoticed => "qsfp-insert",
        WrongChip::WidthNotHonoured => "link-width",
        WrongChip::SpeedNotHonoured => "link-speed",
        WrongChip::VlArbiterIgnored => "vl-arbitration",
        WrongChip::CreditsLeak => "credits",
        WrongChip::TidOffsetIgnored => "expected-receive",
        WrongChip::FlowGenerationUnchecked => "flow-generation",
        WrongChip::FlowSequenceUnchecked => "flow-sequence",
        WrongChip::HeaderSuppressionIgnored => "header-suppression",
        WrongChip::KdChecksumUnchecked => "kd-checksum",
    }
}

/// Deviations that no check can notice on a card that talks to itself: a far end is needed that keeps silent, or one that
/// grants credits. A check that comes to notice one takes it off this list.
const UNNOTICED: &[WrongChip] =
    &[WrongChip::HeartbeatSilent, WrongChip::VlArbiterIgnored, WrongChip::CreditsLeak];

#[test]
fn every_wrong_chip_fails_the_check_that_concerns_it() {
    let mut unnoticed = Vec::new();
    for wrong in WrongChip::ALL {
        let checks = run_on(Config { wrong: WrongSet::from(wrong), ..right(Board::Qle7342) });
        assert_eq!(checks.len(), count(), "{}", wrong.name());
        let failed = failed(&checks);
        println!("{:28} fails {failed:?}", wrong.name());
        // A check that fails on everything would notice nothing: some check must still pass.
        let noticed = failed.contains(noticed_by(wrong)) && failed.len() != count();
        if noticed == UNNOTICED.contains(&wrong) {
            unnoticed.push(format!("{}: {}", wrong.name(), told(&checks)));
        }
    }
    assert!(WrongChip::ALL.len() >= 25);
    assert!(unnoticed.is_empty(), "{unnoticed:#?}");
}
