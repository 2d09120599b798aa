//! A card that is held: interrupts, notices, memory, resets, and any order of all of them.

use std::path::Path;

use super::super::fake::{ADDRESS, Fake, Fault, Machine, Open};
use super::super::*;
use super::{WAYS, open, opened, vector};
use crate::env::{Clock, DmaMapper, MapError};
use proptest::prelude::*;
use qhca_irq::{IrqSource, Wake};
use qhca_regs::{BAR_LEN_BYTES, Instant};

#[test]
fn vectors_are_enabled_in_one_request_and_heard() {
    for way in WAYS {
        let fake = Fake::new();
        let mut device = opened(&fake, &[way]);
        assert!(device.grant_vectors(Mode::MsiX, 0).is_err(), "none is no grant");
        assert_eq!(device.grant_vectors(Mode::MsiX, 12).expect("vectors"), 12);
        let enabled = fake.with(|machine| {
            let sets = machine.log.iter().filter(|line| line.contains("flags=0x24 index=2"));
            sets.cloned().collect::<Vec<_>>()
        });
        assert_eq!(enabled, ["VFIO_DEVICE_SET_IRQS flags=0x24 index=2 start=0 count=12"]);
        assert!(device.irq_source(&[vector(12)]).is_err(), "was not granted");
        let mut source = device.irq_source(&[vector(0), vector(11)]).expect("a source");
        fake.with(|machine| [0, 1, 11, 11].into_iter().for_each(|n| machine.card.fire(n)));
        assert_eq!(source.wait(None), Wake::Vectors([vector(0), vector(11)].into_iter().collect()));
        assert_eq!(source.wait(Some(Instant::ZERO)), Wake::Deadline);
        device.fire(vector(11)).expect("fired");
        assert_eq!(source.wait(None), Wake::Vectors([vector(11)].into_iter().collect()));
        // More than before, on a kernel that adds none: they are switched off first.
        assert_eq!(device.grant_vectors(Mode::MsiX, 32).expect("vectors"), 32);
        assert_eq!(device.grant_vectors(Mode::MsiX, 99).expect("vectors"), 32);
    }
}

/// B48: fewer vectors, none, and absurd numbers of them.
#[test]
fn vectors_that_there_are_are_granted_and_no_others() {
    let granted = |change: fn(&mut Machine), words: &[&str]| {
        let fake = Fake::but(change);
        let mut device = opened(&fake, words);
        let before = fake.with(|machine| machine.card.on.is_some());
        let granted = device.grant_vectors(Mode::MsiX, 12).ok();
        (granted, before)
    };
    assert_eq!(granted(|m| m.card.vectors[2] = 2048, &[]), (Some(12), false));
    assert_eq!(granted(|m| m.card.vectors[2] = u32::MAX, &[]), (Some(12), false));
    assert_eq!(granted(|m| m.card.vectors[2] = 5, &[]), (Some(5), false));
    assert_eq!(granted(|m| m.card.vectors[2] = 0, &[]), (None, false));
    assert_eq!(
        granted(|m| m.card.messages_free = 7, &[]),
        (Some(7), false),
        "the kernel says how many there are"
    );
    assert_eq!(granted(|m| m.card.messages_free = 0, &[]), (None, false));
    assert_eq!(granted(|_| {}, &["vectors=3"]), (Some(3), false));
    assert_eq!(granted(|_| {}, &["intx"]), (None, false), "only what was asked for");
}

/// B48: a descriptor that cannot be had in the middle leaves nothing, and the next attempt works.
#[test]
fn vectors_without_descriptors_are_an_error_and_nothing_is_left() {
    // Two went to ERR and REQ.
    let fault = Fault { call: "eventfd", nth: 2 + 5, errno: libc::EMFILE };
    let fake = Fake::but(|machine| machine.faults.push(fault));
    let mut device = opened(&fake, &[]);
    assert!(device.grant_vectors(Mode::MsiX, 12).is_err());
    assert!(fake.with(|machine| machine.card.on.is_none()));
    assert_eq!(device.grant_vectors(Mode::MsiX, 12).expect("vectors"), 12);
}

