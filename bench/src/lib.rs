//! Instruction gates and interleaved comparisons.
