//! How people name a port: by device and IB port number, never by LID.
//!
//! A port that is switched off has no LID, so a tool that addressed it by LID could never switch it on again.

use core::fmt;

/// A port of a device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PortAddress {
    /// The device, as opened: `sim`, `sim:qle7342`, `0000:04:00.0`.
    pub device: String,
    /// IB port number, from 1.
    pub ib_port: u8,
}

/// Why a text names no port.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressError {
    /// It is a LID.
    ByLid(String),
    /// It has no port number.
    NoPort(String),
    /// The port number is neither 1 nor 2.
    IbPort(String),
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByLid(text) => write!(
                f,
                "\"{text}\" is a LID: ports are addressed as DEV:PORT, since a port that is switched off has no LID"
            ),
            Self::NoPort(text) => write!(f, "\"{text}\" names no port: write DEV:PORT, for example sim:1"),
            Self::IbPort(text) => write!(f, "port \"{text}\" does not exist: ports are 1 and 2"),
        }
    }
}

impl std::error::Error for AddressError {}

impl core::str::FromStr for PortAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let text = text.trim_ascii();
        let quoted = || crate::options::quotable(text);
        if is_lid(text) {
            return Err(AddressError::ByLid(quoted()));
        }
        let (device, port) = text.rsplit_once(':').ok_or_else(|| AddressError::NoPort(quoted()))?;
        // One way to write each: `+1` and `01` are refused.
        let ib_port = match port {
            _ if device.is_empty() => return Err(AddressError::NoPort(quoted())),
            "1" => 1,
            "2" => 2,
            _ if port.parse::<i64>().is_ok() => {
                return Err(AddressError::IbPort(crate::options::quotable(port)));
            }
            // `sim:qle7342` or `0000:04:00.0`: a device, and no port.
            _ => return Err(AddressError::NoPort(quoted())),
        };
        Ok(Self { device: device.to_owned(), ib_port })
    }
}

/// A bare number, or one after the word.
fn is_lid(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let number =
        lower.strip_prefix("lid").map_or(lower.as_str(), |rest| rest.trim_start_matches([':', '=', ' ']));
    crate::options::parse_number(number).is_some()
}

impl fmt::Display for PortAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.device, self.ib_port)
    }
}
