//! The scenarios on the simulated card: all pass on a right chip, and on each wrong chip some named one fails.

use qhca::{Opening, SimSetup};
use qhca_hwtests::{Alone, Check, InWorld, Outcome, count, names, noticed_by, run, run_some};
use qhca_regs::Port;
use qhca_sim::backend::SimDevice;
use qhca_sim::chip::{Board, Config, EagerFull, Habits, WrongChip, WrongSet};
use qhca_sim::fabric::CableConfig;
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
    Config { board, ..Config::default() }
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
            ("port-selection" | "heartbeat" | "credits", Outcome::Skip(why)) => {
                assert!(why.contains("one port"), "{why}");
            }
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
    let expected: BTreeSet<&str> = ["wrong-icrc", "qsfp-insert", "heartbeat", "credits"].into();
    assert_eq!(
        skipped.iter().map(|check| check.name).collect::<BTreeSet<_>>(),
        expected,
        "{}",
        told(&checks)
    );
    assert!(skipped.iter().all(|check| check.result.why().is_some_and(|why| why.len() > 20)));
    assert!(failed(&checks).is_empty(), "{}", told(&checks));
}

/// What the owner of one card and one cable can do: nothing more is skipped than what needs somebody at the card.
#[test]
fn a_card_whose_ports_are_joined_shows_what_needs_a_far_end() {
    let device = open(right(Board::Qle7342));
    let (world, node) = (device.world(), device.node());
    world.with(|world| world.connect((node, Port::P0), (node, Port::P1), CableConfig::default()));
    let checks = run(device, &mut Alone);
    for check in checks.iter().filter(|check| ["heartbeat", "credits"].contains(&check.name)) {
        assert_eq!(check.result, Outcome::Pass, "{check}");
    }
    assert!(failed(&checks).is_empty(), "{}", told(&checks));
}

/// Two ports with links that do not lead to each other are not taken for joined.
#[test]
fn a_card_whose_ports_have_other_far_ends_is_not_taken_for_joined() {
    let device = open(right(Board::Qle7342));
    let (world, node) = (device.world(), device.node());
    world.with(|world| {
        for port in Port::ALL {
            world.connect((node, port), (node, port), CableConfig::default());
        }
    });
    let checks = run_some(device, &mut Alone, |name| name == "credits");
    let [Check { result: Outcome::Skip(why), .. }] = &checks[..] else { panic!("{}", told(&checks)) };
    assert!(why.contains("not joined"), "{why}");
}

/// The checks leave the cables as they found them.
#[test]
fn cables_lead_where_they_led_before() {
    let cards = SimSetup::new(right(Board::Qle7342)).with_peer(&[Port::P0]).on_manual_clock();
    let Opening::Sim(opening) = cards.open().expect("a card that nobody has open").card else {
        unreachable!("a simulated card was set up")
    };
    let device = opening.into_backend();
    let mut around = InWorld::of(&device);
    let (world, node) = (device.world(), device.node());
    let cabled = || world.with(|world| Port::ALL.map(|port| world.cable_at(node, port)));
    let is_in = || {
        world.with(|world| world.cables().map(|cable| world.cable(cable).is_connected()).collect::<Vec<_>>())
    };
    let before = cabled();
    let checks = run_some(device, &mut around, |name| ["heartbeat", "credits"].contains(&name));
    assert!(checks.iter().all(|check| check.result == Outcome::Pass), "{}", told(&checks));
    assert_eq!(cabled()[0], before[0], "the first port's cable");
    assert!(before[1].is_none());
    assert_eq!(is_in(), [true, false], "the peer's cable is in, the joint is not");
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
        if !noticed {
            unnoticed.push(format!("{}: {}", wrong.name(), told(&checks)));
        }
    }
    assert!(WrongChip::ALL.len() >= 25);
    assert!(unnoticed.is_empty(), "{unnoticed:#?}");
}
