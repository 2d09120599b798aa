use super::*;
use crate::identity::Guid;
use crate::ports::Speeds;
use crate::scriptbar::ScriptBar;
use proptest::prelude::*;
use qhca_regs::map::port::{self, IbcCtrlA, IbcCtrlB, IbcStatusA};
use qhca_regs::map::{counter, device};
use qhca_regs::{Duration, RegValue};

const P0: Port = Port::P0;
const CTRL_A: u32 = port::IBC_CTRL_A.port(P0).offset();
const STATUS_A: u32 = port::IBC_STATUS_A.port(P0).offset();

fn port_setup() -> PortSetup {
    let guid = Guid(0x0011_7500_005A_0001);
    PortSetup { port: P0, speeds: Speeds::all(), mtu_bytes: 4096, lanes: 2, ports: 2, guid }
}

fn show(bar: &ScriptBar, training: u8, state: u8) {
    let status = IbcStatusA(0)
        .with_link_training_state(training)
        .with_link_state(state)
        .with_link_speed_qdr(true)
        .with_link_width_active(true);
    bar.set(STATUS_A, status.raw());
}

/// A bar whose link answers commands at once, as far as a link without a partner can.
fn obedient() -> ScriptBar {
    let bar = ScriptBar::reset();
    bar.on_write(|bar, offset, value| {
        let ctrl = IbcCtrlA(value);
        match (offset, ctrl.link_cmd(), ctrl.link_init_cmd()) {
            (CTRL_A, 1, 1) => show(bar, 0, 0),
            (CTRL_A, 1, _) => show(bar, 2, 0),
            (CTRL_A, 2, _) => show(bar, 1, 2),
            (CTRL_A, 3, _) => show(bar, 1, 3),
            _ => {}
        }
    });
    bar
}

fn brought_up(bar: &ScriptBar) -> PortLink {
    let mut link = PortLink::new(&port_setup());
    assert_eq!(link.bring_up(&port_setup(), bar), Ok(true));
    link
}

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

fn changes(link: &mut PortLink) -> Vec<LinkChange> {
    core::iter::from_fn(|| link.poll_change()).collect()
}

#[test]
fn bring_up_writes_the_stock_values_and_leaves_the_port_off() {
    let bar = obedient();
    let link = brought_up(&bar);
    let ctrl_a = IbcCtrlA(bar.peek(CTRL_A));
    assert_eq!(
        (ctrl_a.max_pkt_len(), ctrl_a.flow_ctrl_period(), ctrl_a.flow_ctrl_water_mark()),
        (1057, 24, 5)
    );
    assert_eq!((ctrl_a.phyerr_threshold(), ctrl_a.overrun_threshold(), ctrl_a.num_v_lane()), (15, 15, 1));
    assert!(ctrl_a.ib_link_en());
    // Enhanced mode, three speeds, 4X, polarity, ADD_ENB from reset, heartbeat 16 and 17.
    let ctrl_b = bar.peek(port::IBC_CTRL_B.port(P0).offset());
    assert_eq!(ctrl_b, 0x3_04BF);
    assert_eq!(bar.peek(port::HRTBT_GUID.port(P0).offset()), 0x0011_7500_005A_0001);
    assert_eq!(bar.peek(port::IBPCS_CONFIG.port(P0).offset()) & 7, 0);
    assert_eq!(link.status().physical(), Physical::Disabled);
}

#[test]
fn every_link_control_write_is_followed_by_scratch_or_the_physical_reset() {
    let bar = obedient();
    brought_up(&bar);
    let writes = bar.writes.borrow();
    for (index, (offset, _)) in writes.iter().enumerate() {
        if *offset == CTRL_A {
            let next = writes[index + 1].0;
            let ok = [device::SCRATCH.offset(), port::IBPCS_CONFIG.port(P0).offset()].contains(&next);
            assert!(ok, "write {index} is followed by {next:#x}");
        }
    }
}

