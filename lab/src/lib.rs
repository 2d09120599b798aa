//! Experiments in virtual time with the real driver code in the loop.

#![forbid(unsafe_code)]
