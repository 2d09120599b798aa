//! The two policies as published: a quarter at a time, and one by one.

use super::{Replenish, Session};

/// As it was: posted again when a quarter is missing, so posted buffers float between three quarters and all.
///
/// A quarter of the commands under way may therefore have no buffer for their response. Source: F-856.
#[derive(Clone, Debug)]
pub struct ChunkQuarter {
    most: u32,
    chunk: u32,
    outstanding: u32,
}

impl ChunkQuarter {
    /// For one session.
    pub fn new(session: Session) -> Self {
        let most = session.commands + session.unsolicited;
        Self { most, chunk: (most / 4).max(1), outstanding: 0 }
    }
}

impl Replenish for ChunkQuarter {
    fn name(&self) -> &'static str {
        "chunk-quarter"
    }

    fn buffers(&self) -> u32 {
        self.most
    }

    fn posted(&mut self, buffers: u32) {
        self.outstanding += buffers;
    }

    fn on_response(&mut self) -> u32 {
        self.outstanding = self.outstanding.saturating_sub(1);
        if self.outstanding + self.chunk > self.most {
            return 0;
        }
        (self.most - self.outstanding).min(self.chunk)
    }

    fn gathered(&self) -> u32 {
        self.most - self.outstanding
    }
}

/// As it became: one post for each response. Source: F-857.
///
/// The upper layer is told before the buffer is posted again, so its next command may be launched first.
#[derive(Clone, Debug)]
pub struct OneByOne {
    most: u32,
    outstanding: u32,
}

impl OneByOne {
    /// For one session.
    pub fn new(session: Session) -> Self {
        Self { most: session.commands + session.unsolicited, outstanding: 0 }
    }
}

impl Replenish for OneByOne {
    fn name(&self) -> &'static str {
        "one-by-one"
    }

    fn buffers(&self) -> u32 {
        self.most
    }

    fn posted(&mut self, buffers: u32) {
        self.outstanding += buffers;
    }

    fn on_response(&mut self) -> u32 {
        self.outstanding = self.outstanding.saturating_sub(1);
        self.most - self.outstanding
    }

    fn gathered(&self) -> u32 {
        self.most - self.outstanding
    }
}
