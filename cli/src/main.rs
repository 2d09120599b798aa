//! The `qhca` command.

fn main() {}
