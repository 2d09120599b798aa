//! Every option of ib_qib: name, default, range, meaning, and what it does in this driver.
//!
//! The names are the module parameters of the Linux driver, so that an old `/etc/modprobe.d/ib_qib.conf` still loads.
//! One line below declares an option; the struct [`Options`], its defaults, the parser's table and the listing that
//! the tool prints all come from it. Options that configure the Linux verbs layer, power management or the older
//! 7220 chip are accepted and listed with the reason why they change nothing here.
//!
//! Source: F-100.

use super::txselect::TxSelect;
use core::fmt;

/// The values that an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// 0 or 1.
    Flag,
    /// From the first to the second, both included.
    Span(u32, u32),
    /// 0 for the built-in choice, or from the first to the second.
    ZeroOr(u32, u32),
    /// One of these.
    OneOf(&'static [u32]),
    /// Two codes in one word: payload in bits 2:0, read request in bits 6:4.
    PcieCaps,
    /// The preset string of `txselect`.
    TxSelect,
}

impl Range {
    /// Whether `value` is one of them.
    pub fn holds(self, value: u32) -> bool {
        match self {
            Self::Flag => value <= 1,
            Self::Span(low, high) => (low..=high).contains(&value),
            Self::ZeroOr(low, high) => value == 0 || (low..=high).contains(&value),
            Self::OneOf(values) => values.contains(&value),
            Self::PcieCaps => value & !0x77 == 0 && value & 7 <= 3 && value >> 4 <= 5,
            Self::TxSelect => false,
        }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Flag => f.write_str("0 or 1"),
            Self::Span(low, high) => write!(f, "{low} to {high}"),
            Self::ZeroOr(low, high) => write!(f, "0, or {low} to {high}"),
            Self::OneOf(values) => {
                f.write_str("one of ")?;
                for (i, value) in values.iter().enumerate() {
                    write!(f, "{}{value}", if i == 0 { "" } else { ", " })?;
                }
                Ok(())
            }
            Self::PcieCaps => f.write_str("0x00 to 0x53: bits 2:0 from 0 to 3, bits 6:4 from 0 to 5"),
            Self::TxSelect => f.write_str("an index from 0 to 35, then any number of unit,port=index[,h1]"),
        }
    }
}

/// What the parser does with a number outside the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    /// It is an error.
    Refused,
    /// Stock ib_qib replaces it without a word; so does this driver, with a warning.
    MendedTo(u32),
}

/// Whether an option changes anything here, and how or why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It does what it did.
    Works(&'static str),
    /// It is accepted and changes nothing, for this reason.
    None(&'static str),
}

impl Effect {
    /// The sentence for listings.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Works(text) | Self::None(text) => text,
        }
    }

    /// Whether setting the option changes anything.
    pub const fn works(self) -> bool {
        matches!(self, Self::Works(_))
    }
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct OptionInfo {
    /// As typed in `name=value`.
    pub name: &'static str,
    /// As one would type it.
    pub default: &'static str,
    /// The values it takes.
    pub range: Range,
    /// What happens outside the range.
    pub outside: Outside,
    /// What it means.
    pub meaning: &'static str,
    /// What it does in this driver.
    pub effect_here: Effect,
}

/// A type that an option's number converts to and from.
pub(super) trait OptionValue: Copy {
    fn from_number(number: u32) -> Self;
    fn number(self) -> u32;
}

impl OptionValue for u32 {
    fn from_number(number: u32) -> Self {
        number
    }
    fn number(self) -> u32 {
        self
    }
}

impl OptionValue for bool {
    fn from_number(number: u32) -> Self {
        number != 0
    }
    fn number(self) -> u32 {
        u32::from(self)
    }
}

