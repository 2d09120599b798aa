//! Whose completions are handled next when several users share a queue: deficit round robin, with an urgent lane.
//!
//! By age alone one flooding user delays its neighbours by its whole batch. In rounds each user with something waiting
//! gets a quantum of 16, and what it leaves is kept for its next turn, up to a burst of 64. Who has two operations
//! under way at most is waiting for exactly these, and goes first.

use std::collections::VecDeque;

/// Completions that a user may have handled in one turn.
pub const QUANTUM: u32 = 16;
/// What a user may have saved up.
pub const BURST: u32 = 64;
/// A user with so many operations under way, or fewer, is served from the urgent lane.
pub const URGENT_IN_FLIGHT: u32 = 2;

#[derive(Clone, Copy, Debug, Default)]
struct User {
    waiting: u32,
    deficit: u32,
    queued: bool,
}

/// The order of users of one queue.
#[derive(Clone, Debug, Default)]
pub struct Rounds {
    users: Vec<User>,
    urgent: VecDeque<u32>,
    turns: VecDeque<u32>,
}

impl Rounds {
    /// Nobody waits.
    pub const fn new() -> Self {
        Self { users: Vec::new(), urgent: VecDeque::new(), turns: VecDeque::new() }
    }

    /// A completion of `user` has come; it has `in_flight` operations under way, this one included.
    pub fn came(&mut self, user: u32, in_flight: u32) {
        let place = user as usize;
        if self.users.len() <= place {
            self.users.resize(place + 1, User::default());
        }
        let one = &mut self.users[place];
        one.waiting += 1;
        if one.queued {
            return;
        }
        one.queued = true;
        if in_flight <= URGENT_IN_FLIGHT { self.urgent.push_back(user) } else { self.turns.push_back(user) }
    }

    /// Whose turn it is, and how many of its completions may be handled in it.
    pub fn next_turn(&mut self) -> Option<(u32, u32)> {
        let user = self.urgent.pop_front().or_else(|| self.turns.pop_front())?;
        let one = &mut self.users[user as usize];
        one.deficit = (one.deficit + QUANTUM).min(BURST);
        let count = one.waiting.min(one.deficit);
        one.waiting -= count;
        one.deficit = if one.waiting == 0 { 0 } else { one.deficit - count };
        one.queued = one.waiting > 0;
        if one.queued {
            self.turns.push_back(user);
        }
        Some((user, count))
    }

    /// Completions that wait.
    pub fn waiting(&self) -> u32 {
        self.users.iter().map(|user| user.waiting).sum()
    }
}
