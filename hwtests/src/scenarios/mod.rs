//! The scenarios, by what they look at. Each resets the card first and depends on no other.

mod cable;
mod error;
mod expected;
mod identity;
mod interrupt;
mod link;
mod pair;
mod receive;
mod sdma;
mod send;
mod special;

use crate::bench::Bench;
use crate::check::Verdict;
use qhca_driver::env::Backend;

/// A scenario.
pub(crate) type Scenario<'a, B> = fn(&mut Bench<'a, B>) -> Verdict;

/// How many scenarios there are.
const COUNT: usize = 48;

macro_rules! scenarios {
    ($($name:literal: $path:path;)*) => {
        const NAMES: [&str; COUNT] = [$($name),*];

        /// All scenarios, in the order in which they run.
        pub(crate) fn all<'a, B: Backend>() -> [(&'static str, Scenario<'a, B>); COUNT] {
            [$(($name, $path as Scenario<'a, B>)),*]
        }
    };
}

scenarios! {
    "identify": identity::identify;
    "eager-partitions": identity::eager_partitions;
    "scratch": identity::scratch;
    "eeprom": identity::eeprom;
    "avail-address": identity::avail_address;
    "link-up": link::link_up;
    "link-change-interrupts": link::link_change_interrupts;
    "active-needs-armed": link::active_needs_armed;
    "link-width": link::link_width;
    "link-speed": link::link_speed;
    "heartbeat": pair::heartbeat;
    "credits": pair::credits;
    "qsfp": cable::qsfp;
    "qsfp-insert": cable::qsfp_insert;
    "avail-image": send::avail_image;
    "disarm": send::disarm;
    "launch-rule": send::launch_rule;
    "port-selection": send::port_selection;
    "vl-arbitration": send::vl_arbitration;
    "sdma-head": sdma::head;
    "sdma-halt": sdma::halt;
    "sdma-generation": sdma::generation;
    "sdma-interrupt": sdma::interrupt;
    "sdma-errors": sdma::errors;
    "expected-receive": expected::expected_receive;
    "flow-generation": expected::flow_generation;
    "flow-sequence": expected::flow_sequence;
    "header-suppression": expected::header_suppression;
    "kd-checksum": expected::kd_checksum;
    "loopback-packets": receive::loopback_packets;
    "queue-wraps": receive::queue_wraps;
    "queue-full": receive::queue_full;
    "eager-full": receive::eager_full;
    "qp-map": receive::qp_map;
    "partition-keys": receive::partition_keys;
    "wrong-icrc": receive::wrong_icrc;
    "counters": receive::counters;
    "every-vector": interrupt::every_vector;
    "every-cause": interrupt::every_cause;
    "mask-and-reraise": interrupt::mask_and_reraise;
    "count-and-timer": interrupt::count_and_timer;
    "clear-is-exact": error::clear_is_exact;
    "hardware-error": error::hardware_error;
    "freeze": special::freeze;
    "reset": special::reset;
    "tail-dma": special::tail_dma;
    "special-trigger": special::special_trigger;
    "samples": special::samples;
}

/// The scenarios' names.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    NAMES.into_iter()
}
