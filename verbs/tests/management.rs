//! The agents, asked as a subnet manager and a reader of counters ask.

use qhca_regs::{Duration, Instant, Lid};
use qhca_verbs::mgmt::{
    Identity, MicroSm, Performance, PortAttributes, PortCounts, SmMode, SubnetAgent, Wish,
};
use qhca_verbs::wire::mad::{Mad, MadClass, Method, status};

fn agent() -> SubnetAgent {
    let identity = Identity {
        description: "host qib0".into(),
        system_guid: 0x0011_7500_0000_0001,
        node_guid: 0x0011_7500_0000_0002,
        port_guid: 0x0011_7500_0000_0003,
        ports: 2,
        port: 1,
        device_id: 0x7322,
        revision: 2,
        vendor_id: 0x1175,
    };
    SubnetAgent::new(identity, PortAttributes::default())
}

fn ask(agent: &mut SubnetAgent, method: Method, attribute: u16, modifier: u32) -> Option<Mad> {
    agent.process(&Mad::new(MadClass::SubnetLid, method, attribute, modifier, 0x77))
}

#[test]
fn node_says_who_it_is() {
    let mut agent = agent();
    let info = ask(&mut agent, Method::Get, 0x11, 0).expect("an answer");
    assert_eq!((info.method(), info.status(), info.transaction()), (Method::GetResponse, 0, 0x77));
    let data = info.data();
    assert_eq!(data[..4], [1, 1, 1, 2], "versions, channel adapter, two ports");
    assert_eq!(data[12..20], 0x0011_7500_0000_0002_u64.to_be_bytes());
    assert_eq!(data[30..32], [0x73, 0x22]);
    assert_eq!(data[36..40], [1, 0, 0x11, 0x75], "port 1, vendor");
    let text = ask(&mut agent, Method::Get, 0x10, 0).expect("an answer");
    assert_eq!(text.data()[..9], *b"host qib0");
}

/// A manager brings the port from INIT by ARMED to ACTIVE with a LID, and the owner learns each step.
#[test]
fn manager_brings_the_port_to_active_and_the_owner_learns_each_step() {
    let mut agent = agent();
    let mut info = ask(&mut agent, Method::Get, 0x15, 1).expect("an answer");
    let set = |agent: &mut SubnetAgent, info: &mut Mad, change: &dyn Fn(&mut [u8; 64])| {
        info.set_method(Method::Set);
        info.set_status(0);
        change(info.data_mut());
        agent.process(info).expect("an answer")
    };
    let early = set(&mut agent, &mut info.clone(), &|data| {
        data[17] = 5;
        data[32] = data[32] & 0xF0 | 4;
    });
    assert_eq!(early.status(), status::INVALID_VALUE, "not from INIT to ACTIVE at once");
    assert_eq!(agent.take_wishes(), []);
    let armed = set(&mut agent, &mut info, &|data| {
        data[17] = 5;
        data[32] = data[32] & 0xF0 | 3;
        data[33] &= 0x0F;
    });
    assert_eq!(armed.status(), 0);
    assert_eq!(agent.take_wishes(), [Wish::Lid(Lid(5), 0), Wish::State(3)]);
    let active = set(&mut agent, &mut info, &|data| data[32] = data[32] & 0xF0 | 4);
    assert_eq!(active.data()[32] & 0xF, 4);
    assert_eq!(agent.take_wishes(), [Wish::State(4)]);
}

#[test]
fn directed_route_comes_back_by_the_port_that_it_came_in() {
    let mut agent = agent();
    let mut mad = Mad::new(MadClass::SubnetDirected, Method::Get, 0x11, 0, 1);
    mad.direct(&[1]);
    let answer = agent.process(&mad).expect("an answer");
    assert!(answer.is_returning() && answer.hops() == (1, 1) && answer.return_port(1) == 1);
    assert_eq!(answer.directed_lids(), (Lid(0xFFFF), Lid(0xFFFF)));
    assert!(agent.process(&answer).is_none(), "an answer is not answered");
    let mut passing = Mad::new(MadClass::SubnetDirected, Method::Get, 0x11, 0, 1);
    passing.direct(&[1, 2]);
    assert!(agent.process(&passing).is_none(), "an adapter passes nothing on");
}

