//! Bring-up of a chip whose registers answer garbage: it ends in bounded steps, up or with an error that names its step,
//! and a card that is gone is left alone.
//!
//! Input: two bytes of options, one of vectors granted, then the misreads (`qhca_fuzz::registers`).

#![no_main]

use libfuzzer_sys::fuzz_target;
use qhca_driver::bringup::{BringUpRequest, Step};
use qhca_driver::link::Goal;
use qhca_driver::options::Options;
use qhca_fuzz::Bytes;
use qhca_fuzz::registers::{Registers, bring_up};
use qhca_regs::{Ctxt, Port};

/// Accesses after the first read of all ones until a step asks for an answer: registers are set up in long rows of writes.
const UNNOTICED: usize = 2000;
/// The same if nothing asks any more, since the last steps only write.
const UNNOTICED_AT_THE_END: usize = 100;

fuzz_target!(|input: &[u8]| {
    let mut bytes = Bytes::new(input);
    let (flags, krcvqs, vectors) = (bytes.u8(), bytes.u8() % 18, usize::from(bytes.u8() % 33));
    let list = format!("krcvqs={krcvqs} singleport={} krcvq01_no_msi={}", flags & 1, flags >> 1 & 1);
    let options = Options::parse(&list).expect("in range").options;
    let request = BringUpRequest {
        options,
        cpus: usize::from(flags >> 2),
        goals: [Some(Goal::Up); 2],
        ..BringUpRequest::default()
    };
    let bar = Registers::new(bytes);
    let (result, _) = bring_up(request, vectors, &bar);
    let most = if result.is_ok() { UNNOTICED_AT_THE_END } else { UNNOTICED };
    assert!(
        bar.after_gone() <= most,
        "{} accesses to a card that is gone: {:?}",
        bar.after_gone(),
        result.err()
    );
    match result {
        Ok(up) => {
            assert_eq!(up.report.steps.len(), Step::ALL.len());
            let mut contexts: Vec<Ctxt> = up.split.contexts.iter().map(|share| share.ctxt).collect();
            let count = contexts.len();
            contexts.sort();
            contexts.dedup();
            assert!(count == contexts.len() && count <= Ctxt::COUNT, "{contexts:?}");
            assert!(up.split.ports.iter().all(|port| Port::ALL.contains(&port)));
        }
        Err(error) => assert!(error.to_string().len() > 20, "{error}"),
    }
});
