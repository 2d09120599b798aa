//! The macros that turn lines of the register map into types: contents with named fields, status words with named
//! bits, and registers with an offset, a reset value and an access kind.

use crate::info::FieldInfo;

/// Types that a field's bits convert to and from.
pub trait FieldValue: Copy {
    /// From the field's bits, shifted down and no wider than the field.
    fn from_bits(bits: u64) -> Self;
    /// To bits; whatever is wider than the field is cut off by the setter.
    fn into_bits(self) -> u64;
}

impl FieldValue for bool {
    #[inline]
    fn from_bits(bits: u64) -> Self {
        bits != 0
    }
    #[inline]
    fn into_bits(self) -> u64 {
        u64::from(self)
    }
}

macro_rules! field_ints {
    ($($int:ty),*) => {$(
        impl FieldValue for $int {
            #[inline]
            fn from_bits(bits: u64) -> Self {
                bits as Self
            }
            #[inline]
            fn into_bits(self) -> u64 {
                u64::from(self)
            }
        }
    )*};
}
field_ints!(u8, u16, u32, u64);

/// Contents whose fields have names.
pub trait Contents {
    /// The fields, lowest first.
    const FIELDS: &'static [FieldInfo];
}

impl Contents for u64 {
    const FIELDS: &'static [FieldInfo] = &[];
}

