use super::*;
use crate::eeprom::tests::good_flash;
use crate::link::Physical;
use crate::scriptbar::ScriptBar;
use crate::twsi::tests::BusMemory;
use proptest::prelude::*;
use qhca_irq::plan::Grant;
use qhca_regs::Ctxt;
use qhca_regs::map::device::{self as map, RcvCtrl};

const AVAIL: u64 = 0x12_3456_7000;

/// A bar that answers as far as bring-up asks: a QLE7342 with its EEPROM.
fn board(id: u64) -> ScriptBar {
    let bar = ScriptBar::reset();
    bar.set(map::REVISION.offset(), 0x0201_0602 | id << 32);
    BusMemory { contents: good_flash().to_vec(), ..BusMemory::default() }.attach(&bar);
    let levels = bar.peek(map::EXT_STATUS.offset()) | 1 << 14;
    bar.set(map::EXT_STATUS.offset(), levels);
    bar.on_write(|bar, offset, value| {
        if offset == map::RCV_CTRL.offset() {
            let entries = [4096, 2048, 1024, 0][usize::from(RcvCtrl(value).context_cfg())];
            bar.set(map::RCV_EGR_CNT.offset(), entries);
        }
        if offset == map::ERR_MASK.offset() {
            bar.set(offset, value & 0xE190_0018_0E00_3000);
        }
    });
    bar
}

fn request(list: &str) -> BringUpRequest {
    let options = Options::parse(list).expect("good options").options;
    BringUpRequest { options, cpus: 2, goals: [Some(Goal::Up); 2], ..BringUpRequest::default() }
}

/// Turns `bring_up` to its end, answering each hook at once.
fn run(bring_up: &mut BringUp, bar: &ScriptBar) -> Result<BroughtUp, BringUpError> {
    let mut now = Instant::ZERO;
    for _ in 0..100_000 {
        match bring_up.poll(bar, now) {
            Progress::Step(_) => {}
            Progress::Wait { until } => now = now.max(until),
            Progress::Hook(Hook::TakeVectors) => {
                let request = bring_up.plan_request().expect("the split is made");
                let plan = VectorPlan::new(&request, Grant::MsiX { vectors: request.wanted() });
                bring_up.give_vectors(Some(plan));
            }
            Progress::Hook(Hook::TakeMemory) => bring_up.give_memory(AVAIL),
            Progress::Hook(Hook::OpenContexts) => bring_up.contexts_opened(),
            Progress::Done(up) => return Ok(*up),
            Progress::Failed(error) => return Err(error),
        }
    }
    panic!("bring-up never ends");
}

fn up(bar: &ScriptBar, list: &str) -> BroughtUp {
    run(&mut BringUp::new(request(list)), bar).unwrap_or_else(|error| panic!("{error}"))
}

fn failure(bar: &ScriptBar) -> BringUpError {
    run(&mut BringUp::new(request("")), bar).expect_err("it must fail")
}

#[test]
fn steps_run_once_each_in_the_order_of_the_data_sheet() {
    let bar = board(2);
    let brought = up(&bar, "");
    let steps: Vec<_> = brought.report.steps.iter().map(|done| done.step).collect();
    assert_eq!(steps, Step::ALL);
    let text = brought.report.to_string();
    assert!(text.starts_with(" 1  identify the chip"), "{text}");
    assert_eq!(text.lines().count(), Step::ALL.len(), "{text}");
}

#[test]
fn steps_have_names_numbers_sources_and_deadlines_of_their_own() {
    let names: std::collections::HashSet<_> = Step::ALL.iter().map(|step| step.name()).collect();
    assert_eq!(names.len(), Step::ALL.len());
    for (number, step) in (1..).zip(Step::ALL) {
        assert_eq!(step.number(), number);
        assert_eq!(step.next(), Step::ALL.get(number).copied());
        assert!(step.within() > Duration::ZERO && step.source().starts_with("F-"));
    }
}

