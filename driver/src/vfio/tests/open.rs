//! Opening in both ways, every refusal, the second opener, a failure at every call, and giving back.

use std::path::Path;

use super::super::fake::{ADDRESS, Fake, Fault, GROUP_NODE, Machine, OWN_NODE};
use super::super::*;
use super::{WAYS, open, opened};
use crate::env::DmaMapper;
use qhca_regs::GONE;

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
        move |machine: &mut Machine| {
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
fn spoil(machine: &mut Machine) {
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
