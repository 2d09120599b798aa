//! Binding, on a kernel that obeys, refuses, or fails at any step.

use super::*;
use crate::fake::FakeHost;
use crate::look::Look;

const BDF: &str = "0000:04:00.0";
const EPERM: i32 = 1;
const EIO: i32 = 5;

fn card(host: &FakeHost) -> Card {
    Card::read(Reader::new(host), BDF.parse().expect("an address"))
}

fn bound(host: &mut FakeHost, wish: Wish) -> Result<Outcome, BindError> {
    let card = card(host);
    let steps = plan_bind(Reader::new(host), &card, wish)?;
    bind(host, &card, &steps, &mut |_| {})
}

fn unbound(host: &mut FakeHost, wish: Wish) -> Result<Outcome, BindError> {
    let card = card(host);
    let steps = plan_unbind(Reader::new(host), &card, wish)?;
    unbind(host, &card, &steps, &mut |_| {})
}

fn drivers(outcome: &Outcome) -> (Option<&str>, Option<&str>) {
    (outcome.before.as_deref(), outcome.after.as_deref())
}

/// The lines that one of two states has and the other has not.
fn difference<'a>(before: &'a str, after: &'a str) -> Vec<&'a str> {
    let lines = |text: &'a str| text.lines().collect::<std::collections::BTreeSet<_>>();
    lines(before).symmetric_difference(&lines(after)).copied().collect()
}

const ALL: Wish = Wish { uid: Some(1000), persist: true };

#[test]
fn card_without_a_driver_is_bound_and_given_back_to_none() {
    let mut host = FakeHost::with_card("");
    let before = host.state();
    let outcome = bound(&mut host, Wish::default()).expect("it binds");
    assert_eq!(drivers(&outcome), (None, Some("vfio-pci")));
    assert!(host.stat("/dev/vfio/26").is_ok());
    let outcome = unbound(&mut host, Wish::default()).expect("it is given back");
    assert_eq!(drivers(&outcome), (Some("vfio-pci"), None));
    assert_eq!(difference(&before, &host.state()), ["/dev/", "/dev/vfio/", "/dev/vfio/devices/"]);
}

#[test]
fn card_of_the_kernels_driver_goes_to_vfio_and_back_to_it() {
    let mut host = FakeHost::with_card("ib_qib");
    let outcome = bound(&mut host, Wish::default()).expect("it binds");
    assert_eq!(drivers(&outcome), (Some("ib_qib"), Some("vfio-pci")));
    assert_eq!(card(&host).driver_override, Ok(Some("vfio-pci".to_owned())));
    let outcome = unbound(&mut host, Wish::default()).expect("it is given back");
    assert_eq!(drivers(&outcome), (Some("vfio-pci"), Some("ib_qib")));
    assert_eq!(card(&host).driver_override, Ok(None));
}

#[test]
fn module_is_loaded_where_it_is_missing_and_its_absence_is_told() {
    let mut host = FakeHost::with_card("ib_qib");
    host.without_driver("vfio-pci");
    host.add_module("vfio-pci");
    bound(&mut host, Wish::default()).expect("it binds");
    assert_eq!(host.log()[0], "load vfio-pci");

    let mut host = FakeHost::with_card("ib_qib");
    host.without_driver("vfio-pci");
    let before = host.state();
    let error = bound(&mut host, Wish::default()).expect_err("no module").to_string();
    assert!(error.contains("modprobe vfio-pci") && error.contains("all is as it was"), "{error}");
    assert_eq!(difference(&before, &host.state()), [""; 0]);
}

#[test]
fn second_bind_changes_nothing() {
    let mut host = FakeHost::with_card("");
    bound(&mut host, ALL).expect("it binds");
    let (state, orders) = (host.state(), host.log().len());
    let outcome = bound(&mut host, ALL).expect("it is bound");
    assert_eq!(drivers(&outcome), (Some("vfio-pci"), Some("vfio-pci")));
    assert_eq!(difference(&state, &host.state()), [""; 0]);
    assert!(host.log()[orders..].iter().all(|order| order.starts_with("give ")), "{:?}", host.log());
}

