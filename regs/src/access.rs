//! Registers as values: where one is, what it holds, and what may be done to it.
//!
//! A register is a constant of type [`Reg<V, A>`]: `V` is the type of its contents, `A` one of the four access
//! kinds. A wrong access does not compile:
//!
//! ```compile_fail,E0599
//! # use qhca_regs::{Bar, map::device};
//! fn forge(bar: &impl Bar) {
//!     device::REVISION.write(bar, device::Revision::default()); // Ro has no `write`
//! }
//! ```
//!
//! ```compile_fail,E0599
//! # use qhca_regs::{Bar, Reg, Wo};
//! fn look(bar: &impl Bar, key: Reg<u64, Wo>) -> u64 {
//!     key.read(bar) // Wo has no `read`
//! }
//! ```
//!
//! ```compile_fail,E0599
//! # use qhca_regs::{Bar, map::device, status::ErrBits};
//! fn clear_everything(bar: &impl Bar) {
//!     device::ERR_CLEAR.write(bar, ErrBits::all()); // W1c has no `write`: `clear` takes what was read
//! }
//! ```
//!
//! ```compile_fail,E0308
//! # use qhca_regs::{Bar, Shadow, map::device, status::ErrBits};
//! fn modify(bar: &impl Bar, shadow: &mut Shadow<ErrBits>) {
//!     shadow.update(bar, device::ERR_CLEAR, |bits| bits | ErrBits::HARDWARE_ERR); // nor a modify
//! }
//! ```
//!
//! ```compile_fail,E0308
//! # use qhca_regs::{Bar, map::device};
//! fn mix_up(bar: &impl Bar) {
//!     device::RCV_CTRL.write(bar, device::SendCtrl::default()); // another register's contents
//! }
//! ```
//!
//! The right accesses do:
//!
//! ```
//! # use qhca_regs::{Bar, Reg, Shadow, Wo, map::device, status::ErrBits};
//! fn service(bar: &impl Bar, key: Reg<u64, Wo>, shadow: &mut Shadow<device::Control>) -> ErrBits {
//!     let found = device::ERR_STATUS.read(bar);
//!     device::ERR_CLEAR.clear(bar, found);
//!     device::ERR_MASK.write(bar, ErrBits::HARDWARE_ERR);
//!     shadow.update(bar, device::CONTROL, |control| control.with_freeze_mode(false));
//!     key.write(bar, 0);
//!     found
//! }
//! ```

use crate::bar::Bar;
use crate::ids::{Ctxt, Port};
use core::marker::PhantomData;

/// What a register holds: 64 bits with names.
pub trait RegValue: Copy {
    /// The contents from the raw bits; unknown bits are kept.
    fn from_raw(raw: u64) -> Self;
    /// All 64 bits.
    fn raw(self) -> u64;
}

impl RegValue for u64 {
    fn from_raw(raw: u64) -> Self {
        raw
    }
    fn raw(self) -> u64 {
        self
    }
}

/// Read only: writes are dropped by the chip.
#[derive(Clone, Copy, Debug)]
pub enum Ro {}
/// Read and write.
#[derive(Clone, Copy, Debug)]
pub enum Rw {}
/// Write only: reads have no meaning.
#[derive(Clone, Copy, Debug)]
pub enum Wo {}
/// Write one to clear: reads give status, and each bit written as one is cleared. There is no modify: it would clear
/// bits that nobody has looked at.
#[derive(Clone, Copy, Debug)]
pub enum W1c {}

/// The access kind as a value, for tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// See [`Ro`].
    Ro,
    /// See [`Rw`].
    Rw,
    /// See [`Wo`].
    Wo,
    /// See [`W1c`].
    W1c,
}

impl Access {
    /// The word that tables and tools print.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ro => "ro",
            Self::Rw => "rw",
            Self::Wo => "wo",
            Self::W1c => "w1c",
        }
    }
}

/// An access kind at the type level.
pub trait AccessKind {
    /// The same kind as a value.
    const KIND: Access;
}
/// Access kinds whose registers may be read.
pub trait Readable: AccessKind {}
/// Access kinds whose registers take a plain write.
pub trait Writable: AccessKind {}

