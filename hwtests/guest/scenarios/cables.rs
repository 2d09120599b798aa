//! What hands do to a running card: the cable is pulled and put back, the module comes out of its cage.

use super::steps::{port_file, wait_state};
use super::traffic;
use crate::fail::{Stop, Verdict, ensure_eq};
use crate::machine::Guest;
use crate::server::Server;

/// Tells the subnet manager to look at everything again and waits until both ports are ACTIVE.
fn active_again(guest: &mut Guest) -> Result<(), Stop> {
    for port in [1, 2] {
        wait_state(guest, port, "INIT|ACTIVE")?;
    }
    guest.must("killall -HUP opensm", 10)?;
    for port in [1, 2] {
        wait_state(guest, port, "ACTIVE")?;
    }
    Ok(())
}

/// What the model says of a port's link.
fn model_link(server: &mut Server, port: usize) -> Result<String, Stop> {
    let state = server.order("state")?;
    let link = &state["cards"][0]["ports"][port - 1]["link"];
    link.as_str()
        .map(str::to_owned)
        .ok_or_else(|| Stop::Lost(format!("the model's state has no link: {state}")))
}

/// Without its cable each port goes DOWN and polls; with it back, both come up and carry traffic.
pub(super) fn cable_out_and_in(guest: &mut Guest, server: &mut Server) -> Verdict {
    ensure_eq!(model_link(server, 1)?, "active", "the model's link before");
    server.order("cable a:1 out")?;
    for port in [1, 2] {
        wait_state(guest, port, "DOWN")?;
        ensure_eq!(port_file(guest, port, "phys_state")?, "2: Polling", "port {port}'s physical state");
    }
    ensure_eq!(model_link(server, 1)?, "down", "the model's link without the cable");
    server.order("cable a:1 in")?;
    active_again(guest)?;
    let traffic = traffic::pingpong(guest, "rc", 4096)?;
    ensure_eq!(model_link(server, 1)?, "active", "the model's link after");
    Ok(format!("DOWN and polling without it, then ACTIVE again, {traffic}"))
}

/// With the module out of its cage the port has no light; with it back in, the driver reads it and the link trains.
pub(super) fn module_out_and_in(guest: &mut Guest, server: &mut Server) -> Verdict {
    guest.must("dmesg -c >/dev/null", 10)?;
    server.order("module a:1 out")?;
    for port in [1, 2] {
        wait_state(guest, port, "DOWN")?;
    }
    server.order("module a:1 in")?;
    active_again(guest)?;
    let traffic = traffic::pingpong(guest, "rc", 4096)?;
    Ok(format!("DOWN without it, then ACTIVE again, {traffic}"))
}
