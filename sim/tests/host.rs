//! The host around a chip: what is mapped is reached, what is not is refused and recorded, and no wake-up is lost.

mod common;

use common::pair;
use proptest::prelude::*;
use qhca_driver::dma::DmaMemory;
use qhca_driver::env::{Backend, Clock, DmaMapper, IOVA_LIMIT};
use qhca_irq::plan::Mode;
use qhca_irq::{IrqSource, Wake};
use qhca_regs::map::device;
use qhca_regs::status::{ErrBits, IntBits};
use qhca_regs::{Duration, Vector};
use qhca_sim::backend::SimWorld;
use qhca_sim::chip::{Config, Host, Injection};
use qhca_sim::fabric::CableConfig;
use qhca_sim::host::{HostMemory, MAX_REFUSALS};
use qhca_sim::vtime::Seed;
use std::sync::Arc;

fn memory(pages: usize) -> Arc<DmaMemory> {
    Arc::new(DmaMemory::new(pages * 4096).expect("memory for a test"))
}

#[test]
fn an_access_over_the_end_of_a_mapping_writes_nothing_and_is_recorded() {
    let mut host = HostMemory::new(Seed(1), "test", 0x10_0000);
    let (first, second) = (memory(1), memory(1));
    let at = host.map(first.clone()).expect("room");
    host.map(second.clone()).expect("room");
    assert!(host.dma_write(at + 4092, &[0xFF; 8]).is_err());
    assert!(host.dma_publish(at + 4, 7).is_err(), "a qword is published whole, or not at all");
    assert!(host.dma_read(at + 8192 + 4096, &mut [0; 4]).is_err());
    assert!((0..512).all(|word| first.load_u64(word * 8) == 0 && second.load_u64(word * 8) == 0));
    let recorded: Vec<_> = host.refusals().map(|it| (it.iova - at, it.len_bytes, it.is_write)).collect();
    assert_eq!(recorded, [(4092, 8, true), (4, 8, true), (12288, 4, false)]);
}

#[test]
fn the_record_of_refusals_is_bounded_and_the_count_is_not() {
    let mut host = HostMemory::new(Seed(1), "test", 0x10_0000);
    for n in 0..1000 {
        assert!(host.dma_write(n, &[0]).is_err());
    }
    assert_eq!((host.refused(), host.refusals().count()), (1000, MAX_REFUSALS));
    assert_eq!(host.refusals().last().map(|it| it.iova), Some(999));
}

#[test]
fn addresses_stay_below_what_the_chip_can_hold_and_are_never_used_twice() {
    let mut host = HostMemory::new(Seed(1), "test", IOVA_LIMIT - 4 * 4096);
    let first = host.map(memory(1)).expect("room for one");
    assert!(host.unmap(first) && !host.unmap(first));
    let second = host.map(memory(1)).expect("room for another");
    assert!(second > first);
    assert_eq!(host.map(memory(1)), None, "what is left above is no room");
}