#[test]
fn chip_holds_the_stock_values_afterwards() {
    let bar = board(2);
    let brought = up(&bar, "cfgctxts=10");
    assert_eq!(bar.peek(map::RCV_HDR_ENT_SIZE.offset()), 32);
    assert_eq!(bar.peek(map::RCV_HDR_SIZE.offset()), 9);
    assert_eq!(bar.peek(map::RCV_HDR_CNT.offset()), 4096);
    assert_eq!(bar.peek(map::SEND_BUF_AVAIL_ADDR.offset()), AVAIL);
    let rcv = RcvCtrl(bar.peek(map::RCV_CTRL.offset()));
    assert_eq!((rcv.context_cfg(), rcv.xrc_type_code()), (1, 5));
    // 162 buffers: two full words and 34 bits.
    let masks = [u64::MAX, u64::MAX, (1 << 34) - 1];
    for (word, mask) in (0..).zip(masks) {
        assert_eq!(bar.peek(map::SEND_IB_PACKET_MASK.index(word).offset()), mask);
        assert_eq!(bar.peek(map::SEND_CHECK_MASK.index(word).offset()), mask);
        assert_eq!(bar.peek(map::SEND_GRH_CHECK_MASK.index(word).offset()), 0);
    }
    for p in Port::ALL {
        assert_eq!(bar.peek(port::RCV_BTHQP.port(p).offset()), 0x65_6B78);
        assert_eq!(bar.peek(port::SEND_CHECK_CONTROL.port(p).offset()), 0x1F);
        assert!(brought.controls.rcv_port(p).rcv_ib_port_enable());
        assert!(brought.controls.send_port(p).send_enable());
        let guid = 0x0011_7500_005A_0001 + p.index() as u64;
        assert_eq!(bar.peek(port::HRTBT_GUID.port(p).offset()), guid);
    }
    assert!(brought.controls.send().send_buf_avail_upd());
    assert_eq!(brought.controls.send().avail_upd_thld(), 8);
}

/// B136: whatever its last owner has left, the chip ends up as a fresh one does.
#[test]
fn chip_that_its_last_owner_left_dirty_comes_up_as_a_fresh_one() {
    let (fresh, dirty) = (board(2), board(2));
    let mut left = vec![
        (map::RCV_CTRL.offset(), u64::MAX),
        (map::SEND_CTRL.offset(), 0x2000_0006),
        (map::INT_MASK.offset(), u64::MAX),
        (map::RCV_AVAIL_TIMEOUT.index(0).offset(), 7),
        (map::HW_DIAG_CTRL.offset(), 1 << 61),
    ];
    for p in Port::ALL {
        left.extend([
            (port::RCV_CTRL.port(p).offset(), u64::MAX),
            // Send DMA running.
            (port::SEND_CTRL.port(p).offset(), 0xA08),
            (port::SEND_IBSLID_ASSIGN.port(p).offset(), 0x1234),
            (port::SEND_DMA_BUF_MASK.port(p).index(2).offset(), u64::MAX),
        ]);
    }
    left.iter().for_each(|(offset, value)| dirty.set(*offset, *value));
    up(&fresh, "");
    up(&dirty, "");
    for (offset, _) in left {
        assert_eq!(dirty.peek(offset), fresh.peek(offset), "{offset:#x}");
    }
    assert!(dirty.written(map::ERR_CLEAR.offset()).contains(&u64::MAX), "old errors are cleared");
}

/// The value that reads back of all ones is the mask for good.
#[test]
fn error_mask_is_what_the_chip_kept() {
    let bar = board(2);
    let masks = up(&bar, "").masks;
    assert_eq!(masks.device.bits(), 0xE190_0018_0E00_3000);
    assert_eq!(
        bar.written(map::HW_ERR_CLEAR.offset())[0],
        !(1 << 54),
        "the self-test's bit is never cleared"
    );
    assert_eq!(masks.hardware.bits(), !(1 << 63 | 1 << 62 | 1 << 11));
}