#[test]
fn interrupt_line_fires_once_for_each_unmask() {
    let fake = Fake::but(|machine| (machine.card.vectors[1], machine.card.vectors[2]) = (0, 0));
    let mut device = opened(&fake, &[]);
    let grant = qhca_irq::plan::negotiate(12, |mode, wanted| device.grant_vectors(mode, wanted).ok());
    assert_eq!(grant, Some(qhca_irq::Grant::Intx));
    assert_eq!(device.granted(), (Mode::Intx, 1));
    let mut source = device.irq_source(&[vector(0)]).expect("a source");
    let fires = |fake: &Fake| fake.with(|machine| machine.card.fire(0));
    for _ in 0..3 {
        fires(&fake);
        fires(&fake);
        assert_eq!(source.wait(None), Wake::Vectors([vector(0)].into_iter().collect()));
        fires(&fake);
        assert_eq!(source.wait(Some(Instant::ZERO)), Wake::Deadline, "it is masked until it is unmasked");
        device.unmask_line();
    }
    let only_msi = Fake::but(|machine| machine.card.vectors[2] = 0);
    let mut device = opened(&only_msi, &[]);
    let grant = qhca_irq::plan::negotiate(12, |mode, wanted| device.grant_vectors(mode, wanted).ok());
    assert_eq!(grant, Some(qhca_irq::Grant::Msi));
    // From messages to the line, as when none arrives.
    assert_eq!(device.grant_vectors(Mode::Intx, 1).expect("the line"), 1);
}

/// B132, B141: the kernel wants the card back: whoever waits is woken, and is told once.
#[test]
fn request_to_give_the_card_back_wakes_whoever_waits() {
    for (place, notice) in [(1, Notice::WantedBack), (0, Notice::BusError)] {
        let fake = Fake::new();
        let mut device = opened(&fake, &[]);
        let raise = |fake: &Fake| {
            fake.with(|machine| machine.card.notices[place].as_ref().expect("heard").signal());
        };
        // Without a source, as in a device that is polled.
        assert_eq!(device.notice(), None);
        raise(&fake);
        assert_eq!((device.notice(), device.notice()), (Some(notice), None));
        device.grant_vectors(Mode::MsiX, 2).expect("vectors");
        let mut source = device.irq_source(&[vector(0)]).expect("a source");
        raise(&fake);
        assert_eq!(source.wait(None), Wake::Vectors(qhca_irq::VectorSet::EMPTY));
        assert_eq!((device.notice(), device.notice()), (Some(notice), None));
        device.give_back();
        device.give_back();
        assert!(device.reset().is_err() && device.grant_vectors(Mode::MsiX, 1).is_err());
        assert!(device.mapper().map(4096).is_err());
        device.unmask_line();
        assert_eq!(fake.left_open(), Vec::<&str>::new());
    }
}

/// B116, B147: addresses come from the ranges, and are free again afterwards.
#[test]
fn memory_is_mapped_inside_the_ranges_until_they_are_used_up() {
    for way in WAYS {
        let fake = Fake::but(|machine| {
            machine.ranges = Some(vec![(0, 0xFEDF_FFFF), (1 << 32, (1 << 32) + 0x3FFF)]);
            machine.memlock = None;
        });
        let device = opened(&fake, &[way]);
        let mut mapper = device.mapper();
        let high: Vec<_> = (0..4).map(|_| mapper.map(4096).expect("memory")).collect();
        assert!(high.iter().all(|region| region.iova() >= 1 << 32));
        let low = mapper.map(4096).expect("memory");
        assert_eq!(low.iova(), 1 << 16);
        drop(high);
        assert_eq!(mapper.map(0x4000).expect("memory").iova(), 1 << 32);
        assert_eq!(mapper.in_use(), (4096, 1));
        assert!(matches!(mapper.map(usize::MAX), Err(MapError::NoMemory { .. })));
    }
}