#[test]
fn commands_are_never_kept_in_the_register_shadow() {
    let bar = obedient();
    let mut link = brought_up(&bar);
    link.set_goal(Goal::Up, &bar, at(0)).expect("a device");
    link.set_lid(LidAssignment::new(Lid(4), 1).expect("a LID"), &bar);
    let commands: Vec<_> = bar.written(CTRL_A).into_iter().map(|v| IbcCtrlA(v).link_cmd()).collect();
    // Off, reset twice, on, Disable, Poll.
    assert_eq!(commands, [0, 0, 0, 0, 1, 1]);
}

#[test]
fn credits_are_the_stock_shares() {
    let credits = |lanes, ports| (0..lanes).map(|n| setup::lane_credits(n, lanes, ports)).collect::<Vec<_>>();
    assert_eq!(credits(2, 2), [252, 251]);
    assert_eq!(credits(2, 1), [508, 507]);
    for (lanes, ports) in [(1, 1), (4, 2), (8, 1), (8, 2)] {
        assert_eq!(credits(lanes, ports).iter().sum::<u16>(), 1024 / ports - 9);
    }
    assert_eq!((setup::max_pkt_len_dwords(4096), setup::max_pkt_len_dwords(2048)), (1057, 545));
}

#[test]
fn credits_that_do_not_read_back_are_reported() {
    let bar = obedient();
    bar.fix(port::RX_CREDIT_VL15.port(P0).offset());
    assert_eq!(PortLink::new(&port_setup()).bring_up(&port_setup(), &bar), Ok(false));
}

/// Two cabled ports go active without a subnet manager: this is one of the ends.
#[test]
fn link_that_trains_is_armed_and_made_active_by_software() {
    let bar = obedient();
    let mut link = brought_up(&bar);
    link.set_goal(Goal::Active, &bar, at(0)).expect("a device");
    assert_eq!(link.status().physical(), Physical::Disabled);
    link.on_status_change(&bar, at(1)).expect("polling");
    assert_eq!(link.poll_timeout(), None, "a cable may come at any time");

    show(&bar, 1, 1);
    link.on_status_change(&bar, at(2)).expect("trained");
    assert_eq!(changes(&mut link), [LinkChange::Up { speed: Speed::Qdr, lanes: 4 }]);
    link.on_status_change(&bar, at(3)).expect("armed");
    link.on_status_change(&bar, at(4)).expect("active");
    assert_eq!(changes(&mut link), [LinkChange::Active]);
    assert_eq!(link.status().logical(), Logical::Active);
    assert_eq!(link.poll_timeout(), None);
}

#[test]
fn up_and_active_seen_at_once_are_both_reported() {
    let bar = obedient();
    let mut link = brought_up(&bar);
    link.set_goal(Goal::Up, &bar, at(0)).expect("a device");
    show(&bar, 1, 3);
    link.on_status_change(&bar, at(1)).expect("a device");
    assert_eq!(changes(&mut link), [LinkChange::Up { speed: Speed::Qdr, lanes: 4 }, LinkChange::Active]);
}

#[test]
fn recovery_is_neither_up_nor_down() {
    let bar = obedient();
    let mut link = brought_up(&bar);
    link.set_goal(Goal::Up, &bar, at(0)).expect("a device");
    show(&bar, 1, 3);
    link.on_status_change(&bar, at(1)).expect("a device");
    changes(&mut link);
    for training in [0xC, 0xE, 0xF] {
        show(&bar, training, 4);
        link.on_status_change(&bar, at(2)).expect("a device");
    }
    assert_eq!(changes(&mut link), []);
}

