//! Register map, bit fields and memory layouts of the QLogic 7322, and how to touch them.

#![no_std]