macro_rules! kinds {
    ($($kind:ident: $($may:ident),*;)*) => {$(
        impl AccessKind for $kind {
            const KIND: Access = Access::$kind;
        }
        $(impl $may for $kind {})*
    )*};
}
kinds! { Ro: Readable; Rw: Readable, Writable; Wo: Writable; W1c: Readable; }

/// One register: its offset, the type `V` of its contents, its access kind `A`.
pub struct Reg<V, A> {
    offset: u32,
    kind: PhantomData<fn() -> (V, A)>,
}

impl<V, A> Clone for Reg<V, A> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<V, A> Copy for Reg<V, A> {}

impl<V, A> Reg<V, A> {
    /// The register at `offset` bytes of BAR 0; must be 8-byte aligned (checked at compile time in tables).
    pub const fn at(offset: u32) -> Self {
        assert!(offset.is_multiple_of(8), "registers are 8-byte aligned");
        Self { offset, kind: PhantomData }
    }

    /// Bytes from the start of BAR 0.
    pub const fn offset(self) -> u32 {
        self.offset
    }
}

impl<V: RegValue, A: Readable> Reg<V, A> {
    /// Reads the register: one 64-bit access.
    #[inline]
    pub fn read(self, bar: &impl Bar) -> V {
        V::from_raw(bar.read(self.offset))
    }
}

impl<V: RegValue, A: Writable> Reg<V, A> {
    /// Writes the whole register: one posted 64-bit access.
    #[inline]
    pub fn write(self, bar: &impl Bar, value: V) {
        bar.write(self.offset, value.raw());
    }

    /// Writes the register after every earlier store to DMA memory has become visible to the chip.
    #[inline]
    pub fn doorbell(self, bar: &impl Bar, value: V) {
        bar.doorbell(self.offset, value.raw());
    }
}

impl<V: RegValue> Reg<V, W1c> {
    /// Clears exactly the bits that are one in `bits`: pass what was read and handled, nothing else.
    #[inline]
    pub fn clear(self, bar: &impl Bar, bits: V) {
        bar.write(self.offset, bits.raw());
    }
}

/// A register that stands once in each port's page: port 1 is 0x1000 bytes above port 0 (F-003).
pub struct PortReg<V, A> {
    offset: u32,
    stride: u32,
    kind: PhantomData<fn() -> (V, A)>,
}

impl<V, A> Clone for PortReg<V, A> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<V, A> Copy for PortReg<V, A> {}

/// Distance between the two ports' register pages, bytes (F-003).
pub const PORT_STRIDE_BYTES: u32 = 0x1000;

impl<V, A> PortReg<V, A> {
    /// The register whose port 0 copy is at `offset`.
    pub const fn at(offset: u32) -> Self {
        assert!(offset.is_multiple_of(8), "registers are 8-byte aligned");
        Self { offset, stride: PORT_STRIDE_BYTES, kind: PhantomData }
    }

    /// The copy that belongs to hardware port `port`.
    #[inline]
    pub const fn port(self, port: Port) -> Reg<V, A> {
        Reg { offset: self.offset + port.index() as u32 * self.stride, kind: PhantomData }
    }
}

/// A row of `len` equal registers, `stride` bytes apart.
pub struct RegArray<V, A> {
    offset: u32,
    stride: u32,
    len: u32,
    kind: PhantomData<fn() -> (V, A)>,
}

impl<V, A> Clone for RegArray<V, A> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<V, A> Copy for RegArray<V, A> {}

impl<V, A> RegArray<V, A> {
    /// `len` registers from `offset`, `stride` bytes apart.
    pub const fn at(offset: u32, stride: u32, len: u32) -> Self {
        assert!(offset.is_multiple_of(8) && stride.is_multiple_of(8), "registers are 8-byte aligned");
        Self { offset, stride, len, kind: PhantomData }
    }

    /// How many registers the row has.
    pub const fn len(self) -> u32 {
        self.len
    }