/// B111, B114: the limit is told with what is needed, before the kernel is asked, and nothing stays pinned.
#[test]
fn memory_past_the_limit_is_refused_with_both_numbers() {
    let limited = |limit| Fake::but(|machine| machine.memlock = limit);
    let fake = limited(Some(64 << 10));
    let device = opened(&fake, &["group"]);
    let mut mapper = device.mapper();
    let held = mapper.map(60 << 10).expect("memory");
    let error = mapper.map(8 << 10).expect_err("too much");
    let told = error.to_string();
    assert!(told.contains("ulimit -l 68") && told.contains("65536 bytes"), "{told}");
    assert!(!fake.with(|machine| machine.log.iter().filter(|line| line.contains("MAP_DMA")).count() > 1));
    drop(held);
    assert!(mapper.map(64 << 10).is_ok());
    assert_eq!(mapper.in_use(), (0, 0));
    // Unlimited, and with the right to pass the limit.
    for fake in [limited(None), limited(Some(u64::MAX))] {
        assert!(opened(&fake, &[]).mapper().map(8 << 20).is_ok());
    }
    let root = Fake::but(|machine| {
        let status = b"CapEff:\t000001ffffffffff\n".to_vec();
        machine.texts.insert("/proc/self/status".into(), status);
    });
    assert_eq!(opened(&root, &[]).mapper().limit_bytes(), None);
    // The kernel counts more than we do: its refusal is told alike.
    let fault = Fault { call: "VFIO_IOMMU_MAP_DMA", nth: 0, errno: libc::ENOMEM };
    let fake = Fake::but(|machine| machine.faults.push(fault));
    let error = opened(&fake, &["group"]).mapper().map(4096).expect_err("refused");
    assert!(matches!(error, MapError::MemlockLimit { .. }), "{error}");
}

/// B112, B113, B115: a refused mapping is undone whole, and tells address, length and errno.
#[test]
fn refused_mapping_leaves_nothing_and_the_next_works() {
    for (way, call) in [("group", "VFIO_IOMMU_MAP_DMA"), ("cdev", "IOMMU_IOAS_MAP")] {
        for errno in [libc::EAGAIN, libc::EEXIST, libc::EFAULT, libc::ENOSPC] {
            let fault = Fault { call, nth: 1, errno };
            let fake = Fake::but(|machine| machine.faults.push(fault));
            let device = opened(&fake, &[way]);
            let mut mapper = device.mapper();
            let first = mapper.map(4096).expect("memory");
            let error = mapper.map(8192).expect_err("refused");
            assert!(
                matches!(error, MapError::Refused { len_bytes: 8192, iova, .. } if iova == first.iova() + 4096)
            );
            assert_eq!(mapper.in_use(), (4096, 1));
            assert_eq!(mapper.map(8192).expect("memory").iova(), first.iova() + 4096);
        }
    }
    let few = Fake::but(|machine| machine.maps_max = 2);
    let device = opened(&few, &["group"]);
    let mut mapper = device.mapper();
    let held = [mapper.map(4096).expect("memory"), mapper.map(4096).expect("memory")];
    assert!(matches!(mapper.map(4096), Err(MapError::TooManyMaps { limit: 2 })));
    drop(held);
    assert!(mapper.map(4096).is_ok());
}

/// B107, B108: the card's memory is shared and consists of pages of its own, so that a fork neither copies it nor takes
/// a neighbour along.
#[test]
fn memory_of_the_card_is_shared_whole_pages() {
    let device = opened(&Fake::new(), &[]);
    let region = device.mapper().map(2048).expect("memory");
    let (start, len) = (region.memory().address(), region.len_bytes());
    let maps = std::fs::read_to_string("/proc/self/maps").expect("a list of mappings");
    let line = maps.lines().find(|line| line.starts_with(&format!("{start:x}-{:x} ", start + len)));
    assert!(line.is_some_and(|line| line.contains(" rw-s ")), "{line:?}");
}

