//! Explains an error word, without a device.
//!
//! `cargo run -p qhca --example decode [WORD]`, by default an overflow together with a bit that nobody knows.

use qhca::errdecode::{Report, Scope, decode};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let word = std::env::args().nth(1).unwrap_or_else(|| "0x0000010000003000".to_owned());
    let word = match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16)?,
        None => word.parse()?,
    };

    // The fast way, for an error path: names only, into any buffer.
    let mut buffer = [0; 256];
    println!("ErrStatus {word:#018x} = {}", decode(Scope::Device, word, &mut buffer));

    // The way for people.
    print!("{}", Report::new(Scope::Device, word));
    Ok(())
}