#[test]
fn lost_link_resets_its_physical_layer_and_counts_what_the_chip_missed() {
    let bar = obedient();
    let mut link = brought_up(&bar);
    link.set_goal(Goal::Up, &bar, at(0)).expect("a device");
    show(&bar, 1, 1);
    link.on_status_change(&bar, at(1)).expect("up");
    let resets = bar.written(port::IBPCS_CONFIG.port(P0).offset()).len();
    show(&bar, 2, 0);
    link.on_status_change(&bar, at(2)).expect("down");
    assert_eq!(changes(&mut link).last(), Some(&LinkChange::Down));
    assert_eq!(bar.written(port::IBPCS_CONFIG.port(P0).offset()).len(), resets + 2);
    assert_eq!(link.downs_missed(), 1, "the chip's counter stood still");
    show(&bar, 1, 1);
    link.on_status_change(&bar, at(3)).expect("up");
    show(&bar, 2, 0);
    bar.set(counter::IB_LINK_DOWNED_CNT.port(P0).offset(), 1);
    link.on_status_change(&bar, at(4)).expect("down");
    assert_eq!(link.downs_missed(), 1);
}

#[test]
fn physical_reset_hides_its_false_error_and_restores_the_mask() {
    let bar = ScriptBar::reset();
    bar.set(device::HW_ERR_MASK.offset(), u64::MAX);
    setup::reset_physical_layer(P0, IbcCtrlA(0).with_ib_link_en(true), &bar);
    assert_eq!(bar.written(device::HW_ERR_MASK.offset()), [!(1 << 12), u64::MAX]);
    assert_eq!(bar.written(device::HW_ERR_CLEAR.offset()), [1 << 12]);
    let links: Vec<_> = bar.written(CTRL_A).into_iter().map(|v| IbcCtrlA(v).ib_link_en()).collect();
    assert_eq!(links, [false, true]);
}

#[test]
fn command_without_effect_is_repeated_and_then_reported_with_the_state() {
    let bar = obedient();
    let mut link = brought_up(&bar);
    link.set_goal(Goal::Active, &bar, at(0)).expect("a device");
    // Trained, and deaf from now on.
    bar.fix(CTRL_A);
    let stuck = ScriptBar::reset();
    show(&stuck, 1, 1);
    link.on_status_change(&stuck, at(1)).expect("trained");
    let mut now = at(1);
    while let Some(at) = link.poll_timeout() {
        now = at;
        link.on_timeout(&stuck, now).expect("a device");
    }
    let waited = COMMAND_WITHIN.times(u64::from(COMMAND_ATTEMPTS));
    let failed = LinkChange::CommandFailed { command: Command::Arm, status: link.status(), waited };
    assert_eq!(changes(&mut link).last(), Some(&failed));
    assert_eq!(now, at(1) + waited);
    assert_eq!(stuck.written(CTRL_A).len(), COMMAND_ATTEMPTS as usize);
}

#[test]
fn disabled_port_that_wakes_is_disabled_again() {
    let bar = obedient();
    let mut link = brought_up(&bar);
    show(&bar, 2, 0);
    link.on_status_change(&bar, at(1)).expect("a device");
    assert_eq!(IbcStatusA(bar.peek(STATUS_A)).link_training_state(), 0);
}

/// B15: a disabled port is enabled by device and port, without LID or subnet manager.
#[test]
fn disabled_port_with_lid_0_is_enabled_again() {
    let bar = obedient();
    let mut link = brought_up(&bar);
    link.set_goal(Goal::Up, &bar, at(0)).expect("on");
    link.give_now(Command::Disable, &bar, at(1)).expect("off");
    assert_eq!(link.lid(), LidAssignment::NONE);
    link.on_status_change(&bar, at(2)).expect("a device");
    assert_eq!(link.status().physical(), Physical::Disabled);
    link.set_goal(Goal::Up, &bar, at(3)).expect("on");
    link.on_status_change(&bar, at(4)).expect("a device");
    assert_eq!(link.status().physical(), Physical::Polling);
    assert_eq!(link.poll_timeout(), None);
}

