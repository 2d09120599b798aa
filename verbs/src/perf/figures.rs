//! What the times of posts and completions come to: bandwidth, and latency.
//!
//! The figures are those of the perftest tools. A megabyte is 2^20 bytes. The average bandwidth runs from the first post
//! to the last completion, the peak is the best of all stretches from a post to a later completion. Latencies are the
//! distances of one post from the next; the typical one is the median.

use qhca_regs::Instant;

/// Bytes of the megabyte in which bandwidth is told.
pub const MEGABYTE: f64 = 1_048_576.0;
/// Rounds after which the search for the best stretch ends; it halves its error at least in each.
const ROUNDS_MAX: usize = 64;

/// What a bandwidth run came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bandwidth {
    /// Bytes of a message.
    pub bytes: u32,
    /// Messages, of all queue pairs.
    pub iterations: u64,
    /// The best stretch, megabytes a second; 0 if it was not looked for.
    pub peak_mb_s: f64,
    /// All of it, megabytes a second.
    pub average_mb_s: f64,
    /// Million messages a second.
    pub msg_rate_mpps: f64,
}

/// What a latency run came to, microseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Latency {
    /// Bytes of a message.
    pub bytes: u32,
    /// Messages.
    pub iterations: u64,
    /// Shortest.
    pub t_min_us: f64,
    /// Longest.
    pub t_max_us: f64,
    /// The median.
    pub t_typical_us: f64,
    /// The mean.
    pub t_avg_us: f64,
    /// The standard deviation of the sample.
    pub t_stdev_us: f64,
    /// 99 of 100 are no longer.
    pub p99_us: f64,
    /// 999 of 1000 are no longer.
    pub p999_us: f64,
    /// All of them as measured, in the order in which they were, microseconds.
    pub samples_us: Vec<f64>,
}

/// Bandwidth of messages of `bytes` that were posted and done at these times, `count` in all.
pub(super) fn bandwidth(
    bytes: u32,
    count: u64,
    posted: &[Instant],
    done: &[Instant],
    peak: bool,
) -> Bandwidth {
    let all_ns = match (posted.first(), done.last()) {
        (Some(from), Some(to)) => to.since(*from).as_nanos().max(1) as f64,
        _ => 1.0,
    };
    let mb_s = |ns_per_message: f64| f64::from(bytes) / MEGABYTE * 1e9 / ns_per_message;
    let each_ns = all_ns / count.max(1) as f64;
    Bandwidth {
        bytes,
        iterations: count,
        peak_mb_s: if peak { mb_s(best_ns(posted, done, each_ns)) } else { 0.0 },
        average_mb_s: mb_s(each_ns),
        msg_rate_mpps: 1e3 / each_ns,
    }
}

/// The least time a message of any stretch `[i, j]`, from post `i` to completion `j`; no more than `start`.
///
/// A stretch beats `t` if `done[j] - posted[i] < t (j - i + 1)`. With `t` fixed the best `i` for each `j` is the one with
/// the largest `posted[i] - t i`, kept while `j` goes on. So one pass finds the best stretch for a `t`, whose own time
/// is the next `t`, until nothing beats it.
fn best_ns(posted: &[Instant], done: &[Instant], start: f64) -> f64 {
    let Some(zero) = posted.first() else { return start };
    let mut best = start;
    for _ in 0..ROUNDS_MAX {
        let mut from = (f64::NEG_INFINITY, 0.0, 0);
        let mut least = (0.0, best);
        for (at, (posted, done)) in posted.iter().zip(done).enumerate() {
            let posted = posted.since(*zero).as_nanos() as f64;
            let value = posted - best * at as f64;
            if value > from.0 {
                from = (value, posted, at);
            }
            let count = (at - from.2 + 1) as f64;
            let took = (done.since(*zero).as_nanos() as f64 - from.1).max(1.0);
            let surplus = took - best * count;
            if surplus < least.0 {
                least = (surplus, took / count);
            }
        }
        if least.1 >= best {
            break;
        }
        best = least.1;
    }
    best
}