/// Declares the contents of a register or of a 64-bit memory word: a newtype with a getter and a setter for each
/// field. A doc line before a field goes to both.
macro_rules! contents {
    ($(#[$doc:meta])* pub struct $name:ident; $($(#[$field_doc:meta])* $get:ident / $with:ident: $ty:ty [$lsb:literal $(..= $msb:literal)?] $field:literal;)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
        pub struct $name(pub u64);

        impl $name {
            $(
                $(#[$field_doc])*
                #[doc = concat!("Field `", $field, "`, bit ", stringify!($lsb) $(, " to ", stringify!($msb))?, ".")]
                #[inline]
                pub fn $get(self) -> $ty {
                    const F: $crate::info::FieldInfo = $crate::value::contents!(@field $field, $lsb $(, $msb)?);
                    $crate::value::FieldValue::from_bits(F.extract(self.0))
                }

                $(#[$field_doc])*
                #[doc = concat!("The same contents with `", $field, "` set to `value`; bits that do not fit the field are dropped.")]
                #[inline]
                #[must_use]
                pub fn $with(self, value: $ty) -> Self {
                    const F: $crate::info::FieldInfo = $crate::value::contents!(@field $field, $lsb $(, $msb)?);
                    let bits = $crate::value::FieldValue::into_bits(value) << F.lsb;
                    Self(self.0 & !F.mask() | bits & F.mask())
                }
            )*
        }

        impl $crate::value::Contents for $name {
            const FIELDS: &'static [$crate::info::FieldInfo] = &[$($crate::value::contents!(@field $field, $lsb $(, $msb)?)),*];
        }

        impl $crate::access::RegValue for $name {
            #[inline]
            fn from_raw(raw: u64) -> Self {
                Self(raw)
            }
            #[inline]
            fn raw(self) -> u64 {
                self.0
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, concat!(stringify!($name), "({:#018x})"), self.0)
            }
        }
    };
    (@field $field:literal, $lsb:literal) => { $crate::info::FieldInfo { name: $field, lsb: $lsb, msb: $lsb } };
    (@field $field:literal, $lsb:literal, $msb:literal) => { $crate::info::FieldInfo { name: $field, lsb: $lsb, msb: $msb } };
}

/// Declares a status word: bitflags that keep unknown bits, with the chip's name of each bit.
macro_rules! status {
    ($(#[doc = $doc:literal])* pub struct $name:ident; $($(#[doc = $bit_doc:literal])+ $flag:ident = $lsb:literal $(..= $msb:literal)? $field:literal;)*) => {
        bitflags::bitflags! {
            $(#[doc = $doc])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
            pub struct $name: u64 {
                $($(#[doc = $bit_doc])+ const $flag = $crate::value::contents!(@field $field, $lsb $(, $msb)?).mask();)*
                // Bits that no source names are kept as they are.
                const _ = !0;
            }
        }

        impl $name {
            /// The bits that have names.
            pub const NAMED: Self = Self::from_bits_retain(0 $(| Self::$flag.bits())*);
        }

        impl $crate::value::Contents for $name {
            const FIELDS: &'static [$crate::info::FieldInfo] = &[$($crate::value::contents!(@field $field, $lsb $(, $msb)?)),*];
        }

        impl $crate::access::RegValue for $name {
            #[inline]
            fn from_raw(raw: u64) -> Self {
                Self::from_bits_retain(raw)
            }
            #[inline]
            fn raw(self) -> u64 {
                self.bits()
            }
        }
    };
}

/// Declares registers: a constant for each, and the table of them all.
macro_rules! registers {
    ($($name:ident: $shape:ident $([$($dim:literal);+])? $access:ident $ty:ident @ $offset:literal, $template:literal, reset $reset:expr, unknown $unknown:expr;)*) => {
        $(
            #[doc = concat!("`", $template, "` at ", stringify!($offset), ".")]
            pub const $name: $crate::value::registers!(@type $shape $ty, $access) =
                $crate::value::registers!(@at $shape $offset $(, $($dim),+)?);
        )*

        /// Every register of this chapter, as data.
        pub(super) const TABLE: &[$crate::info::RegInfo] = &[$(
            $crate::info::RegInfo {
                template: $template,
                offset: $offset,
                reset: $reset,
                reset_unknown: $unknown,
                access: <$crate::access::$access as $crate::access::AccessKind>::KIND,
                shape: $crate::value::registers!(@shape $shape $(, $($dim),+)?),
                fields: <$ty as $crate::value::Contents>::FIELDS,
                extra: EXTRA,
            },
        )*];
    };
    (@type one $ty:ty, $access:ident) => { $crate::access::Reg<$ty, $crate::access::$access> };
    (@type row $ty:ty, $access:ident) => { $crate::access::RegArray<$ty, $crate::access::$access> };
    (@type area $ty:ty, $access:ident) => { $crate::access::RegArray<$ty, $crate::access::$access> };
    (@type port $ty:ty, $access:ident) => { $crate::access::PortReg<$ty, $crate::access::$access> };
    (@type port_row $ty:ty, $access:ident) => { $crate::access::PortRegArray<$ty, $crate::access::$access> };
    (@type ctxt_row $ty:ty, $access:ident) => { $crate::access::CtxtRegArray<$ty, $crate::access::$access> };
    (@type ctxt_area $ty:ty, $access:ident) => { $crate::access::CtxtRegArray<$ty, $crate::access::$access> };
    (@at one $offset:literal) => { $crate::access::Reg::at($offset) };
    (@at row $offset:literal, $len:literal, $stride:literal) => { $crate::access::RegArray::at($offset, $stride, $len) };
    (@at area $offset:literal, $len:literal, $stride:literal) => { $crate::access::RegArray::at($offset, $stride, $len) };
    (@at port $offset:literal) => { $crate::access::PortReg::at($offset) };
    (@at port_row $offset:literal, $len:literal, $stride:literal) => { $crate::access::PortRegArray::at($offset, $stride, $len) };
    (@at ctxt_row $offset:literal, $ctxt:literal, $len:literal, $stride:literal) => { $crate::access::CtxtRegArray::at($offset, $ctxt, $stride, $len) };
    (@at ctxt_area $offset:literal, $ctxt:literal, $len:literal, $stride:literal) => { $crate::access::CtxtRegArray::at($offset, $ctxt, $stride, $len) };
    (@shape one) => { $crate::info::Shape::One };
    (@shape row, $len:literal, $stride:literal) => { $crate::info::Shape::Row { len: $len, stride: $stride } };
    (@shape area, $len:literal, $stride:literal) => { $crate::info::Shape::Area { len: $len, stride: $stride } };
    (@shape port) => { $crate::info::Shape::Port };
    (@shape port_row, $len:literal, $stride:literal) => { $crate::info::Shape::PortRow { len: $len, stride: $stride } };
    (@shape ctxt_row, $ctxt:literal, $len:literal, $stride:literal) => { $crate::info::Shape::CtxtRow { ctxt_stride: $ctxt, len: $len, stride: $stride } };
    (@shape ctxt_area, $ctxt:literal, $len:literal, $stride:literal) => { $crate::info::Shape::CtxtArea { ctxt_stride: $ctxt, len: $len, stride: $stride } };
}

pub(crate) use {contents, registers, status};
