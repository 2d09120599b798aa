//! The send-buffer availability words: whatever the chip writes, a pool never lends a buffer twice or one that is not
//! its own, and gives one back only when the image says so under the right check bit.
//!
//! Input: which buffers the pool has (two bytes), then steps: take small, take large, take VL 15, or a word of the image.

#![no_main]

use libfuzzer_sys::fuzz_target;
use qhca_driver::tx::Pool;
use qhca_fuzz::Bytes;
use qhca_regs::layout::AvailWords;
use qhca_regs::{Buffer, Port};

fuzz_target!(|input: &[u8]| {
    let mut bytes = Bytes::new(input);
    let (first, count) = (usize::from(bytes.u8()) % Buffer::COUNT, usize::from(bytes.u8()));
    let indices = first..Buffer::COUNT.min(first + count);
    let mut image = AvailWords::default();
    let mut pool = Pool::of_indices(indices.clone(), &image).expect("buffers that exist");
    // For each buffer whether it is lent, and the check bit it was lent under.
    let mut lent = [None; Buffer::COUNT];
    let mut check = [false; Buffer::COUNT];
    let mut steps = 0;
    while !bytes.is_empty() && steps < 400 {
        steps += 1;
        let taken = match bytes.u8() % 4 {
            0 => pool.take(16),
            1 => pool.take(800),
            2 => pool.take_vl15(if bytes.u8() & 1 == 0 { Port::P0 } else { Port::P1 }),
            _ => {
                let word = usize::from(bytes.u8()) % AvailWords::LEN_QWORDS;
                image.0[word] = bytes.u64();
                refresh(&mut pool, &image, &mut lent);
                None
            }
        };
        if let Some(buffer) = taken {
            let index = buffer.index();
            assert!(indices.contains(&index), "{index} is not the pool's");
            assert_eq!(lent[index], None, "{index} was lent twice");
            check[index] = !check[index];
            lent[index] = Some(check[index]);
        }
        let free = indices.clone().filter(|&index| lent[index].is_none()).count();
        assert_eq!(pool.free_count(), free);
    }
});

/// Refreshes the pool and the book beside it by the rule itself: not busy, and the check bit of the last taking.
fn refresh(pool: &mut Pool, image: &AvailWords, lent: &mut [Option<bool>; Buffer::COUNT]) {
    let mut expected = 0;
    for (index, lent) in lent.iter_mut().enumerate() {
        let state = image.state(Buffer::new(index).expect("a buffer that exists"));
        if !state.busy && *lent == Some(state.check) {
            *lent = None;
            expected += 1;
        }
    }
    assert_eq!(pool.refresh(|word| image.0[word]), expected);
}
