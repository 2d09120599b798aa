//! Opens a device, brings it up without touching its links, and says what it is.
//!
//! `cargo run -p qhca --example identify [DEVICE]`, by default the simulated QLE7342.

use qhca::{Device, Port, Runtime};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "sim".to_owned());
    let device = Device::open(&name)?.no_links().start(Runtime::Threads)?;

    let identity = device.identity();
    println!("{}: {}", device.name(), identity.chip);
    println!("  serial number {}, node GUID {}", identity.serial(), identity.node_guid());
    for port in Port::ALL {
        if let Some(status) = device.link_status(port) {
            println!("  {port}: {status}");
        }
    }
    let split = device.split();
    println!(
        "  {} contexts, {} eager buffers of {} bytes each from context 2 on",
        split.contexts.len(),
        split.cfg.eager_entries(),
        split.eager_buffer_bytes
    );
    print!("{}", device.bring_up_report());
    Ok(())
}