/// B15: by LID gives a clear refusal.
#[test]
fn port_addressed_by_lid_is_refused() {
    for text in ["5", "0x0005", "lid:5", "LID 5", "lid=0x12"] {
        assert!(matches!(text.parse::<PortAddress>(), Err(AddressError::ByLid(_))), "{text}");
    }
    let port = |text: &str| text.parse::<PortAddress>().map(|address| (address.device, address.ib_port));
    assert_eq!(port("sim:1"), Ok(("sim".into(), 1)));
    assert_eq!(port("sim:qle7342:2"), Ok(("sim:qle7342".into(), 2)));
    assert_eq!(port("0000:04:00.0:1"), Ok(("0000:04:00.0".into(), 1)));
    assert!(matches!(port("0000:04:00.0"), Err(AddressError::NoPort(_))));
    assert!(matches!(port("sim:3"), Err(AddressError::IbPort(_))));
    assert!(matches!(port(":1"), Err(AddressError::NoPort(_))));
}

#[test]
fn forbidden_transitions_are_refused_before_the_chip_sees_them() {
    for row in FORBIDDEN {
        let bar = obedient();
        let mut link = brought_up(&bar);
        let code = (0..8).find(|&code| Logical::from_code(code) == row.state).expect("a code");
        show(&bar, 1, code);
        let before = bar.written(CTRL_A).len();
        let error = link.give_now(row.command, &bar, at(0)).expect_err(row.reason);
        assert_eq!(
            error,
            LinkError::Forbidden { state: row.state, command: row.command, reason: row.reason }
        );
        assert_eq!(bar.written(CTRL_A).len(), before);
    }
}

#[test]
fn taking_a_link_down_is_possible_in_every_state() {
    for command in [Command::Down, Command::Poll, Command::Sleep, Command::Disable] {
        for code in 0..8 {
            assert_eq!(command::refusal(Logical::from_code(code), command), None);
        }
    }
}

/// B14: each pair of states gives its own advice; codes without a name print their number.
#[test]
fn each_pair_of_states_has_its_own_advice() {
    let pairs = [
        (Logical::Down, Physical::Polling),
        (Logical::Down, Physical::Disabled),
        (Logical::Down, Physical::Sleep),
        (Logical::Down, Physical::Training),
        (Logical::Init, Physical::LinkUp),
        (Logical::Armed, Physical::LinkUp),
        (Logical::Active, Physical::LinkUp),
        (Logical::ActiveDefer, Physical::Recovering),
    ];
    let texts: std::collections::HashSet<_> = pairs.map(|(l, p)| advice(l, p, None)).into();
    assert_eq!(texts.len(), pairs.len());
    assert!(advice(Logical::Down, Physical::Polling, None).contains("no cable"));
    assert!(advice(Logical::Init, Physical::LinkUp, None).contains("subnet manager"));
    assert!(advice(Logical::Down, Physical::Disabled, Some(false)).contains("socket"));
    let strange = LinkStatus::new(IbcStatusA(0).with_link_state(6).with_link_training_state(0x1F));
    assert_eq!(strange.to_string(), "unknown (6)/unknown (0x1f)");
    assert!(advice(strange.logical(), strange.physical(), None).contains("without a name"));
}

#[test]
fn training_codes_map_to_the_states_of_the_standard() {
    let ibta = |code| Physical::from_training(code).ibta_code();
    let expected = [
        (0, 3),
        (1, 5),
        (2, 2),
        (3, 2),
        (4, 1),
        (5, 1),
        (8, 4),
        (9, 4),
        (0xA, 4),
        (0xC, 6),
        (0xE, 6),
        (0xF, 6),
        (0x11, 4),
    ];
    for (code, state) in expected {
        assert_eq!(ibta(code), state, "training state {code:#x}");
    }
    assert_eq!([0, 1, 2, 3, 4].map(|code| Logical::from_code(code).ibta_code()), [1, 2, 3, 4, 5]);
}

