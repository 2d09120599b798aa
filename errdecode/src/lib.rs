//! From error bits of the QLogic 7322 to names, meaning and advice.

#![no_std]
#![cfg_attr(not(test), forbid(unsafe_code))]