/// Whatever order fails, the card has the driver that it had and no file is left behind.
#[test]
fn failure_at_any_step_of_a_bind_leaves_everything_as_it_was() {
    for driver in ["ib_qib", "uio_pci_generic", ""] {
        let total = {
            let mut host = FakeHost::with_card(driver);
            bound(&mut host, ALL).expect("nothing fails");
            host.log().len()
        };
        assert!(total >= 7, "the orders that can fail");
        for n in 0..total {
            let mut host = FakeHost::with_card(driver);
            let before = card(&host);
            host.fail_order(n, EIO);
            let error = bound(&mut host, ALL).expect_err("an order fails");
            assert!(error.to_string().contains("all is as it was"), "{driver} {n}: {error}");
            let after = card(&host);
            assert_eq!(
                (&after.driver, &after.driver_override),
                (&before.driver, &before.driver_override),
                "{driver} {n}"
            );
            for folder in ["/etc/udev/rules.d", "/etc/modprobe.d", "/etc/modules-load.d"] {
                assert!(host.list(folder).unwrap_or_default().is_empty(), "{driver} {n}: {folder}");
            }
        }
    }
}

#[test]
fn former_driver_that_will_not_have_the_card_back_is_told() {
    let mut host = FakeHost::with_card("ib_qib");
    host.refuse_probe("vfio-pci");
    host.refuse_probe("ib_qib");
    let error = bound(&mut host, Wish::default()).expect_err("nobody takes it").to_string();
    assert!(error.contains("had ib_qib, has no driver and could not be put back"), "{error}");
}

#[test]
fn driver_that_refuses_the_card_gives_it_back_to_the_former() {
    let mut host = FakeHost::with_card("ib_qib");
    host.refuse_probe("vfio-pci");
    let before = host.state();
    let error = bound(&mut host, Wish::default()).expect_err("it is refused").to_string();
    assert!(
        error.contains("vfio-pci did not take the card") && error.contains("all is as it was"),
        "{error}"
    );
    assert_eq!(difference(&before, &host.state()), [""; 0]);
}

/// B132: an unbind that does not end is given up, told, and undone.
#[test]
fn unbind_that_does_not_end_is_given_up_and_the_override_is_put_back() {
    let mut host = FakeHost::with_card("vfio-pci");
    host.file("/sys/bus/pci/devices/0000:04:00.0/driver_override", "vfio-pci\n");
    host.hang_unbind("vfio-pci");
    let before = host.state();
    let error = unbound(&mut host, Wish::default()).expect_err("it hangs").to_string();
    assert!(error.contains("did not end within 10 s") && error.contains("all is as it was"), "{error}");
    assert_eq!(difference(&before, &host.state()), [""; 0]);
}

/// B120: a card in use is not touched, and whoever uses it is named.
#[test]
fn card_in_use_is_refused_with_the_holders_name_and_nothing_is_done() {
    let mut host = FakeHost::with_card("vfio-pci");
    host.process(611, "qhca\0up\0", &["/dev/vfio/26"]);
    let error = unbound(&mut host, ALL).expect_err("in use").to_string();
    assert_eq!(error, "it is in use: process 611 (qhca up) has /dev/vfio/26 open");

    let mut host = FakeHost::with_card("ib_qib");
    host.folder("/sys/bus/pci/devices/0000:04:00.0/infiniband_verbs/uverbs0");
    host.process(700, "opensm\0", &["/dev/infiniband/uverbs0"]);
    assert!(matches!(bound(&mut host, ALL), Err(BindError::InUse(holder)) if holder.pid == 700));

    let mut host = FakeHost::with_card("ib_qib");
    host.file("/sys/bus/pci/devices/0000:04:00.0/net/ib0/operstate", "up\n");
    assert!(matches!(bound(&mut host, ALL), Err(BindError::Interface { name }) if name == "ib0"));
    assert!(host.log().is_empty());
}