#[test]
fn wrong_management_key_is_counted_and_gets_no_answer() {
    let mut agent = agent();
    (agent.port.m_key, agent.port.m_key_protect) = (42, 2);
    assert!(ask(&mut agent, Method::Get, 0x15, 0).is_none());
    let mut mad = Mad::new(MadClass::SubnetLid, Method::Get, 0x15, 0, 1);
    mad.set_m_key(42);
    let answer = agent.process(&mad).expect("the right key");
    assert_eq!(answer.data()[44..46], [0, 1], "one violation");
    agent.port.m_key_protect = 1;
    let hidden = ask(&mut agent, Method::Get, 0x15, 0).expect("reading is allowed");
    assert_eq!(hidden.data()[..8], [0; 8], "the key is not shown");
    assert!(ask(&mut agent, Method::Set, 0x15, 0).is_none());
}

#[test]
fn unknown_attribute_method_and_version_are_refused_by_their_status() {
    let mut agent = agent();
    let status_of = |answer: Option<Mad>| answer.map(|answer| answer.status());
    assert_eq!(status_of(ask(&mut agent, Method::Get, 0x99, 0)), Some(status::METHOD_ATTRIBUTE));
    assert_eq!(status_of(ask(&mut agent, Method::Set, 0x11, 0)), Some(status::METHOD_ATTRIBUTE));
    assert_eq!(status_of(ask(&mut agent, Method::Other(0x33), 0x11, 0)), Some(status::METHOD));
    assert_eq!(status_of(ask(&mut agent, Method::Get, 0x16, 9)), Some(status::INVALID_VALUE));
    let mut mad = Mad::new(MadClass::SubnetLid, Method::Get, 0x11, 0, 1);
    mad.0[2] = 9;
    assert_eq!(status_of(agent.process(&mad)), Some(status::BAD_VERSION));
}

/// B167: classic counters stop at their top, extended ones go on, and a clear gives no giant jump.
#[test]
fn classic_counters_stop_at_their_top_and_a_clear_gives_no_jump() {
    let mut agent = Performance::new(1);
    let counts = PortCounts {
        symbol_errors: 70_000,
        overruns: 20,
        integrity_errors: 3,
        transmit_dwords: 1 << 33,
        receive_packets: 7,
        ..PortCounts::default()
    };
    let ask = |agent: &mut Performance, method, attribute, select: u16, counts: &PortCounts| {
        let mut mad = Mad::new(MadClass::Performance, method, attribute, 0, 1);
        mad.0[65] = 1;
        mad.0[66..68].copy_from_slice(&select.to_be_bytes());
        agent.process(&mad, counts).expect("an answer")
    };
    let classic = ask(&mut agent, Method::Get, 0x12, 0, &counts);
    assert_eq!(classic.0[68..70], [0xFF, 0xFF]);
    assert_eq!(classic.0[83], 3 << 4 | 15);
    assert_eq!(classic.0[88..92], [0xFF; 4]);
    assert_eq!(classic.0[100..104], [0, 0, 0, 7]);
    let extended = ask(&mut agent, Method::Get, 0x1D, 0, &counts);
    assert_eq!(extended.0[72..80], (1_u64 << 33).to_be_bytes());
    ask(&mut agent, Method::Set, 0x12, 1 << 12 | 1, &counts);
    let more = PortCounts { transmit_dwords: counts.transmit_dwords + 5, ..counts };
    let cleared = ask(&mut agent, Method::Get, 0x12, 0, &more);
    assert_eq!((&cleared.0[68..70], &cleared.0[88..92]), (&[0, 0][..], &[0, 0, 0, 5][..]));
    assert_eq!(cleared.0[100..104], [0, 0, 0, 7], "what was not selected stays");
    let mut other = Mad::new(MadClass::Performance, Method::Get, 0x12, 0, 1);
    other.0[65] = 2;
    assert_eq!(agent.process(&other, &counts).map(|answer| answer.status()), Some(status::INVALID_VALUE));
}