    /// Whether the row is empty; no row of the chip is.
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The register at `index`, below [`len`](Self::len).
    ///
    /// PANIC: an index past the row is a broken invariant of the caller, whose ids are bounded newtypes; an access
    /// that silently hit a neighbour would be worse.
    #[inline]
    #[track_caller]
    pub const fn index(self, index: u32) -> Reg<V, A> {
        assert!(index < self.len, "register index past the end of its row");
        Reg { offset: self.offset + index * self.stride, kind: PhantomData }
    }
}

impl<V, A> RegArray<V, A> {
    /// The register of `ctxt`, in a row that has one for each context.
    #[inline]
    pub const fn ctxt(self, ctxt: Ctxt) -> Reg<V, A> {
        self.index(ctxt.index() as u32)
    }
}

/// A row of registers in each port's page.
pub struct PortRegArray<V, A> {
    offset: u32,
    stride: u32,
    len: u32,
    kind: PhantomData<fn() -> (V, A)>,
}

impl<V, A> Clone for PortRegArray<V, A> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<V, A> Copy for PortRegArray<V, A> {}

impl<V, A> PortRegArray<V, A> {
    /// `len` registers from `offset` in port 0's page, `stride` bytes apart.
    pub const fn at(offset: u32, stride: u32, len: u32) -> Self {
        assert!(offset.is_multiple_of(8) && stride.is_multiple_of(8), "registers are 8-byte aligned");
        Self { offset, stride, len, kind: PhantomData }
    }

    /// The row of hardware port `port`.
    pub const fn port(self, port: Port) -> RegArray<V, A> {
        RegArray::at(self.offset + port.index() as u32 * PORT_STRIDE_BYTES, self.stride, self.len)
    }
}

/// A row of registers for each receive context.
pub struct CtxtRegArray<V, A> {
    offset: u32,
    ctxt_stride: u32,
    stride: u32,
    len: u32,
    kind: PhantomData<fn() -> (V, A)>,
}

impl<V, A> Clone for CtxtRegArray<V, A> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<V, A> Copy for CtxtRegArray<V, A> {}

impl<V, A> CtxtRegArray<V, A> {
    /// For each context `len` registers, `stride` bytes apart; context 0's row is at `offset`, the next
    /// `ctxt_stride` bytes further.
    pub const fn at(offset: u32, ctxt_stride: u32, stride: u32, len: u32) -> Self {
        assert!(ctxt_stride.is_multiple_of(8), "registers are 8-byte aligned");
        let _ = RegArray::<V, A>::at(offset, stride, len);
        Self { offset, ctxt_stride, stride, len, kind: PhantomData }
    }

    /// The row of `ctxt`.
    pub const fn ctxt(self, ctxt: Ctxt) -> RegArray<V, A> {
        RegArray::at(self.offset + ctxt.index() as u32 * self.ctxt_stride, self.stride, self.len)
    }
}

/// The driver's copy of a control register: read-modify-write without a read across PCIe.
///
/// Command bits that act once (link commands, disarm) are never kept in a shadow: write them with
/// [`write_once`](Shadow::write_once).
#[derive(Clone, Copy, Debug)]
pub struct Shadow<V> {
    value: V,
}

impl<V: RegValue> Shadow<V> {
    /// A shadow that holds `value`, which the register is known or about to hold.
    pub const fn new(value: V) -> Self {
        Self { value }
    }

    /// What the register holds.
    pub fn get(&self) -> V {
        self.value
    }

    /// Changes the shadow by `change` and writes the result.
    pub fn update(&mut self, bar: &impl Bar, reg: Reg<V, Rw>, change: impl FnOnce(V) -> V) {
        self.value = change(self.value);
        reg.write(bar, self.value);
    }

    /// Writes the shadow with `extra` bits that act once and are not kept.
    pub fn write_once(&self, bar: &impl Bar, reg: Reg<V, Rw>, extra: impl FnOnce(V) -> V) {
        reg.write(bar, extra(self.value));
    }
}
