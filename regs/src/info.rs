//! The register map as data: what dumps, models and tests walk over.

use crate::access::{Access, PORT_STRIDE_BYTES};
use core::fmt;

/// One named field of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldInfo {
    /// The chip's name of the field.
    pub name: &'static str,
    /// Lowest bit, 0 to 63.
    pub lsb: u8,
    /// Highest bit, `lsb` to 63.
    pub msb: u8,
}

impl FieldInfo {
    /// The field's bits, in place.
    pub const fn mask(&self) -> u64 {
        (u64::MAX >> (63 - self.msb)) & (u64::MAX << self.lsb)
    }

    /// The field's value in `raw`, shifted down.
    pub const fn extract(&self, raw: u64) -> u64 {
        (raw & self.mask()) >> self.lsb
    }
}

/// How often a register stands in the map, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Once.
    One,
    /// `len` times, `stride` bytes apart, each with a name of its own.
    Row {
        /// Number of registers.
        len: u32,
        /// Bytes from one to the next.
        stride: u32,
    },
    /// Once in each port's page.
    Port,
    /// A row in each port's page.
    PortRow {
        /// Number of registers in each page.
        len: u32,
        /// Bytes from one to the next.
        stride: u32,
    },
    /// A table under one name.
    Area {
        /// Number of 64-bit entries.
        len: u32,
        /// Bytes from one to the next.
        stride: u32,
    },
    /// A row for each receive context, each register with a name of its own.
    CtxtRow {
        /// Bytes from one context's row to the next.
        ctxt_stride: u32,
        /// Number of registers in a row.
        len: u32,
        /// Bytes from one to the next.
        stride: u32,
    },
    /// A table for each receive context, under one name each.
    CtxtArea {
        /// Bytes from one context's table to the next.
        ctxt_stride: u32,
        /// Number of 64-bit entries in a table.
        len: u32,
        /// Bytes from one to the next.
        stride: u32,
    },
}

/// One row of the register map.
#[derive(Clone, Copy, Debug)]
pub struct RegInfo {
    /// Name as the register header spells it; `{i}`, `{p}` and `{c}` stand for index, port and context.
    pub template: &'static str,
    /// Byte offset of the first copy.
    pub offset: u32,
    /// Reset value; bits in `reset_unknown` read as zero here.
    pub reset: u64,
    /// Bits whose reset value no source gives.
    pub reset_unknown: u64,
    /// What may be done to it.
    pub access: Access,
    /// How often it stands in the map.
    pub shape: Shape,
    /// Its named fields, lowest first; empty if the whole register is one value.
    pub fields: &'static [FieldInfo],
    /// Whether only iPXE's header names it.
    pub extra: bool,
}

/// One register at one address: a row of the map, expanded.
#[derive(Clone, Copy, Debug)]
pub struct Placed {
    /// The row it comes from.
    pub info: &'static RegInfo,
    /// Its byte offset.
    pub offset: u32,
    index: u32,
    port: u32,
    ctxt: u32,
}

impl Placed {
    /// Reset value of this copy. The two ports' copies are equal but for `CntrRegBase`, which names each port's own
    /// counter block.
    pub fn reset(&self) -> u64 {
        match (self.info.offset, self.port) {
            (0x1028, 1) => self.info.reset + u64::from(PORT_STRIDE_BYTES),
            _ => self.info.reset,
        }
    }
}

impl fmt::Display for Placed {
    /// The register's name, with its numbers filled in.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.info.template;
        while let Some(open) = rest.find('{') {
            let (head, tail) = rest.split_at(open);
            f.write_str(head)?;
            let number = match tail.as_bytes().get(1) {
                Some(b'i') => self.index,
                Some(b'p') => self.port,
                _ => self.ctxt,
            };
            write!(f, "{number}")?;
            rest = &tail[3..];
        }
        f.write_str(rest)
    }
}

impl RegInfo {
    /// Copies along each axis: contexts, ports, named indices.
    const fn extent(&self) -> (u32, u32, u32) {
        match self.shape {
            Shape::One | Shape::Area { .. } => (1, 1, 1),
            Shape::Row { len, .. } => (1, 1, len),
            Shape::Port => (1, 2, 1),
            Shape::PortRow { len, .. } => (1, 2, len),
            Shape::CtxtRow { len, .. } => (18, 1, len),
            Shape::CtxtArea { .. } => (18, 1, 1),
        }
    }

    const fn strides(&self) -> (u32, u32) {
        match self.shape {
            Shape::One | Shape::Port => (0, 0),
            Shape::Row { stride, .. } | Shape::PortRow { stride, .. } | Shape::Area { stride, .. } => {
                (0, stride)
            }
            Shape::CtxtRow { ctxt_stride, stride, .. } | Shape::CtxtArea { ctxt_stride, stride, .. } => {
                (ctxt_stride, stride)
            }
        }
    }

    /// How many 64-bit words one placed register covers: 1, or the length of its table.
    pub const fn words(&self) -> u32 {
        match self.shape {
            Shape::Area { len, .. } | Shape::CtxtArea { len, .. } => len,
            _ => 1,
        }
    }

    /// Every register of this row, by context, then port, then index.
    pub fn placed(&'static self) -> impl Iterator<Item = Placed> {
        let (ctxts, ports, indices) = self.extent();
        let (ctxt_stride, stride) = self.strides();
        (0..ctxts * ports * indices).map(move |n| {
            let (index, port, ctxt) = (n % indices, n / indices % ports, n / indices / ports);
            let offset = self.offset + ctxt * ctxt_stride + port * PORT_STRIDE_BYTES + index * stride;
            Placed { info: self, offset, index, port, ctxt }
        })
    }

    /// The register of this row that covers byte `offset`, if one does.
    pub fn covering(&'static self, offset: u32) -> Option<Placed> {
        let (_, stride) = self.strides();
        self.placed().find(|placed| {
            let past = offset.wrapping_sub(placed.offset);
            past < 8 || (past < self.words() * stride.max(8) && past % stride.max(8) < 8)
        })
    }
}
