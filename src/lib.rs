//! Kernel-bypass driver and chip model of the QLogic 7322 InfiniBand HCA: the door.

#![forbid(unsafe_code)]