macro_rules! options {
    ($($name:ident: $ty:ty = $default:literal, $range:expr, $outside:expr, $effect:expr, $meaning:literal;)*) => {
        /// What the user asked for: one field an option, in the words of ib_qib.
        ///
        /// Built by [`Options::parse`](Options::parse) or from the defaults; cross-checked there, so every combination held
        /// here is one that the chip can be set up with, save for what only the board decides
        /// (`contexts` then says so).
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Options {
            $(#[doc = $meaning] pub $name: $ty,)*
            /// Transmitter presets.
            pub txselect: TxSelect,
        }

        impl Default for Options {
            fn default() -> Self {
                Self { $($name: <$ty as OptionValue>::from_number($default),)* txselect: TxSelect::default() }
            }
        }

        const NUMBERS: &[OptionInfo] = &[$(OptionInfo {
            name: stringify!($name),
            default: stringify!($default),
            range: $range,
            outside: $outside,
            meaning: $meaning,
            effect_here: $effect,
        },)*];

        impl Options {
            /// Stores a number that is known to lie in the option's range.
            pub(super) fn set_number(&mut self, name: &str, number: u32) {
                match name {
                    $(stringify!($name) => self.$name = <$ty as OptionValue>::from_number(number),)*
                    _ => {}
                }
            }

            /// The number that the option `name` holds, if it is a number.
            pub fn number(&self, name: &str) -> Option<u32> {
                match name {
                    $(stringify!($name) => Some(OptionValue::number(self.$name)),)*
                    _ => None,
                }
            }
        }
    };
}

use Effect::{None as Nothing, Works};
use Outside::{MendedTo, Refused};
use Range::{Flag, OneOf, PcieCaps, Span, ZeroOr};

/// Options of the Linux verbs tables: here the caller sizes its own.
const VERBS: Effect =
    Nothing("no verbs layer stands on this driver yet; its tables would be sized by their owner");
/// Options of the 7220, which shared the module.
const OLD_CHIP: Effect = Nothing("concerns the 7220 only, which this driver does not drive");
/// Options that belong to the send DMA engine.
/// Options that tune the analogue side of the link.
const SERDES: Effect =
    Nothing("the SerDes keep their reset tuning, which every cable of the laboratory accepts");

options! {
    ibmtu: u32 = 0, ZeroOr(1, 5), MendedTo(0), Works("sets IBCCtrlA.MaxPktLen and the eager buffer size"),
        "Largest MTU: 1 to 5 for 256, 512, 1024, 2048, 4096 bytes; 0 is 4096.";
    compat_ddr_negotiate: bool = 1, Flag, Refused, Nothing("links come up by IBTA 1.2 negotiation only"),
        "Negotiate DDR as devices did before IBTA 1.2.";
    special_trigger: bool = 0, Flag, Refused, Works("leaves send DMA off and the large buffers to PIO; buffers launch by count either way"),
        "Launch send buffers by a trigger word.";
    num_vls: u32 = 2, OneOf(&[1, 2, 4, 8]), MendedTo(4), Works("sets VL capability, credits per lane and NumVLane; 8 needs an MTU of 2048 or less"),
        "Virtual lanes for data: 1, 2, 4 or 8.";
    chase: bool = 1, Flag, Refused, Nothing("belongs to the stock SerDes procedure; a link that does not train meets its deadline instead"),
        "Work around links that chase training states.";
    long_attenuation: u32 = 10, Span(0, 255), Refused, Works("chooses the equalizer setting of copper cables that tell their attenuation"),
        "Attenuation in dB from which a copper cable counts as long.";
    singleport: bool = 0, Flag, Refused, Works("brings up IB port 1 only; the other port's context is skipped"),
        "Use only the first port of a two-port board.";
    krcvq01_no_msi: bool = 0, Flag, Refused, Works("contexts 0 and 1 are served on the default vector"),
        "Give the first receive context of each port no interrupt vector of its own.";
    rcvhdrcnt: u32 = 0, ZeroOr(1, 65_535), Refused, Works("sets RcvHdrCnt, raised to the number of eager buffers if lower"),
        "Entries of each header queue; 0 is computed.";
    rcvhdrsize: u32 = 0, ZeroOr(1, 25), Refused, Works("sets RcvHdrSize"),
        "Dwords kept of a header beyond LRH and BTH; 0 is 9.";
    rcvhdrentsize: u32 = 0, OneOf(&[0, 16, 32]), Refused, Works("sets RcvHdrEntSize; must hold the header and its 2 dwords of flags"),
        "Dwords of one header queue entry; 0 is 32.";
    sdma_fetch_prio: u32 = 8, Span(0, 15), Refused, Works("sets SendDmaPriorityThld"),
        "Priority threshold of send DMA descriptor fetches.";
    cfgctxts: u32 = 0, ZeroOr(1, 18), Refused, Works("chooses the chip's configuration of 6, 10 or 18 contexts, and how many are used"),
        "Receive contexts to use, at least one a port; 0 is the kernel's plus one for each CPU.";
    numa_aware: bool = 0, Flag, Refused, Nothing("memory comes from the caller, who knows its nodes"),
        "Place process memory near the process, not near the card.";
    mini_init: bool = 0, Flag, Refused, Nothing("to touch few registers, identify the card without bringing it up"),
        "Touch as few registers as possible at load.";
    krcvqs: u32 = 0, Span(0, 17), Refused, Works("sets the kernel receive contexts and the QP map; capped at 9 on two ports"),
        "Kernel receive queues of each port; 0 and 1 are one.";
    cc_table_size: u32 = 0, ZeroOr(128, 1984), Refused, Nothing("no congestion control agent runs here"),
        "Entries of the congestion control table; 0 is off.";
    pcie_coalesce: bool = 0, Flag, Refused, Nothing("settings of the root complex belong to the host's firmware and kernel"),
        "Tune write coalescing of some root complexes.";
    pcie_caps: u32 = 0, PcieCaps, Refused, Works("raises the read request size of a card behind VFIO; the payload half has no effect, that size is the host kernel's"),
        "Raise PCIe payload (bits 2:0, 128 bytes << n) and read request (bits 6:4).";
    sdma_descq_cnt: u32 = 256, Span(0, 65_535), Refused, Works("sets the length of each port's descriptor ring; fewer than 16 act as 16"),
        "Descriptors of each send DMA queue; 0 is 256.";
    hol_timeout_ms: u32 = 3000, Span(0, 600_000), Refused, Nothing("sends are cancelled as soon as their link goes down"),
        "Milliseconds between flushes of queued sends after a link was lost.";
    fetch_arb: bool = 1, Flag, Refused, OLD_CHIP,
        "Arbitration of descriptor fetches.";
    rxeq_default_set: u32 = 2, Span(0, 3), Refused, OLD_CHIP,
        "Receive equaliser set.";
    relock_by_timer: bool = 1, Flag, Refused, OLD_CHIP,
        "Relock the link from a timer.";
    qp_table_size: u32 = 256, Span(1, 0x100_0000), Refused, VERBS,
        "Entries of the queue pair table.";
    lkey_table_size: u32 = 16, Span(1, 23), Refused, VERBS,
        "Bits of the memory key table.";
    max_pds: u32 = 0xFFFF, Span(1, u32::MAX), Refused, VERBS,
        "Most protection domains.";
    max_ahs: u32 = 0xFFFF, Span(1, u32::MAX), Refused, VERBS,
        "Most address handles.";
    max_cqes: u32 = 0x2FFFF, Span(1, u32::MAX), Refused, VERBS,
        "Most entries of a completion queue.";
    max_cqs: u32 = 0x1FFFF, Span(1, u32::MAX), Refused, VERBS,
        "Most completion queues.";
    max_qp_wrs: u32 = 0x3FFF, Span(1, u32::MAX), Refused, VERBS,
        "Most work requests of a queue pair.";
    max_qps: u32 = 16384, Span(1, u32::MAX), Refused, VERBS,
        "Most queue pairs.";
    max_sges: u32 = 0x60, Span(1, u32::MAX), Refused, VERBS,
        "Most scatter/gather elements of a request.";
    max_mcast_grps: u32 = 16384, Span(1, u32::MAX), Refused, VERBS,
        "Most multicast groups.";
    max_mcast_qp_attached: u32 = 16, Span(1, u32::MAX), Refused, VERBS,
        "Most queue pairs of a multicast group.";
    max_srqs: u32 = 1024, Span(1, u32::MAX), Refused, VERBS,
        "Most shared receive queues.";
    max_srq_sges: u32 = 128, Span(1, u32::MAX), Refused, VERBS,
        "Most scatter/gather elements of a shared receive request.";
    max_srq_wrs: u32 = 0x1FFFF, Span(1, u32::MAX), Refused, VERBS,
        "Most requests of a shared receive queue.";
    disable_sma: bool = 0, Flag, Refused, Nothing("no subnet management agent runs here; LIDs are set by hand"),
        "Drop subnet management packets.";
}

/// The one option that is no number.
const TX_SELECT: OptionInfo = OptionInfo {
    name: "txselect",
    default: "10",
    range: Range::TxSelect,
    outside: Refused,
    meaning: "Transmitter preset for all ports, then for single ones.",
    effect_here: SERDES,
};

/// Every option, in the data sheet's order.
pub fn all() -> impl Iterator<Item = &'static OptionInfo> {
    let at = NUMBERS.iter().position(|info| info.name == "sdma_fetch_prio").unwrap_or(NUMBERS.len());
    let (before, after) = NUMBERS.split_at(at);
    before.iter().chain(core::iter::once(&TX_SELECT)).chain(after)
}

/// Names that earlier releases of the module had: accepted, warned about, ignored (F-101).
pub const GONE: &[&str] = &["wc_pat", "kpiobufs", "cfgports", "debug"];
