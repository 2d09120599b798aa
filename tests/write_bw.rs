//! RDMA writes of every size between two simulated HCAs, measured and verified.

use qhca::verbs::Mtu;
use qhca::verbs::perf::{Endpoint, Plan, write_bandwidth};
use qhca::{Duration, Lid, LidAssignment, Port, Runtime, sim_pair};

const PORT: Port = Port::P0;
const LARGEST: u32 = 1 << 18;

#[test]
fn writes_of_every_size_arrive_whole_and_give_figures() {
    let (left, right) = sim_pair().expect("two boards");
    let start = |device: qhca::Opening, lid| {
        let lid = LidAssignment::new(Lid(lid), 0).expect("a LID");
        device.static_lid(PORT, lid).start(Runtime::Threads).expect("it starts")
    };
    let (left, right) = (start(left, 1), start(right, 2));
    for device in [&left, &right] {
        assert!(device.wait_active(PORT, Duration::from_secs(10)), "{:?}", device.link_advice(PORT));
    }
    let open = |device: &qhca::Device, lid| {
        let ends = (device.open_port(PORT).expect("a context"), device.open_sender().expect("buffers"));
        Endpoint::open(Lid(lid), PORT, ends, LARGEST as usize, 16).expect("an end")
    };
    let (mut from, mut to) = (open(&left, 1), open(&right, 2));
    let now = left.now();
    from.connect(to.name(), Mtu::B2048, now).expect("connected");
    to.connect(from.name(), Mtu::B2048, now).expect("connected");
    let sizes = (1..=18).map(|power| 1 << power).chain([3, 2047, 2049, 100_001]);
    for bytes in sizes {
        let plan = Plan { bytes, iterations: 20, depth: 16, limit: Duration::from_secs(60) };
        let seen = write_bandwidth(&mut from, &mut to, &plan, || left.now())
            .unwrap_or_else(|error| panic!("{bytes} bytes: {error}"));
        assert!(seen.average_mb_s > 0.0 && seen.average_mb_s <= seen.peak_mb_s, "{seen:?}");
    }
}