#[derive(Clone, Debug)]
enum Deed {
    Map(usize),
    Unmap(usize),
    Write { map: usize, offset: i64, len: usize },
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let deed = prop_oneof![
        2 => (1usize..4).prop_map(Deed::Map),
        1 => (0usize..12).prop_map(Deed::Unmap),
        6 => (0usize..12, -64i64..3 * 4096 + 64, 0usize..300)
            .prop_map(|(map, offset, len)| Deed::Write { map, offset, len }),
    ];
    prop::collection::vec(deed, 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Against a plain list of ranges: an access succeeds exactly if one live mapping holds all of it.
    #[test]
    fn an_access_is_granted_exactly_if_one_mapping_holds_it(deeds in deeds()) {
        let mut host = HostMemory::new(Seed(1), "test", 0x10_0000);
        let mut maps: Vec<(u64, Arc<DmaMemory>, bool)> = Vec::new();
        let mut refused = 0;
        for (step, deed) in deeds.into_iter().enumerate() {
            match deed {
                Deed::Map(pages) => {
                    let memory = memory(pages);
                    maps.push((host.map(memory.clone()).expect("room"), memory, true));
                }
                Deed::Unmap(n) if n < maps.len() => {
                    prop_assert_eq!(host.unmap(maps[n].0), maps[n].2);
                    maps[n].2 = false;
                }
                Deed::Write { map, offset, len } if map < maps.len() => {
                    let iova = maps[map].0.wrapping_add_signed(offset);
                    let bytes = vec![step as u8 | 0x80; len];
                    let holder = maps.iter().find(|(start, memory, live)| {
                        *live && *start <= iova && iova + len as u64 <= start + memory.len_bytes() as u64
                    });
                    let granted = host.dma_write(iova, &bytes).is_ok();
                    prop_assert_eq!(granted, holder.is_some(), "{:#x} for {}", iova, len);
                    refused += u64::from(!granted);
                    if let Some((start, memory, _)) = holder {
                        let mut seen = vec![0; len];
                        memory.copy_out((iova - start) as usize, &mut seen);
                        prop_assert_eq!(seen, bytes);
                    }
                }
                Deed::Unmap(_) | Deed::Write { .. } => {}
            }
        }
        prop_assert_eq!(host.refused(), refused);
    }
}

/// Trap 22, B36: messages coalesce, and one that comes while the waiter is at work is kept for its next wait.
#[test]
fn every_error_that_is_raised_while_a_thread_waits_is_seen_by_it() {
    const ERRORS: u64 = 300;
    let (world, nodes, _) = pair(Seed(1), false, CableConfig::default(), &Config::default());
    let world = SimWorld::start(world).expect("a thread");
    let mut device = world.open(nodes[0]).expect("nobody has it open");
    device.grant_vectors(Mode::MsiX, 1).expect("granted");
    let mut irq = device.irq_source(&[Vector::DEFAULT]).expect("a source");
    let bar = device.bar();
    device::INT_MASK.write(&bar, IntBits::ERR);
    device::ERR_MASK.write(&bar, ErrBits::INVALID_ADDR_ERR);
    let patience = world.clock().now() + Duration::from_secs(30);
    std::thread::scope(|scope| {
        let cleared = scope.spawn(|| {
            let bar = bar.clone();
            for n in 0..ERRORS {
                let wake = irq.wait(Some(patience));
                assert!(
                    matches!(wake, Wake::Vectors(fired) if !fired.is_empty()),
                    "error {n} never woke its waiter"
                );
                let found = device::ERR_STATUS.read(&bar);
                device::ERR_CLEAR.clear(&bar, found);
                device::INT_CLEAR.clear(&bar, IntBits::ERR);
            }
        });
        for _ in 0..ERRORS {
            // The next error is raised as soon as the last one is gone, wherever the waiter then is.
            while !device::ERR_STATUS.read(&bar).is_empty() {
                std::thread::yield_now();
            }
            world.with(|world| {
                let now = world.now();
                world.inject(nodes[0], Injection::Device(ErrBits::INVALID_ADDR_ERR), now);
            });
        }
        cleared.join().expect("the waiter saw them all");
    });
}

#[test]
fn memory_of_one_card_is_none_of_the_others() {
    let (world, nodes, _) = pair(Seed(1), false, CableConfig::default(), &Config::default());
    let world = SimWorld::manual(world);
    let devices = nodes.map(|node| world.open(node).expect("nobody has it open"));
    let region = devices[0].mapper().map(4096).expect("memory for a test");
    let refused = world.with(|world| world.host_mut(nodes[1]).dma_write(region.iova(), &[1]).is_err());
    assert!(refused);
    let both = world.with(|world| nodes.map(|node| world.host(node).mapped_bytes()));
    drop(region);
    let after = world.with(|world| nodes.map(|node| world.host(node).mapped_bytes()));
    assert_eq!((both, after), ([4096, 0], [0, 0]));
}
