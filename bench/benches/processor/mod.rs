//! Time that this thread has spent on a processor.

/// Seconds so far: what others do on the machine does not count.
pub(crate) fn processor_time_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("a Linux kernel with schedstat");
    let ns: u64 =
        stat.split(' ').next().and_then(|ns| ns.parse().ok()).expect("nanoseconds on the processor");
    ns as f64 / 1e9
}