#[test]
fn rate_is_speed_times_lanes() {
    let status = LinkStatus::new(IbcStatusA(0).with_link_training_state(1).with_link_state(3));
    assert_eq!((status.rate_tenth_gbps(), status.to_string().as_str()), (25, "Active/LinkUp, 1X SDR"));
    let status = LinkStatus::new(status.raw.with_link_width_active(true).with_link_speed_active(true));
    assert_eq!((status.rate_tenth_gbps(), status.speed()), (200, Speed::Ddr));
    let status = LinkStatus::new(status.raw.with_link_speed_qdr(true));
    assert_eq!((status.rate_tenth_gbps(), status.speed()), (400, Speed::Qdr));
}

/// The choices of speed, width and heartbeat, each leaving the others and the LID as they were.
#[test]
fn rates_and_heartbeat_are_chosen_without_disturbing_each_other_or_the_lid() {
    let bar = obedient();
    let mut links = Links::new(Ports::from_speed_mask(7), Gpio::new());
    links.add(brought_up(&bar), None);
    let lid = LidAssignment::new(Lid(0x21), 0).expect("a unicast LID");
    links.set_lid(P0, lid, &bar).expect("a port");
    let ctrl_b = |bar: &ScriptBar| IbcCtrlB(bar.peek(port::IBC_CTRL_B.port(P0).offset()));
    links.set_heartbeat(P0, Heartbeat::On, &bar).expect("a port");
    links.set_rates(P0, Speeds::DDR, Width::X1, &bar).expect("a port");
    let seen = ctrl_b(&bar);
    assert_eq!((seen.sd_speed_sdr(), seen.sd_speed_ddr(), seen.sd_speed_qdr()), (false, true, false));
    assert_eq!((seen.ib_num_channels(), seen.ib_enhanced_mode(), seen.sd_speed()), (0, false, false));
    assert_eq!((seen.hrtbt_enb(), seen.hrtbt_auto(), seen.ib_dlid()), (true, false, 0x21));
    links.set_rates(P0, Speeds::all(), Width::Auto, &bar).expect("a port");
    links.set_heartbeat(P0, Heartbeat::Off, &bar).expect("a port");
    let seen = ctrl_b(&bar);
    assert_eq!((seen.ib_num_channels(), seen.ib_enhanced_mode(), seen.sd_speed()), (3, true, true));
    assert_eq!((seen.hrtbt_enb(), seen.ib_dlid()), (false, 0x21));
    let mut qdr_only = Links::new(Ports::from_speed_mask(4), Gpio::new());
    qdr_only.add(brought_up(&bar), None);
    let refused = qdr_only.set_rates(P0, Speeds::SDR, Width::X4, &bar);
    assert_eq!(refused, Err(LinkError::NoSpeed { port: P0 }));
}

#[test]
fn lid_is_written_to_filter_and_checks() {
    let bar = obedient();
    let mut link = brought_up(&bar);
    link.set_lid(LidAssignment::new(Lid(0x10), 3).expect("a LID"), &bar);
    let ctrl_b = IbcCtrlB(bar.peek(port::IBC_CTRL_B.port(P0).offset()));
    assert_eq!((ctrl_b.ib_dlid(), ctrl_b.ib_dlid_mask()), (0x10, 0xFFF8));
    assert!(!ctrl_b.ib_enable_filt_dpkt());
    assert_eq!(bar.peek(port::SEND_IBSLID_ASSIGN.port(P0).offset()), 0x10);
    assert_eq!(bar.peek(port::SEND_IBSLID_MASK.port(P0).offset()), 0xFFF8);
    for (lid, lmc) in [(0, 0), (0xC000, 0), (0xFFFF, 0), (1, 1), (0x10, 8), (0x10, 5)] {
        assert!(LidAssignment::new(Lid(lid), lmc).is_err(), "{lid:#x}/{lmc}");
    }
}

#[test]
fn lost_device_is_one_error_and_no_further_write() {
    let bar = obedient();
    let mut link = brought_up(&bar);
    bar.vanish();
    let writes = bar.writes.borrow().len();
    assert_eq!(link.on_status_change(&bar, at(1)), Err(LinkError::Gone { port: P0 }));
    assert_eq!(link.set_goal(Goal::Up, &bar, at(1)), Err(LinkError::Gone { port: P0 }));
    assert_eq!(bar.writes.borrow().len(), writes);
}