/// B37: the interrupt mask has only bits with a handler.
#[test]
fn interrupts_go_on_after_everything_else_but_the_links() {
    let bar = board(1);
    let brought = up(&bar, "");
    let masks = bar.written(map::INT_MASK.offset());
    let enabled = brought.plan.expect("vectors").enabled_bits().bits();
    assert_eq!(masks, [0, enabled]);
    // Reserved bits, and what belongs to the absent port 1.
    assert_eq!(enabled & 0x00FC_0000_0C7C_0000, 0);
    assert_eq!(enabled & (1 << 31 | 1 << 25 | 1 << 57), 0);
    let writes = bar.writes.borrow();
    let at = |offset, value| writes.iter().position(|write| *write == (offset, value));
    let on = at(map::INT_MASK.offset(), enabled).expect("interrupts on");
    let raised_again = writes.iter().rposition(|write| *write == (map::INT_CLEAR.offset(), 0));
    assert!(raised_again.is_some_and(|index| index > on));
    assert!(at(map::SEND_BUF_AVAIL_ADDR.offset(), AVAIL).is_some_and(|index| index < on));
}

#[test]
fn redirect_words_are_the_plans() {
    let bar = board(2);
    let brought = up(&bar, "krcvqs=2");
    let plan = brought.plan.expect("vectors");
    for (register, word) in (0..).zip(plan.redirect()) {
        assert_eq!(bar.peek(map::INT_REDIRECT.index(register).offset()), word.0);
    }
    assert_eq!(plan.kernel_contexts().len(), 4);
    let timer = bar.peek(map::RCV_AVAIL_TIMEOUT.ctxt(Ctxt::new(3).expect("a context")).offset());
    assert_eq!(timer, u64::from(RCV_AVAIL_TIMEOUT));
}

#[test]
fn absent_port_is_kept_quiet() {
    let bar = board(1);
    up(&bar, "");
    assert_eq!(bar.written(port::IBC_CTRL_A.port(Port::P1).offset()), [0]);
    assert_eq!(bar.written(port::RCV_CTRL.port(Port::P1).offset()), [0]);
    assert_eq!(bar.written(port::ERR_MASK.port(Port::P1).offset()), [0; 0]);
}

#[test]
fn polled_device_gets_no_interrupt_mask() {
    let bar = board(2);
    let mut bring_up = BringUp::new(request(""));
    bring_up.give_vectors(None);
    let brought = run(&mut bring_up, &bar).expect("a device");
    assert!(brought.plan.is_none());
    assert_eq!(bar.written(map::INT_MASK.offset()), [0]);
}

#[test]
fn hook_is_repeated_until_it_is_answered_and_has_a_deadline() {
    let bar = board(2);
    let mut bring_up = BringUp::new(request(""));
    while let Progress::Step(_) = bring_up.poll(&bar, Instant::ZERO) {}
    for _ in 0..3 {
        assert!(matches!(bring_up.poll(&bar, Instant::ZERO), Progress::Hook(Hook::TakeVectors)));
    }
    let late = Instant::ZERO + Step::TakeVectors.within() + Duration::from_nanos(1);
    let Progress::Failed(error) = bring_up.poll(&bar, late) else { panic!("a deadline that never ends") };
    assert_eq!(error.step, Step::TakeVectors);
    assert!(
        error
            .to_string()
            .starts_with("bring-up stopped in step 7 of 20, take interrupt vectors: not done after")
    );
    let refused = bring_up.caller_failed("no vectors left");
    assert_eq!(refused.fault, Fault::Caller("no vectors left".into()));
}

/// B06, B07: a board whose EEPROM is blank comes up without a GUID, flagged.
#[test]
fn blank_eeprom_is_a_warning_and_guid_0() {
    let bar = board(2);
    // Nobody drives the data line any more: every device is deaf.
    bar.fix(map::EXT_STATUS.offset());
    bar.on_write(|bar, offset, _| {
        if offset == map::EXT_CTRL.offset() {
            bar.set(map::EXT_STATUS.offset(), 0xFFFF_0000_0000_4000);
        }
    });
    let brought = up(&bar, "");
    assert_eq!(brought.identity.node_guid(), crate::identity::Guid::NONE);
    let warnings: Vec<_> = brought.report.warnings.iter().map(ToString::to_string).collect();
    assert!(warnings.iter().any(|text| text.starts_with("no GUID: two-wire bus")), "{warnings:?}");
}