/// Who waits for interrupts that do not come uses no processor time to speak of.
#[test]
fn waiting_costs_less_than_a_hundredth_of_a_core() {
    const SPAN_NS: u64 = 300_000_000;
    let on_cpu_ns = || {
        let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("the scheduler's account");
        stat.split_whitespace().next().and_then(|ns| ns.parse::<u64>().ok()).expect("a number")
    };
    let mut device = opened(&Fake::new(), &[]);
    device.grant_vectors(Mode::MsiX, 12).expect("vectors");
    let mut source = device.irq_source(&[vector(0), vector(1)]).expect("a source");
    let before = on_cpu_ns();
    let until = device.clock().now() + qhca_regs::Duration::from_nanos(SPAN_NS);
    assert_eq!(source.wait(Some(until)), Wake::Deadline);
    assert!(on_cpu_ns() - before < SPAN_NS / 100);
}

/// An address whose unmap failed is not given to anybody else.
#[test]
fn address_that_could_not_be_unmapped_is_not_used_again() {
    let fault = Fault { call: "VFIO_IOMMU_UNMAP_DMA", nth: 0, errno: libc::EINVAL };
    let fake = Fake::but(|machine| machine.faults.push(fault));
    let device = opened(&fake, &["group"]);
    let mut mapper = device.mapper();
    let iova = mapper.map(4096).expect("memory").iova();
    assert_eq!(mapper.map(4096).expect("memory").iova(), iova + 4096);
}

/// B124: without an IOMMU there are registers and interrupts, and DMA is refused with the reason.
#[test]
fn card_without_an_iommu_has_registers_and_interrupts_only() {
    let fake = Fake::new().without_iommu();
    let mut device = opened(&fake, &["noiommu"]);
    assert_eq!(device.bar().read(0), 0x0201_0602);
    assert_eq!(device.grant_vectors(Mode::MsiX, 2).expect("vectors"), 2);
    let error = device.mapper().map(4096).expect_err("no DMA");
    assert!(matches!(error, MapError::NoIommu { len_bytes: 4096 }) && error.to_string().contains("no IOMMU"));
    drop(device);
    assert_eq!(fake.left_open(), Vec::<&str>::new());
}

#[test]
fn card_that_sleeps_is_woken_and_one_that_does_not_wake_is_told() {
    let fake = Fake::but(|machine| machine.card.config[0x44] = 3);
    drop(opened(&fake, &[]));
    assert_eq!(fake.with(|machine| machine.card.config[0x44]), 0);
    let stuck = Fault { call: "pwrite", nth: 0, errno: libc::EIO };
    let fake = Fake::but(|machine| (machine.card.config[0x44], machine.faults) = (3, vec![stuck]));
    assert!(matches!(open(&fake, &[]), Err(VfioError::Call { call: "pwrite", .. })));
}

/// The chip's own reset: MSI-X off before; the command register gives the BARs back, and the read request size returns.
#[test]
fn card_that_reset_itself_gets_its_place_its_vectors_and_its_sizes_back() {
    let fake = Fake::new();
    let mut device = opened(&fake, &[]);
    let bar = device.bar();
    device.grant_vectors(Mode::MsiX, 4).expect("vectors");
    let control = fake.with(|machine| machine.card.device_control());
    device.before_chip_reset().expect("ready");
    assert!(fake.with(|machine| machine.card.on.is_none()), "MSI-X is off");
    fake.with(|machine| machine.card.reset_itself());
    device.restore_after_chip_reset().expect("restored");
    assert_eq!(bar.read(0), 0x0201_0602);
    assert!(fake.with(|machine| machine.card.masters()));
    let [payload, read_request] = fake.with(|machine| machine.card.device_control());
    assert_eq!((payload, read_request), (0, control[1]), "the payload's half is the kernel's");
    // A reset that nobody announced: the vectors are written again.
    device.grant_vectors(Mode::MsiX, 4).expect("vectors");
    let before = fake.with(|machine| machine.log.len());
    fake.with(|machine| machine.card.reset_itself());
    device.restore_after_chip_reset().expect("restored");
    let sets =
        fake.with(|machine| machine.log[before..].iter().filter(|line| line.contains("SET_IRQS")).count());
    assert_eq!(sets, 2);
}