/// Levels of the GPIO pins, socket of port 0 empty or not.
fn plug(bar: &ScriptBar, present: bool) {
    let levels = if present { !0x0008 } else { !0u16 };
    bar.set(device::EXT_STATUS.offset(), device::ExtStatus(0).with_gpio_in(levels).0);
}

fn links(bar: &ScriptBar) -> Links {
    let mut gpio = Gpio::new();
    let socket = Socket::set_up(P0, &mut gpio, bar);
    let link = brought_up(bar);
    let mut links = Links::new(Ports::from_speed_mask(7), gpio);
    links.add(link, Some(socket));
    links
}

/// Lets every deadline pass until nothing is waited for; when that is.
fn settle(links: &mut Links, bar: &ScriptBar, from: Instant) -> Instant {
    let mut now = from;
    for _ in 0..10_000 {
        let Some(at) = links.poll_timeout() else { return now };
        now = now.max(at);
        links.on_timeout(bar, now).expect("a device");
    }
    panic!("the links never come to rest");
}

#[test]
fn port_without_a_module_waits_for_one_and_then_enables_itself() {
    let bar = obedient();
    plug(&bar, false);
    let mut links = links(&bar);
    links.set_goal(P0, Goal::Up, &bar, at(0)).expect("a port");
    assert_eq!(links.link(P0).map(|link| link.status().physical()), Some(Physical::Disabled));
    assert_eq!(links.module_present(P0), Some(false));
    assert_eq!(links.poll_timeout(), None);

    plug(&bar, true);
    bar.set(device::GPIO_STATUS.offset(), 8);
    links.on_gpio(&bar, at(100));
    assert_eq!(links.poll_timeout(), Some(at(100) + socket::DEBOUNCE));
    links.on_timeout(&bar, at(120)).expect("a device");
    assert_eq!(links.poll_timeout(), Some(at(120) + socket::MODULE_READY_AFTER));
    let commands = bar.written(CTRL_A).len();
    links.on_timeout(&bar, at(2120)).expect("a device");
    assert!(links.is_reading_cable(P0));
    assert_eq!(bar.written(CTRL_A).len(), commands, "B03: no command before the module was read");
    settle(&mut links, &bar, at(2120));
    assert_eq!(
        links.poll_event(),
        Some(LinkEvent { port: P0, change: PortChange::Socket(SocketChange::Inserted) })
    );
    links.on_port_status(P0, &bar, at(3000)).expect("a device");
    assert_eq!(links.link(P0).map(|link| link.status().physical()), Some(Physical::Polling));
}

#[test]
fn pulled_module_disables_the_port_and_a_bounce_does_not() {
    let bar = obedient();
    plug(&bar, true);
    let mut links = links(&bar);
    links.set_goal(P0, Goal::Up, &bar, at(0)).expect("a port");
    settle(&mut links, &bar, at(0));
    links.on_timeout(&bar, at(500)).expect("a device");
    assert_eq!(links.link(P0).map(|link| link.status().physical()), Some(Physical::Polling));
    assert!(links.cable(P0).is_some_and(Result::is_err), "a module that does not answer has no say");
    links.poll_event().expect("the module that was in");

    bar.set(device::GPIO_STATUS.offset(), 8);
    links.on_gpio(&bar, at(600));
    links.on_timeout(&bar, at(620)).expect("bounced: the module is still there");
    assert_eq!(links.poll_event(), None);

    links.on_gpio(&bar, at(700));
    plug(&bar, false);
    links.on_timeout(&bar, at(720)).expect("a device");
    assert_eq!(
        links.poll_event(),
        Some(LinkEvent { port: P0, change: PortChange::Socket(SocketChange::Removed) })
    );
    assert_eq!(IbcStatusA(bar.peek(STATUS_A)).link_training_state(), 0);
}

