//! What a port shows in `IBCStatusA` of what it has agreed on with its peer.

use super::negotiate::DDR;
use super::tests::Bench;
use super::*;
use qhca_regs::map::port::{IbcCtrlA, IbcStatusA};

const P: Port = Port::P0;
const CTRL_A: u32 = port::IBC_CTRL_A.port(P).offset();

fn status(bench: &mut Bench) -> (u8, u8) {
    (status_a(bench).link_training_state(), status_a(bench).link_state())
}

fn enabled() -> IbcCtrlA {
    IbcCtrlA::default().with_ib_link_en(true)
}

/// A port out of reset whose peer polls at all speeds.
fn polling() -> Bench {
    let mut bench = Bench::new();
    bench.write(port::IBPCS_CONFIG.port(P).offset(), 0);
    bench.write(CTRL_A, enabled().0);
    bench.peer(P, PeerState::Training(Offer::ALL));
    bench
}

fn status_a(bench: &mut Bench) -> IbcStatusA {
    IbcStatusA(bench.read(port::IBC_STATUS_A.port(P).offset()))
}

#[test]
fn narrow_port_comes_up_one_lane_wide() {
    let mut bench = polling();
    let narrow = port::IbcCtrlB(0x304BF).with_ib_num_channels(0);
    bench.write(port::IBC_CTRL_B.port(P).offset(), narrow.0);
    bench.settle();
    assert_eq!(status(&mut bench), (1, 1));
    assert!(!status_a(&mut bench).link_width_active() && status_a(&mut bench).link_speed_qdr());
}

/// The older negotiation: a peer without enhanced mode is met at SDR, and at DDR if both begin there.
#[test]
fn old_peer_is_met_where_it_begins() {
    let mut bench = polling();
    let old = Offer { enhanced: false, ..Offer::of_speeds(3) };
    bench.peer(P, PeerState::Training(old));
    bench.settle();
    let speeds = |bench: &mut Bench| {
        let status = status_a(bench);
        (status.link_training_state(), status.link_speed_active(), status.link_speed_qdr())
    };
    assert_eq!(speeds(&mut bench), (1, false, false), "SDR");
    bench.write(CTRL_A, 0);
    let ddr_only = port::IbcCtrlB(0x304BF).with_ib_enhanced_mode(false);
    let ddr_only = ddr_only.with_sd_speed_sdr(false).with_sd_speed_qdr(false);
    bench.write(port::IBC_CTRL_B.port(P).offset(), ddr_only.0);
    bench.peer(P, PeerState::Training(Offer { speeds: DDR, ..old }));
    bench.write(CTRL_A, enabled().0);
    bench.settle();
    assert_eq!(speeds(&mut bench), (1, true, false), "DDR");
}

#[test]
fn scrambling_is_on_if_both_ends_can() {
    let mut bench = polling();
    let local = port::IbncModeCtrl::default().with_scramble_cap_local(true);
    bench.write(port::IBNC_MODE_CTRL.port(P).offset(), local.0);
    bench.settle();
    assert!(status_a(&mut bench).scramble_en() && status_a(&mut bench).scramble_cap_remote());
    bench.write(CTRL_A, 0);
    bench.write(port::IBNC_MODE_CTRL.port(P).offset(), local.with_scramble_cap_remote_mask(true).0);
    bench.write(CTRL_A, enabled().0);
    bench.settle();
    assert!(!status_a(&mut bench).scramble_en() && !status_a(&mut bench).scramble_cap_remote());
}

#[test]
fn link_ends_with_its_module_and_boards_without_cages_need_none() {
    let mut bench = polling();
    bench.settle();
    bench.set_module(P, false);
    assert_eq!(status(&mut bench), (2, 0));
    assert_eq!(bench.chip.own_link(P), PeerState::Silent);
    bench.set_module(P, true);
    bench.settle();
    assert_eq!(status(&mut bench), (1, 1));
    let mut mezzanine =
        Bench::with(Config { board: Board::Qme7342, modules: [None, None], ..Config::default() });
    mezzanine.activate(P);
}

#[test]
fn every_board_brings_up_the_ports_and_speeds_it_has() {
    for board in Board::ALL {
        for port in Port::ALL {
            let mut bench = Bench::on(board);
            bench.write(port::IBPCS_CONFIG.port(port).offset(), 0);
            bench.write(port::IBC_CTRL_A.port(port).offset(), enabled().0);
            bench.peer(port, PeerState::Training(Offer::ALL));
            bench.settle();
            let status = IbcStatusA(bench.read(port::IBC_STATUS_A.port(port).offset()));
            let expected = if board.speeds(port) == 0 { (2, 0) } else { (1, 1) };
            assert_eq!((status.link_training_state(), status.link_state()), expected, "{board:?} {port}");
            assert_eq!(status.link_speed_qdr(), board.speeds(port) != 0, "{board:?}: all know QDR");
        }
    }
}
