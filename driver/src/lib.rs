//! The QLogic 7322 as a state machine, and its edges.