#[test]
fn persistence_is_three_files_of_ours_and_leaves_no_trace_when_undone() {
    let mut host = FakeHost::with_card("");
    bound(&mut host, ALL).expect("it binds");
    let rule = Reader::new(&host).text("/etc/udev/rules.d/70-qhca-0000:04:00.0.rules", 4096).expect("a rule");
    for part in ["KERNEL==\"0000:04:00.0\"", "ATTR{driver_override}=\"vfio-pci\"", "OWNER=\"1000\""] {
        assert!(rule.contains(part), "{rule}");
    }
    assert!(persist::is_kept(Reader::new(&host), BDF.parse().expect("an address")));
    // Another card keeps what both need.
    host.add_card("0000:05:00.0", None, Some(27));
    let other = Card::read(Reader::new(&host), "05:00.0".parse().expect("an address"));
    let steps = plan_bind(Reader::new(&host), &other, ALL).expect("a plan");
    bind(&mut host, &other, &steps, &mut |_| {}).expect("it binds");
    unbound(&mut host, ALL).expect("it is given back");
    assert!(host.stat("/etc/modules-load.d/qhca.conf").is_ok());
    let other = Card::read(Reader::new(&host), other.bdf);
    let steps = plan_unbind(Reader::new(&host), &other, ALL).expect("a plan");
    unbind(&mut host, &other, &steps, &mut |_| {}).expect("it is given back");
    for folder in ["/etc/udev/rules.d", "/etc/modprobe.d", "/etc/modules-load.d"] {
        assert!(host.list(folder).expect("a folder").is_empty(), "{folder}");
    }
}

#[test]
fn file_of_somebody_else_is_neither_overwritten_nor_removed() {
    let mut host = FakeHost::with_card("");
    host.file("/etc/modprobe.d/qhca.conf", "options vfio-pci ids=1077:7322\n");
    let error = bound(&mut host, ALL).expect_err("not ours").to_string();
    assert!(error.contains("/etc/modprobe.d/qhca.conf") && host.log().is_empty(), "{error}");
    bound(&mut host, Wish::default()).expect("it binds without");
    unbound(&mut host, ALL).expect("it is given back");
    assert!(host.stat("/etc/modprobe.d/qhca.conf").is_ok());
}

/// B123: a user without the right is told which order was refused.
#[test]
fn order_that_is_not_permitted_is_told_as_such() {
    let mut host = FakeHost::with_card("");
    host.fail_order(0, EPERM);
    assert!(bound(&mut host, Wish::default()).expect_err("refused").is_denied());
}

#[test]
fn group_that_is_not_viable_and_a_missing_iommu_are_remarked_on() {
    let mut host = FakeHost::with_card("");
    host.add_function("0000:04:00.1", "0x020000", Some("e1000e"), Some(26));
    let outcome = bound(&mut host, Wish::default()).expect("it binds");
    assert_eq!(outcome.remarks, ["group 26 is not viable: 0000:04:00.1 is driven by e1000e"]);
    let mut host = FakeHost::with_card("");
    host.remove("/sys/bus/pci/devices/0000:04:00.0/iommu_group");
    let outcome = bound(&mut host, Wish::default()).expect("it binds");
    assert!(outcome.remarks[0].contains("the IOMMU is off"), "{:?}", outcome.remarks);
}

#[test]
fn steps_print_as_what_one_would_type() {
    let host = FakeHost::with_card("ib_qib");
    let steps = plan_bind(Reader::new(&host), &card(&host), ALL).expect("a plan");
    let text: Vec<String> = steps.iter().map(Step::to_string).collect();
    assert_eq!(
        text,
        [
            "echo vfio-pci > /sys/bus/pci/devices/0000:04:00.0/driver_override",
            "echo 0000:04:00.0 > /sys/bus/pci/drivers/ib_qib/unbind",
            "echo 0000:04:00.0 > /sys/bus/pci/drivers_probe",
            "chown 1000 the nodes of 0000:04:00.0 below /dev/vfio; chmod 600",
            "write /etc/modules-load.d/qhca.conf",
            "write /etc/modprobe.d/qhca.conf",
            "write /etc/udev/rules.d/70-qhca-0000:04:00.0.rules",
        ]
    );
}

#[test]
fn failure_at_any_step_of_giving_back_leaves_everything_as_it_was() {
    let ready = || {
        let mut host = FakeHost::with_card("ib_qib");
        bound(&mut host, ALL).expect("it binds");
        host
    };
    let mut host = ready();
    let bind_orders = host.log().len();
    unbound(&mut host, ALL).expect("nothing fails");
    let total = host.log().len() - bind_orders;
    assert!(total >= 6, "the orders that can fail");
    for n in 0..total {
        let mut host = ready();
        let before = host.state();
        host.fail_order(n, EIO);
        let error = unbound(&mut host, ALL).expect_err("an order fails");
        assert!(error.to_string().contains("all is as it was"), "{n}: {error}");
        let nodes = |state: &str| state.replace("vfio1", "vfio0");
        assert_eq!(difference(&nodes(&before), &nodes(&host.state())), [""; 0], "{n}");
    }
}