#[test]
fn request_is_reached_when_the_state_shows_and_late_with_advice_otherwise() {
    let bar = obedient();
    plug(&bar, true);
    let mut links = links(&bar);
    settle(&mut links, &bar, at(0));
    let request = PortRequest::start(P0, PortAction::Activate, &mut links, &bar, at(0)).expect("a port");
    let deadline = Instant::ZERO + PortAction::Activate.within();
    assert_eq!(request.poll(&mut links, &bar, at(1)), Ok(RequestPoll::Waiting(deadline)));
    let late = request.poll(&mut links, &bar, deadline).expect("a device");
    let RequestPoll::Late { status, waited, advice } = late else { panic!("{late:?}") };
    assert_eq!((status.physical(), waited), (Physical::Polling, PortAction::Activate.within()));
    assert!(advice.contains("no cable"));

    show(&bar, 1, 1);
    let states: Vec<_> = (0..3).map(|_| request.poll(&mut links, &bar, at(2))).collect();
    assert!(matches!(states.last(), Some(Ok(RequestPoll::Reached(status))) if status.is_up()), "{states:?}");
}

#[test]
fn request_words_read_back_and_others_are_refused_with_the_valid_ones() {
    for action in PortAction::ALL {
        assert_eq!(action.to_string().parse(), Ok(action));
    }
    let error = "up".parse::<PortAction>().expect_err("no such word");
    assert!(error.to_string().contains("enable, disable, poll, arm, active"));
}

#[test]
fn arming_a_port_without_a_link_is_refused_with_the_reason() {
    let bar = obedient();
    plug(&bar, true);
    let mut links = links(&bar);
    links.set_goal(P0, Goal::Up, &bar, at(0)).expect("a port");
    let error = PortRequest::start(P0, PortAction::Arm, &mut links, &bar, at(1)).expect_err("no link");
    assert!(
        error.to_string().contains("arm is not possible while the link is Down: there is no link"),
        "{error}"
    );
}

#[test]
fn strange_gpio_pin_is_masked() {
    let bar = obedient();
    plug(&bar, true);
    let mut links = links(&bar);
    links.gpio.watch(1 << 12, 0, &bar);
    bar.set(device::GPIO_STATUS.offset(), 1 << 12);
    links.on_gpio(&bar, at(0));
    assert_eq!(links.gpio.watched() & 1 << 12, 0);
}

proptest! {
    /// No status word makes the link panic, lose its bounds or give a forbidden command.
    #[test]
    fn any_status_words_are_survived(words in proptest::collection::vec(0..u64::MAX, 1..60), goal in 0..4u8) {
        let bar = obedient();
        let mut link = brought_up(&bar);
        let goals = [Goal::Disabled, Goal::Up, Goal::Armed, Goal::Active];
        link.set_goal(goals[usize::from(goal)], &bar, at(0)).expect("a device");
        for (ms, word) in (1u64..).zip(words) {
            bar.set(STATUS_A, word);
            let state = LinkStatus::new(IbcStatusA(word)).logical();
            let before = bar.written(CTRL_A).len();
            let _ = link.on_status_change(&bar, at(ms));
            let _ = link.on_timeout(&bar, at(ms));
            for value in &bar.written(CTRL_A)[before..] {
                let given = IbcCtrlA(*value);
                let codes = (given.link_cmd(), given.link_init_cmd());
                if let Some(command) = Command::ALL.into_iter().find(|command| command.codes() == codes) {
                    prop_assert_eq!(command::refusal(state, command), None);
                }
            }
            let _ = link.status().to_string();
            let _ = advice(link.status().logical(), link.status().physical(), None);
        }
        prop_assert!(changes(&mut link).len() <= 16);
    }

    #[test]
    fn any_port_address_is_answered(text in "\\PC{0,40}") {
        if let Ok(address) = text.parse::<PortAddress>() {
            prop_assert_eq!(address.to_string().parse(), Ok(address));
        }
    }
}
