//! The back end on a kernel that keeps VFIO's rules: opening in both ways, every refusal, interrupts, memory, resets,
//! and giving back.

use super::fake::{ADDRESS, Fake, Fault, GROUP_NODE, OWN_NODE, Open};
use super::*;
use crate::env::{DmaMapper, MapError};
use proptest::prelude::*;
use qhca_irq::{IrqSource, Wake};
use qhca_regs::{BAR_LEN_BYTES, GONE, Instant};
use std::path::Path;

fn settings(words: &[&str]) -> VfioSettings {
    let mut settings = VfioSettings::default();
    assert!(words.iter().all(|word| settings.set(word)));
    settings
}

fn address() -> PciAddress {
    ADDRESS.parse().expect("an address")
}

fn open(fake: &Fake, words: &[&str]) -> Result<VfioDevice<Fake>, VfioError> {
    VfioDevice::open_on(fake.clone(), address(), settings(words))
}

fn opened(fake: &Fake, words: &[&str]) -> VfioDevice<Fake> {
    open(fake, words).unwrap_or_else(|error| panic!("{error}"))
}

fn vector(n: usize) -> Vector {
    Vector::new(n).expect("a vector")
}

const WAYS: [&str; 2] = ["group", "cdev"];

/// B117, B130: open, map, close and open again, by both ways: everything is set up anew, and nothing is left.
#[test]
fn card_is_opened_used_given_back_and_opened_again() {
    for way in WAYS {
        let fake = Fake::new();
        for _ in 0..3 {
            let mut device = opened(&fake, &[way]);
            let region = device.mapper().map(10_000).expect("memory");
            assert_eq!(region.len_bytes(), 12_288);
            assert_eq!(device.bar().read(0), 0x0201_0602);
            assert_eq!(device.grant_vectors(Mode::MsiX, 12).expect("vectors"), 12);
            assert!(fake.with(|machine| machine.card.masters()));
            drop((region, device));
            assert_eq!(fake.left_open(), Vec::<&str>::new(), "{way}");
            assert!(!fake.with(|machine| machine.card.masters()));
        }
        // One reset at each open, one at each close.
        assert_eq!(fake.with(|machine| machine.card.resets), 6);
    }
}

#[test]
fn own_node_is_preferred_and_the_group_is_the_way_without_it() {
    let way_of = |fake: &Fake| {
        let _device = opened(fake, &[]);
        fake.with(|machine| machine.count("iommufd"))
    };
    assert_eq!(way_of(&Fake::new()), 1);
    for missing in [OWN_NODE, "/dev/iommu"] {
        let fake = Fake::but(|machine| {
            machine.nodes.remove(Path::new(missing));
        });
        assert_eq!(way_of(&fake), 0, "{missing}");
        assert!(matches!(open(&fake, &["cdev"]), Err(VfioError::NoNode { .. })));
        assert_eq!(fake.left_open(), Vec::<&str>::new());
    }
    let old = Fake::but(|machine| machine.texts.retain(|path, _| !path.ends_with("vfio0/dev")));
    assert_eq!(way_of(&old), 0);
}

