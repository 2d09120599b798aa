//! From an interrupt status word of the QLogic 7322 to ordered work.