#[test]
fn eeprom_that_takes_for_ever_is_given_up_and_bring_up_goes_on() {
    let bar = board(2);
    let mut bring_up = BringUp::new(request(""));
    bring_up.give_vectors(None);
    while bring_up.step() != Step::ReadEeprom {
        assert!(matches!(bring_up.poll(&bar, Instant::ZERO), Progress::Step(_)));
    }
    assert!(matches!(bring_up.poll(&bar, Instant::ZERO), Progress::Wait { .. }));
    let late = Instant::ZERO + Step::ReadEeprom.within() + Duration::from_nanos(1);
    assert!(matches!(bring_up.poll(&bar, late), Progress::Step(StepDone { step: Step::ReadEeprom, .. })));
    assert_eq!(bring_up.step(), Step::TakeMemory);
}

#[test]
fn wrong_answers_stop_in_their_step_and_name_the_register() {
    let cases: [(u32, u64, Step, &str); 6] = [
        (map::REVISION.offset(), u64::MAX, Step::Identify, "Revision"),
        (map::PAGE_ALIGN.offset(), 0x2000, Step::Count, "PageAlign reads 0x2000"),
        (map::CONTEXT_CNT.offset(), 1, Step::Count, "ContextCnt reports 1"),
        (map::HW_ERR_STATUS.offset(), 1 << 54, Step::QuietErrors, "PowerOnBISTFailed"),
        (map::SEND_BUF_CNT.offset(), 0, Step::Count, "SendBufCnt (small) reports 0"),
        (map::USER_REG_BASE.offset(), 0, Step::Count, "UserRegBase reads 0x0"),
    ];
    for (offset, value, step, text) in cases {
        let bar = board(2);
        bar.set(offset, value);
        let error = failure(&bar);
        assert_eq!(error.step, step, "{error}");
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn registers_that_keep_nothing_are_noticed() {
    let bar = board(2);
    bar.fix(map::SEND_BUF_AVAIL_ADDR.offset());
    assert_eq!(failure(&bar).fault, Fault::AvailAddress { written: AVAIL, read: 0 });

    let bar = board(2);
    bar.on_write(|bar, offset, _| {
        if offset == map::RCV_CTRL.offset() {
            bar.set(map::RCV_EGR_CNT.offset(), 1);
        }
    });
    let error = failure(&bar);
    assert_eq!(error.step, Step::ConfigureContexts);
    assert!(error.to_string().contains("RcvEgrCnt reports 1, at least 4096"), "{error}");

    let bar = board(2);
    bar.on_write(|bar, offset, _| {
        if offset == map::ERR_MASK.offset() {
            bar.set(offset, 0);
        }
    });
    assert_eq!(failure(&bar).fault, Fault::NoErrors);
}

/// B170: device-reported numbers of 0, 1 and all ones in 32 bits end in a refusal or a warning, in bounded time.
#[test]
fn absurd_numbers_from_the_device_are_refused_or_cut() {
    let registers = [
        map::CONTEXT_CNT.offset(),
        map::RCV_TID_CNT.offset(),
        map::RCV_EGR_CNT.offset(),
        map::SEND_BUF_CNT.offset(),
        map::SEND_BUF_SIZE.offset(),
        map::SEND_BUF_BASE.offset(),
        map::RCV_EGR_BASE.offset(),
        map::CNTR_REG_BASE.offset(),
    ];
    for offset in registers {
        for value in [0, 1, 0xFFFF_FFFF] {
            let bar = board(2);
            bar.set(offset, value);
            bar.on_write(move |bar, _, _| bar.set(offset, value));
            if let Ok(brought) = run(&mut BringUp::new(request("")), &bar) {
                assert!(brought.split.contexts.len() <= 18);
                let tids_are_few = offset == map::RCV_TID_CNT.offset() && value <= 512;
                assert!(tids_are_few || !brought.report.warnings.is_empty(), "{offset:#x} = {value:#x}");
            }
        }
    }
}

#[test]
fn self_test_that_did_not_end_is_a_warning() {
    let bar = board(2);
    let levels = bar.peek(map::EXT_STATUS.offset()) & !(1 << 14);
    bar.set(map::EXT_STATUS.offset(), levels);
    let warnings = up(&bar, "").report.warnings;
    assert!(matches!(warnings.as_slice(), [BringUpWarning::BistDidNotEnd { .. }]), "{warnings:?}");
}

#[test]
fn ports_are_left_disabled_unless_they_are_wanted() {
    let bar = board(3);
    let wanted = BringUpRequest { goals: [None, None], ..request("") };
    let brought = run(&mut BringUp::new(wanted), &bar).expect("a device");
    let commands: Vec<_> = bar
        .written(port::IBC_CTRL_A.port(Port::P0).offset())
        .into_iter()
        .map(|value| port::IbcCtrlA(value).link_init_cmd())
        .filter(|command| *command != 0)
        .collect();
    assert_eq!(commands, [1], "DISABLE, and nothing after it");
    assert!(brought.links.link(Port::P0).is_some_and(|link| link.goal() == Goal::Disabled));
    assert_ne!(brought.links.link(Port::P0).map(|link| link.status().physical()), Some(Physical::LinkUp));
}

/// A bar that lies: now and then a read gives something else, from a list.
struct LyingBar {
    honest: ScriptBar,
    lies: std::cell::RefCell<std::vec::IntoIter<(u8, u64)>>,
}

impl Bar for LyingBar {
    fn read(&self, offset: u32) -> u64 {
        let truth = self.honest.read(offset);
        match self.lies.borrow_mut().next() {
            // One read in sixteen lies; half of the lies differ from the truth in a single bit.
            Some((n, lie)) if n % 16 == 0 => {
                if n % 32 == 0 {
                    truth ^ 1 << (lie % 64)
                } else {
                    lie
                }
            }
            _ => truth,
        }
    }
    fn write(&self, offset: u32, value: u64) {
        self.honest.write(offset, value);
    }
    fn doorbell(&self, offset: u32, value: u64) {
        self.honest.doorbell(offset, value);
    }
    fn burst(&self, offset: u32, dwords: &[u32]) {
        self.honest.burst(offset, dwords);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the device answers, bring-up ends: up, or with a step and a reason. It never panics nor spins.
    #[test]
    fn lying_device_ends_bring_up_one_way_or_the_other(
        lies in proptest::collection::vec((any::<u8>(), prop_oneof![any::<u64>(), Just(u64::MAX), Just(0), Just(1)]), 0..400),
        first_lie in 0usize..200,
    ) {
        let quiet = std::iter::repeat_n((1u8, 0u64), first_lie);
        let lies: Vec<_> = quiet.chain(lies).collect();
        let bar = LyingBar { honest: board(2), lies: std::cell::RefCell::new(lies.into_iter()) };
        let mut bring_up = BringUp::new(request("krcvqs=2"));
        let mut now = Instant::ZERO;
        let mut polls = 0;
        let ended = loop {
            polls += 1;
            prop_assert!(polls < 20_000, "still in {}", bring_up.step());
            match bring_up.poll(&bar, now) {
                Progress::Step(_) => {}
                Progress::Wait { until } => now = now.max(until),
                Progress::Hook(Hook::TakeVectors) => bring_up.give_vectors(None),
                Progress::Hook(Hook::TakeMemory) => bring_up.give_memory(AVAIL),
                Progress::Hook(Hook::OpenContexts) => bring_up.contexts_opened(),
                Progress::Done(up) => break Ok(up),
                Progress::Failed(error) => break Err(error),
            }
        };
        match ended {
            Ok(up) => prop_assert!(up.split.contexts.len() <= 18),
            Err(error) => {
                prop_assert_ne!(&error.fault, &Fault::OutOfOrder);
                prop_assert!(error.to_string().contains("step"));
            }
        }
    }
}