/// Latency of messages that were posted at these times, each after the one before was done; `halves` if a distance is
/// a way there and back of which one half counts.
pub(super) fn latency(bytes: u32, posted: &[Instant], halves: bool) -> Latency {
    let part = if halves { 2000.0 } else { 1000.0 };
    let samples_us: Vec<f64> =
        posted.windows(2).map(|pair| pair[1].since(pair[0]).as_nanos() as f64 / part).collect();
    let mut sorted = samples_us.clone();
    sorted.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let rank = (share * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
    };
    let count = sorted.len().max(1) as f64;
    let mean = sorted.iter().sum::<f64>() / count;
    let squares = sorted.iter().map(|sample| (sample - mean) * (sample - mean)).sum::<f64>();
    let median = match sorted.len() {
        0 => 0.0,
        len if len.is_multiple_of(2) => (sorted[len / 2 - 1] + sorted[len / 2]) / 2.0,
        len => sorted[len / 2],
    };
    Latency {
        bytes,
        iterations: posted.len() as u64,
        t_min_us: sorted.first().copied().unwrap_or(0.0),
        t_max_us: sorted.last().copied().unwrap_or(0.0),
        t_typical_us: median,
        t_avg_us: mean,
        t_stdev_us: if sorted.len() > 1 { (squares / (count - 1.0)).sqrt() } else { 0.0 },
        p99_us: at(0.99),
        p999_us: at(0.999),
        samples_us,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use qhca_regs::Duration;

    fn times(list: &[u64]) -> Vec<Instant> {
        list.iter().copied().map(Instant::from_nanos).collect()
    }

    /// The best stretch by looking at all of them.
    fn best_of_all(posted: &[Instant], done: &[Instant]) -> f64 {
        let stretches = posted.iter().enumerate().flat_map(|(i, from)| {
            let later = done.iter().enumerate().skip(i);
            later.map(move |(j, to)| to.since(*from).as_nanos().max(1) as f64 / (j - i + 1) as f64)
        });
        stretches.fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn best_stretch_is_the_one_that_looking_at_all_finds() {
        let mut state = 7_u64;
        for _ in 0..200 {
            let mut draw = |below: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % below
            };
            let count = 1 + draw(40);
            let (mut posted, mut done, mut at) = (Vec::new(), Vec::new(), 0);
            for _ in 0..count {
                at += draw(100);
                posted.push(at);
                let before = done.last().copied().unwrap_or(0);
                done.push(before.max(at) + 1 + draw(100));
            }
            let (posted, done) = (times(&posted), times(&done));
            let all = done[done.len() - 1].since(posted[0]).as_nanos() as f64 / done.len() as f64;
            let (found, wanted) = (best_ns(&posted, &done, all), best_of_all(&posted, &done));
            assert!((found - wanted).abs() < 1e-9 * wanted, "{found} {wanted} {posted:?} {done:?}");
        }
    }

    /// B165: figures of a run of days are positive and exact, and the average is no better than the peak.
    #[test]
    fn figures_of_a_long_run_are_positive_and_the_average_is_below_the_peak() {
        const HOUR_NS: u64 = 3_600_000_000_000;
        let posted: Vec<Instant> = (0..58).map(|hour| Instant::from_nanos(hour * HOUR_NS)).collect();
        let done: Vec<Instant> =
            posted.iter().map(|at| *at + Duration::from_nanos(HOUR_NS - 1_000_000_000)).collect();
        let seen = bandwidth(1 << 20, 58, &posted, &done, true);
        assert!(seen.average_mb_s > 0.0 && seen.average_mb_s <= seen.peak_mb_s, "{seen:?}");
        let wanted = 58.0 / (58.0 * 3600.0 - 1.0);
        assert!((seen.average_mb_s - wanted).abs() < wanted * 1e-9, "{seen:?}");
        assert!((seen.msg_rate_mpps * 1e6 - wanted).abs() < wanted * 1e-9);
        assert!((seen.peak_mb_s - 1.0 / 3599.0).abs() < 1e-12);
        // 10^12 messages in 57 hours.
        let long = bandwidth(64, 1_000_000_000_000, &posted[..1], &done[56..57], false);
        assert!(long.average_mb_s > 0.0 && (long.msg_rate_mpps - 1e6 / (57.0 * 3600.0 - 1.0)).abs() < 1e-3);
        let slow = latency(64, &posted, true);
        assert!(slow.t_min_us > 0.0 && slow.t_min_us <= slow.t_avg_us && slow.t_avg_us <= slow.t_max_us);
    }

    #[test]
    fn latency_of_known_samples_has_the_known_figures() {
        // Distances of 2, 4, 4, 4, 5, 5, 7, 9 us: mean 5, sample deviation sqrt(32 / 7).
        let posted = times(&[0, 2000, 6000, 10_000, 14_000, 19_000, 24_000, 31_000, 40_000]);
        let seen = latency(8, &posted, false);
        assert_eq!((seen.t_min_us, seen.t_max_us, seen.t_typical_us, seen.t_avg_us), (2.0, 9.0, 4.5, 5.0));
        assert!((seen.t_stdev_us - (32.0_f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!((seen.p99_us, seen.p999_us), (9.0, 9.0));
        assert_eq!(latency(8, &posted, true).t_avg_us, 2.5);
        assert_eq!(latency(8, &posted[..1], true).t_max_us, 0.0, "one post is no distance");
    }
}
