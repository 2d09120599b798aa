//! Verbs traffic of the stock tools: ping-pongs with contents checked, bandwidth and latency with figures checked.
//!
//! Figures are of emulated processors, so the bounds are wide: they tell a transfer from a stall, not a fast card from
//! a slow one. What is exact is asserted exactly: iterations, bytes, and that nothing was corrupted.

use crate::fail::{Stop, Verdict, ensure, ensure_eq};
use crate::machine::Guest;

/// TIMEOUT: seconds for one tool, which takes about one on an idle core.
const TOOL_S: u64 = 90;
/// Round trips of a ping-pong.
const ROUNDS: u64 = 200;

/// How the client reaches the server for what the tools must agree on first.
#[derive(Clone, Copy)]
pub(super) struct Ends<'a> {
    /// The address of the server's guest.
    pub(super) address: &'a str,
    /// The card's ports, server's and client's.
    pub(super) ports: (u8, u8),
}

/// Both ends on one guest, over the two ports of its card.
pub(super) const LOOP: Ends<'static> = Ends { address: "127.0.0.1", ports: (1, 2) };

/// A ping-pong on one guest.
pub(super) fn pingpong(guest: &mut Guest, kind: &str, size: u64) -> Verdict {
    let program = pingpong_command(kind, size);
    let (server, client) = LOOP.ports;
    let command = format!(
        "{program} -i {server} >/tmp/server 2>&1 & \
         within 20 'netstat -ltn | grep -q :18515'; \
         timeout {TOOL_S} {program} -i {client} {}; status=$?; \
         [ $status = 0 ] || kill %1; wait; echo ==; cat /tmp/server; (exit $status)",
        LOOP.address
    );
    let text = guest.must(&command, TOOL_S + 30)?;
    pingpong_says(&text, size)
}

/// A ping-pong's command, without port and address.
pub(super) fn pingpong_command(kind: &str, size: u64) -> String {
    format!("ibv_{kind}_pingpong -d qib0 -s {size} -n {ROUNDS} -c")
}

/// Both ends of a ping-pong counted every byte and every round.
pub(super) fn pingpong_says(text: &str, size: u64) -> Verdict {
    let bytes = format!("{} bytes in", 2 * ROUNDS * size);
    let rounds = format!("{ROUNDS} iters in");
    let ends = text.matches(&bytes).count().min(text.matches(&rounds).count());
    ensure!(
        ends == 2,
        "{ends} of 2 ends report {bytes:?} and {rounds:?}: {}",
        text.trim().replace('\n', " | ")
    );
    ensure!(!text.contains("invalid data"), "a ping-pong received other bytes than were sent");
    let rate = text.lines().find_map(|line| line.split_once("seconds = ")).map_or("?", |(_, rate)| rate);
    Ok(format!("{ROUNDS} rounds of {size} bytes, {rate}"))
}

/// A perftest on one guest: `program` is one of its tools.
pub(super) fn perftest(guest: &mut Guest, program: &str, size: u64, rounds: u64) -> Verdict {
    let common = format!("{program} -d qib0 -F -s {size} -n {rounds}");
    let (server, client) = LOOP.ports;
    let command = format!(
        "{common} -i {server} >/tmp/server 2>&1 & \
         within 20 'netstat -ltn | grep -q :18515'; \
         timeout {TOOL_S} {common} -i {client} {}; status=$?; \
         [ $status = 0 ] || {{ kill %1; cat /tmp/server; }}; wait; (exit $status)",
        LOOP.address
    );
    let text = guest.must(&command, TOOL_S + 30)?;
    perftest_says(&text, program, size, rounds)
}

/// The row of figures that a perftest prints, checked: size and rounds exactly, the figure within sense.
pub(super) fn perftest_says(text: &str, program: &str, size: u64, rounds: u64) -> Verdict {
    let row = text.lines().find_map(|line| {
        let row: Option<Vec<f64>> = line.split_whitespace().map(|word| word.parse().ok()).collect();
        row.filter(|row| row.len() >= 4 && row[0] == size as f64)
    });
    let Some(row) = row else {
        return Err(Stop::Failed(format!(
            "{program} printed no figures: {}",
            text.trim().replace('\n', " | ")
        )));
    };
    ensure_eq!(row[1], rounds as f64, "the number of rounds");
    if program.ends_with("_bw") {
        let average = row[3];
        // A wire of 40 Gb/s carries at most 4000 MB/s; an emulated guest that moves under 0.05 stalls.
        ensure!((0.05..=4000.0).contains(&average), "{program} averages {average} MB/s");
        Ok(format!("{rounds} of {size} bytes at {average} MB/s"))
    } else {
        let typical = row[4.min(row.len() - 1)];
        ensure!((0.1..=100_000.0).contains(&typical), "{program} takes {typical} µs");
        Ok(format!("{rounds} of {size} bytes, typically {typical} µs"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BW: &str = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n \
                      65536      100              5.12               5.01               0.000080\n";
    const LAT: &str = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]\n \
                       2       100          310.11          900.5        350.25       371.0\n";

    #[test]
    fn figures_are_read_and_a_stall_or_a_wrong_count_is_no_pass() {
        assert!(perftest_says(BW, "ib_write_bw", 65536, 100).is_ok_and(|seen| seen.contains("5.01 MB/s")));
        assert!(perftest_says(LAT, "ib_send_lat", 2, 100).is_ok_and(|seen| seen.contains("350.25")));
        assert!(perftest_says(BW, "ib_write_bw", 65536, 99).is_err());
        assert!(perftest_says(&BW.replace("5.01", "0.00"), "ib_write_bw", 65536, 100).is_err());
        assert!(perftest_says("Couldn't connect", "ib_write_bw", 65536, 100).is_err());
    }

    #[test]
    fn one_end_of_a_ping_pong_is_not_enough() {
        let end = format!(
            "{} bytes in 0.10 seconds = 16.00 Mbit/sec\n{ROUNDS} iters in 0.10 seconds = 500 usec/iter\n",
            2 * ROUNDS * 64
        );
        assert!(pingpong_says(&format!("{end}{end}"), 64).is_ok());
        assert!(pingpong_says(&end, 64).is_err());
        assert!(pingpong_says(&format!("{end}{end}invalid data in page 0"), 64).is_err());
    }
}