/// B21, B119, B121, B122, B123, B124, B125: each broken machine has its own error, with what mends it, and a failed
/// open leaves nothing open.
#[test]
fn each_broken_machine_has_its_own_error() {
    type Check = fn(&VfioError) -> bool;
    let device = |name: &str| Path::new("/sys/bus/pci/devices").join(ADDRESS).join(name);
    let node = |path: &str, errno: Option<i32>| {
        let path = path.to_owned();
        move |machine: &mut super::fake::Machine| {
            match errno {
                Some(errno) => machine.nodes.insert(path.clone().into(), Some(errno)),
                None => machine.nodes.remove(Path::new(&path)),
            };
        }
    };
    let cases: Vec<(&str, &str, Fake, Check)> = vec![
        ("no such card", "group", Fake::but(|m| m.texts.retain(|path, _| !path.ends_with("vendor"))), |e| {
            matches!(e, VfioError::NoDevice { .. })
        }),
        (
            "another driver",
            "group",
            Fake::but(|m| drop(m.links.insert(device("driver"), "x/ib_qib".into()))),
            |e| matches!(e, VfioError::NotBound { driver: Some(driver), .. } if driver == "ib_qib"),
        ),
        ("no driver", "group", Fake::but(|m| drop(m.links.remove(&device("driver")))), |e| {
            matches!(e, VfioError::NotBound { driver: None, .. })
        }),
        ("no group", "group", Fake::but(|m| drop(m.links.remove(&device("iommu_group")))), |e| {
            matches!(e, VfioError::NoGroup { .. })
        }),
        (
            "no node",
            "group",
            Fake::but(node(GROUP_NODE, None)),
            |e| matches!(e, VfioError::NoNode { path } if path == Path::new(GROUP_NODE)),
        ),
        (
            "no container",
            "group",
            Fake::but(node("/dev/vfio/vfio", None)),
            |e| matches!(e, VfioError::NoNode { path } if path.ends_with("vfio/vfio")),
        ),
        (
            "no right",
            "group",
            Fake::but(node(GROUP_NODE, Some(libc::EACCES))),
            |e| matches!(e, VfioError::Permission { path, .. } if path == Path::new(GROUP_NODE)),
        ),
        (
            "no right",
            "cdev",
            Fake::but(node(OWN_NODE, Some(libc::EACCES))),
            |e| matches!(e, VfioError::Permission { path, .. } if path == Path::new(OWN_NODE)),
        ),
        ("not viable", "group", Fake::but(spoil), |e| {
            matches!(e, VfioError::NotViable { group: 12, spoilers } if spoilers.len() == 1
                && spoilers[0].to_string() == "0000:04:00.1 (driver ahci)")
        }),
        ("no type 1", "group", Fake::but(|m| m.kinds.clear()), |e| matches!(e, VfioError::NoType1)),
        ("other interface", "group", Fake::but(|m| m.api_version = 7), |e| {
            matches!(e, VfioError::ApiVersion { seen: 7 })
        }),
        ("no remapping", "group", Fake::but(|m| m.remaps_interrupts = false), |e| {
            matches!(e, VfioError::NoInterruptRemapping { command: Command::SetIommu, .. })
        }),
        ("no remapping", "cdev", Fake::but(|m| m.remaps_interrupts = false), |e| {
            matches!(e, VfioError::NoInterruptRemapping { command: Command::AttachPt, module: "iommufd" })
        }),
        ("no answer", "group", Fake::but(|m| m.card.config = [0xFF; 256]), |e| {
            matches!(e, VfioError::NoAnswer { .. })
        }),
        ("another chip", "cdev", Fake::but(|m| m.card.config[2] = 0x20), |e| {
            matches!(e, VfioError::NotThisDevice { seen: 0x7320_1077, .. })
        }),
        ("no registers", "group", Fake::but(|m| m.card.bar_len = 0), |e| {
            matches!(e, VfioError::Window(WindowError::Length { seen: 0, .. }))
        }),
        ("endless registers", "cdev", Fake::but(|m| m.card.bar_len = u64::MAX), |e| {
            matches!(e, VfioError::Window(WindowError::Length { .. }))
        }),
        ("unmappable", "group", Fake::but(|m| m.card.bar_flags = 3), |e| {
            matches!(e, VfioError::Window(WindowError::Access { mappable: false, .. }))
        }),
        ("no area", "group", Fake::but(|m| m.card.sparse = Some(vec![])), |e| {
            matches!(e, VfioError::Window(WindowError::NotMappable { at: 0 }))
        }),
        ("one region", "group", Fake::but(|m| m.card.regions = 1), |e| {
            matches!(e, VfioError::Answer { command: Command::DeviceInfo, .. })
        }),
        ("no regions", "group", Fake::but(|m| m.card.regions = 0), |e| {
            matches!(e, VfioError::Answer { command: Command::DeviceInfo, .. })
        }),
        ("no IOMMU", "group", Fake::new().without_iommu(), |e| matches!(e, VfioError::NoIommuRefused { .. })),
    ];
    for (what, way, fake, is_right) in cases {
        let error = open(&fake, &[way]).err().unwrap_or_else(|| panic!("{what}: opened"));
        assert!(is_right(&error), "{what}: {error:?}");
        assert!(!error.to_string().is_empty() && error.remedy().len() > 10, "{what}");
        assert_eq!(fake.left_open(), Vec::<&str>::new(), "{what}");
    }
}

/// A disk controller and a bridge beside the card.
fn spoil(machine: &mut super::fake::Machine) {
    machine.viable = false;
    let members = Path::new("/sys/kernel/iommu_groups/12/devices");
    let devices = Path::new("/sys/bus/pci/devices");
    for (name, driver, class) in
        [("0000:04:00.1", "ahci", "0x010601"), ("0000:00:1c.0", "shpchp", "0x060400")]
    {
        machine.links.insert(members.join(name), "x".into());
        machine.links.insert(devices.join(name).join("driver"), Path::new("drivers").join(driver));
        machine.texts.insert(devices.join(name).join("class"), class.into());
    }
}

/// B120: the second opener is told who has the card, and the first goes on unharmed.
#[test]
fn second_opener_is_told_the_holder() {
    for (first, second, node) in [
        ("group", "group", GROUP_NODE),
        ("cdev", "cdev", OWN_NODE),
        ("group", "cdev", OWN_NODE),
        ("cdev", "group", GROUP_NODE),
    ] {
        let fake = Fake::new();
        let device = opened(&fake, &[first]);
        let left = fake.left_open();
        let unknown = open(&fake, &[second]).expect_err("in use");
        assert!(
            matches!(unknown, VfioError::Busy { holder: None, .. } | VfioError::Call { .. }),
            "{unknown:?}"
        );
        fake.with(|machine| {
            machine.texts.insert("/proc/4711/cmdline".into(), b"qhca\0up\0-d\0vfio:04:00.0\0".to_vec());
            machine.links.insert("/proc/4711/fd/7".into(), node.into());
            machine.links.insert("/proc/4712/fd/7".into(), "/dev/null".into());
        });
        let error = open(&fake, &[second]).expect_err("in use");
        let told = error.to_string();
        assert!(told.contains("process 4711 (qhca up -d vfio:04:00.0)") && told.contains(node), "{told}");
        assert_eq!(fake.left_open(), left, "{first} then {second}");
        assert_eq!(device.bar().read(0), 0x0201_0602);
    }
}

