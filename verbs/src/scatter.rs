//! From a packet to the memory that a list names, whatever the offsets.

use crate::ids::PdId;
use crate::mem::{Access, KeyError, MemoryTable, Payload, Sge};

/// Copies `payload` to the bytes of `sges` from byte `offset` of the list on. Nothing is written past the list; the
/// caller sees to it that the payload fits.
#[inline]
pub(crate) fn scatter(
    memory: &MemoryTable,
    pd: PdId,
    sges: &[Sge],
    offset: u32,
    payload: &Payload<'_>,
    need: Access,
) -> Result<(), KeyError> {
    let mut skip = offset;
    let mut done = 0;
    for sge in sges {
        if skip >= sge.len_bytes {
            skip -= sge.len_bytes;
            continue;
        }
        if done == payload.len() {
            break;
        }
        let step = (payload.len() - done).min((sge.len_bytes - skip) as usize);
        let addr = sge.addr.checked_add(u64::from(skip)).ok_or(KeyError::OutOfBounds)?;
        let span = memory.check_local(sge.lkey, pd, (addr, step as u32), need)?;
        payload.part(done, step).copy_to(span.memory, span.offset);
        done += step;
        skip = 0;
    }
    Ok(())
}

/// Bytes that a list holds.
#[inline]
pub(crate) fn capacity(sges: &[Sge]) -> u64 {
    sges.iter().map(|sge| u64::from(sge.len_bytes)).sum()
}
