//! The back end on a kernel that keeps VFIO's rules.

mod hold;
mod open;

use super::fake::{ADDRESS, Fake};
use super::*;

fn settings(words: &[&str]) -> VfioSettings {
    let mut settings = VfioSettings::default();
    assert!(words.iter().all(|word| settings.set(word)));
    settings
}

fn address() -> PciAddress {
    ADDRESS.parse().expect("an address")
}

fn open(fake: &Fake, words: &[&str]) -> Result<VfioDevice<Fake>, VfioError> {
    VfioDevice::open_on(fake.clone(), address(), settings(words))
}

fn opened(fake: &Fake, words: &[&str]) -> VfioDevice<Fake> {
    open(fake, words).unwrap_or_else(|error| panic!("{error}"))
}

fn vector(n: usize) -> Vector {
    Vector::new(n).expect("a vector")
}

const WAYS: [&str; 2] = ["group", "cdev"];