/// B16: a signal at every call changes nothing.
#[test]
fn every_call_may_be_interrupted() {
    for way in WAYS {
        let fake = Fake::but(|machine| machine.interrupts = true);
        let mut device = opened(&fake, &[way]);
        let region = device.mapper().map(4096).expect("memory");
        device.grant_vectors(Mode::MsiX, 3).expect("vectors");
        device.reset().expect("reset");
        drop((region, device));
        assert_eq!(fake.left_open(), Vec::<&str>::new());
    }
}

/// B120, B131, B48: whichever call fails, the failed open leaves no file open, and the next one works.
#[test]
fn open_that_fails_at_any_call_leaves_nothing_and_the_next_works() {
    for way in WAYS {
        let calls = Fake::new();
        drop(opened(&calls, &[way]));
        let mut names: Vec<String> = calls.with(|machine| machine.log.clone());
        names.iter_mut().for_each(|line| line.truncate(line.find(' ').unwrap_or(line.len())));
        names.sort_unstable();
        names.dedup();
        let mut failed = 0;
        for name in names.iter().filter(|name| !["close", "munmap"].contains(&name.as_str())) {
            // Names are a few dozen, and a test may leak them.
            let call: &'static str = name.clone().leak();
            for nth in 0..40 {
                let fault = Fault { call, nth, errno: libc::EIO };
                let fake = Fake::but(|machine| machine.faults.push(fault));
                match open(&fake, &[way]) {
                    Ok(device) => drop(device),
                    Err(error) => {
                        failed += 1;
                        assert!(!error.remedy().is_empty());
                    }
                }
                assert_eq!(fake.left_open(), Vec::<&str>::new(), "{way}: {call} {nth}");
                fake.with(|machine| machine.faults.clear());
                drop(opened(&fake, &[way]));
            }
        }
        assert!(failed > 15, "{way}: {failed}");
    }
}

/// B129: interrupts, bus master, reset, memory, window, device, group, container: in this order, whoever drops first.
#[test]
fn card_is_given_back_in_the_one_right_order() {
    let places = |log: &[String], begun: usize, wanted: &[&str]| -> Vec<usize> {
        let find = |what: &&str| log[begun..].iter().position(|line| line.starts_with(*what));
        wanted.iter().map(|what| find(what).unwrap_or_else(|| panic!("{what} in {log:#?}"))).collect()
    };
    let order: [(&str, &[&str]); 2] = [
        (
            "group",
            &[
                "VFIO_DEVICE_SET_IRQS",
                "pwrite",
                "VFIO_DEVICE_RESET",
                "VFIO_IOMMU_UNMAP_DMA",
                "mremap",
                "close device",
                "VFIO_GROUP_UNSET_CONTAINER",
                "close group",
                "close container",
            ],
        ),
        (
            "cdev",
            &[
                "VFIO_DEVICE_SET_IRQS",
                "pwrite",
                "VFIO_DEVICE_RESET",
                "IOMMU_IOAS_UNMAP",
                "mremap",
                "VFIO_DEVICE_DETACH_IOMMUFD_PT",
                "close device",
                "close iommufd",
            ],
        ),
    ];
    for (way, wanted) in order {
        for who in 0..3 {
            let fake = Fake::new();
            let mut device = opened(&fake, &[way]);
            device.grant_vectors(Mode::MsiX, 4).expect("vectors");
            let (region, bar, mapper) =
                (device.mapper().map(4096).expect("memory"), device.bar(), device.mapper());
            let begun = fake.with(|machine| machine.log.len());
            match who {
                0 => drop(device),
                1 => device.give_back(),
                _ => drop((std::thread::spawn(move || panic!("{:?}", device)).join(), ())),
            }
            let log = fake.with(|machine| machine.log.clone());
            let at = places(&log, begun, wanted);
            assert!(at.is_sorted(), "{way} {who}: {:#?}", &log[begun..]);
            assert_eq!(fake.left_open(), Vec::<&str>::new(), "memory and windows do not keep the card");
            assert_eq!(bar.read(0), GONE);
            bar.write(8, 1);
            // What is dropped later finds nothing to undo.
            drop((region, bar, mapper));
            assert!(!fake.with(|machine| machine.log[log.len()..].iter().any(|line| line.contains("UNMAP"))));
            drop(opened(&fake, &[way]));
        }
    }
}

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
    let granted = |change: fn(&mut super::fake::Machine), words: &[&str]| {
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