/// Of `pcie_caps` the read request's half has an effect, and only upwards (F-824).
#[test]
fn read_requests_are_raised_and_never_lowered() {
    let fake = Fake::new();
    let mut device = opened(&fake, &[]);
    let [payload, _] = fake.with(|machine| machine.card.device_control());
    for (code, bytes) in [(1, 512), (2, 512), (3, 1024), (0, 1024), (5, 4096), (7, 4096)] {
        assert_eq!(device.raise_read_request(code).expect("set"), Some(bytes));
    }
    assert_eq!(fake.with(|machine| machine.card.device_control()[0]), payload);
    let plain = Fake::but(|machine| machine.card.config[0x60] = 0);
    assert_eq!(opened(&plain, &[]).raise_read_request(5).expect("nothing to do"), None);
}

/// B137: a bus with others on it is left alone; alone, its reset is the card's.
#[test]
fn bus_is_reset_only_if_the_card_is_alone_on_it() {
    for way in WAYS {
        let alone = Fake::but(|machine| machine.card.can_reset = false);
        let mut device = opened(&alone, &[way]);
        assert_eq!(device.reset().expect("reset"), ResetKind::Bus);
        let crowded = Fake::but(|machine| {
            machine.card.can_reset = false;
            machine.card.on_bus = (0..40).map(|devfn| (4, devfn)).collect();
        });
        match open(&crowded, &[way]) {
            Err(VfioError::ResetReachesOthers { others }) => {
                assert_eq!((others.len(), others[0].as_str()), (39, "0000:04:00.1"));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(crowded.with(|machine| machine.card.resets), 0);
        assert!(!crowded.with(|machine| machine.log.iter().any(|line| line.ends_with("PCI_HOT_RESET"))));
    }
}

#[test]
fn reset_is_asked_for_again_while_the_kernel_cannot_lock_the_device() {
    let fake = Fake::but(|machine| machine.card.locked_for = 3);
    let mut device = opened(&fake, &[]);
    assert_eq!(device.reset().expect("reset"), ResetKind::Function);
    let by_bus = Fake::but(|machine| {
        let path = Path::new("/sys/bus/pci/devices").join(ADDRESS).join("reset_method");
        machine.texts.insert(path, b"bus\n".to_vec());
    });
    assert_eq!(opened(&by_bus, &[]).reset().expect("reset"), ResetKind::Bus, "the kernel's own way");
}

/// The MSI-X table is mapped by nobody, whatever the kernel allows (B126).
#[test]
fn table_of_the_vectors_is_not_reached() {
    let fake = Fake::new();
    let device = opened(&fake, &[]);
    let bar = device.bar();
    bar.write(0x8000, 7);
    assert_eq!((bar.read(0x8000), bar.read(0x81F8)), (0, 0));
    assert!(fake.with(|machine| !machine.card.registers.contains_key(&0x8000)));
    bar.write(0x7FF8, 7);
    bar.write(BAR_LEN_BYTES - 8, 9);
    assert_eq!((bar.read(0x7FF8), bar.read(BAR_LEN_BYTES - 8)), (7, 9));
    let sparse = Fake::but(|machine| {
        machine.card.sparse = Some(vec![(0, 0x8000), (0x9000, u64::from(BAR_LEN_BYTES) - 0x9000)]);
    });
    assert_eq!(opened(&sparse, &[]).bar().read(0), 0x0201_0602);
}

/// A second kernel interface on the same fake: the group that is open keeps the own node from being used.
#[test]
fn open_files_are_what_the_way_needs() {
    for (way, wanted) in
        [("group", vec!["container", "device", "group"]), ("cdev", vec!["device", "iommufd"])]
    {
        let fake = Fake::new();
        let _device = opened(&fake, &[way]);
        let mut open = fake.left_open();
        open.sort_unstable();
        assert_eq!(open, wanted);
        let attached = fake.with(|machine| {
            machine.open.values().any(|open| matches!(open, Open::Device { attached: Some(_), .. }))
        });
        assert_eq!(attached, way == "cdev");
    }
}

#[test]
fn vectors_are_pinned_and_their_places_told() {
    let fake = Fake::new();
    fake.with(|machine| {
        let list =
            "28: 0 0 IR-PCI-MSIX 0-edge vfio-msix[0](0000:04:00.0)\n29: 0 0 x vfio-msix[1](0000:04:00.0)\n";
        machine.texts.insert("/proc/interrupts".into(), list.into());
        machine.texts.insert("/proc/irq/28/smp_affinity_list".into(), "0-3".into());
        machine.texts.insert("/proc/irq/29/effective_affinity_list".into(), "5".into());
        machine.links.insert("/sys/devices/system/cpu/cpu5/node1".into(), "x".into());
    });
    let device = opened(&fake, &[]);
    let places: Vec<String> = device.vector_places().iter().map(ToString::to_string).collect();
    assert_eq!(places, ["vector 0: interrupt 28, CPU 0-3", "vector 1: interrupt 29, CPU 5, node 1"]);
    let error = device.pin_vectors(&[2, 3]).expect_err("the second may not be written");
    assert!(error.to_string().contains("/proc/irq/29/smp_affinity_list does not take CPU 3"), "{error}");
    assert_eq!(device.vector_places()[0].cpus, "2");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is done with a card, in whatever order: nothing panics, no rule is broken twice, and at the end nothing
    /// is left.
    #[test]
    fn any_order_of_use_ends_with_nothing_left(
        own: bool,
        interrupts: bool,
        steps in prop::collection::vec((0_u8..9, 0_usize..40), 0..60),
    ) {
        let fake = Fake::but(|machine| machine.interrupts = interrupts);
        let mut device = opened(&fake, &[WAYS[usize::from(own)]]);
        let (mut regions, mut bars, mut sources) = (Vec::new(), Vec::new(), Vec::new());
        for (step, n) in steps {
            match step {
                0 => regions.extend(device.mapper().map(n * 1000).ok()),
                1 if !regions.is_empty() => drop(regions.swap_remove(n % regions.len())),
                2 => drop(device.grant_vectors(Mode::FALLBACK_ORDER[n % 3], n)),
                3 => sources.extend(Vector::new(n).and_then(|vector| device.irq_source(&[vector]).ok())),
                4 => drop(device.reset()),
                5 => bars.push(device.bar()),
                6 => bars.iter().for_each(|bar| bar.write(8 * n as u32, bar.read(0))),
                7 => device.unmask_line(),
                8 if n == 0 => device.give_back(),
                _ => drop(device.notice()),
            }
        }
        let mapped = fake.with(|machine| {
            machine.open.values().map(|open| match open {
                Open::Container { space, .. } => space.maps.len(),
                Open::Iommufd { spaces } => spaces.values().map(|space| space.maps.len()).sum(),
                _ => 0,
            }).sum::<usize>()
        });
        prop_assert!(mapped == regions.len() || fake.left_open().is_empty());
        drop(device);
        prop_assert_eq!(fake.left_open(), Vec::<&str>::new());
    }
}