/// One manager and a cable: both ports become ACTIVE with LIDs, and a port that falls back is brought up again.
#[test]
fn micro_manager_brings_both_ends_up_and_again_after_a_fall() {
    let (mut here, mut there) = (agent(), agent_with(9));
    let mut sm = MicroSm::new(SmMode::Auto, 0x0011_7500_0000_0003, 5);
    let mut now = Instant::ZERO;
    run_sm(&mut sm, &mut here, &mut there, &mut now);
    assert!(sm.is_done());
    for (agent, lid) in [(&here, 1), (&there, 2)] {
        assert_eq!((agent.port.state, agent.port.lid, agent.port.sm_lid), (4, lid, 1));
    }
    there.port.state = 2;
    run_sm(&mut sm, &mut here, &mut there, &mut now);
    assert!(sm.is_done() && there.port.state == 4);
}

/// A loop needs no peer; a better manager is left alone, a worse one is not; a lost answer is asked for again.
#[test]
fn micro_manager_knows_a_loop_and_steps_aside_for_a_better_one() {
    let mut here = agent();
    let mut sm = MicroSm::new(SmMode::Auto, 0x0011_7500_0000_0003, 5);
    let mut now = Instant::ZERO;
    for _ in 0..100 {
        if let Some(mad) = sm.poll(now) {
            let answer = here.process(&mad).expect("an answer");
            sm.on_answer(&answer, now);
        }
        now += Duration::from_millis(10);
    }
    assert!(sm.is_done() && here.port.state == 4 && here.port.lid == 1);

    for (priority, mode, aside) in [(9, SmMode::Auto, true), (1, SmMode::Auto, false), (9, SmMode::On, false)]
    {
        let mut sm = MicroSm::new(mode, 0x0011_7500_0000_0003, 5);
        let rival = MicroSm::new(SmMode::On, 0x0011_7500_0000_0099, priority);
        let (mut here, mut there) = (agent(), agent_with(0x99));
        let mut now = Instant::ZERO;
        let mut lost = 0;
        for _ in 0..400 {
            if let Some(mad) = sm.poll(now) {
                let local = mad.hops().1 == 0;
                lost += 1;
                let answer = match local {
                    true => here.process(&mad),
                    false if lost % 3 == 0 => None,
                    false => rival.answer(&mad).or_else(|| there.process(&mad)),
                };
                answer.iter().for_each(|answer| sm.on_answer(answer, now));
            }
            now += Duration::from_millis(10);
        }
        assert_eq!((sm.is_aside(), sm.is_done()), (aside, !aside), "priority {priority}, {mode:?}");
    }
    assert!(MicroSm::new(SmMode::Off, 1, 5).poll(Instant::ZERO).is_none());
}

fn agent_with(guid: u64) -> SubnetAgent {
    let identity = Identity {
        description: "peer".into(),
        system_guid: guid,
        node_guid: guid,
        port_guid: guid,
        ports: 1,
        port: 1,
        device_id: 0x7322,
        revision: 2,
        vendor_id: 0x1175,
    };
    SubnetAgent::new(identity, PortAttributes::default())
}

fn run_sm(sm: &mut MicroSm, here: &mut SubnetAgent, there: &mut SubnetAgent, now: &mut Instant) {
    for _ in 0..300 {
        if let Some(mad) = sm.poll(*now) {
            let agent = if mad.hops().1 == 0 { &mut *here } else { &mut *there };
            agent.process(&mad).iter().for_each(|answer| sm.on_answer(answer, *now));
        }
        *now += Duration::from_millis(10);
    }
}
