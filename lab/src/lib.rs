//! Experiments in virtual time with the real driver code in the loop.
