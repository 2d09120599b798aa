//! The first message of a connection: protocol version and what each side can do.

use crate::wire::{Put, Reader};
use crate::{ParseError, XFER_MAX_BYTES};
use serde_json::{Map, Value, json};

/// What a side can do; a side that does not say has the defaults of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Descriptors that it takes beside one message.
    pub max_msg_fds: u32,
    /// Bytes in one region or DMA transfer.
    pub max_data_xfer_size: u32,
    /// Memory maps at a time.
    pub max_dma_maps: u32,
    /// Page sizes for maps, or'ed together.
    pub pgsizes: u64,
    /// Understands several writes in one message.
    pub write_multiple: bool,
}

impl Default for Capabilities {
    fn default() -> Self {
        let (max_data_xfer_size, max_dma_maps) = (XFER_MAX_BYTES, 65_535);
        Self { max_msg_fds: 1, max_data_xfer_size, max_dma_maps, pgsizes: 4096, write_multiple: false }
    }
}

/// A version message, asked and answered in one form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Major version; both sides need the same.
    pub major: u16,
    /// Minor version; the reply's is at most the request's.
    pub minor: u16,
    /// What the sender can do.
    pub capabilities: Capabilities,
}

/// The version we speak.
pub(crate) const MAJOR: u16 = 0;
pub(crate) const MINOR: u16 = 1;

/// Longest capability text that is looked at.
const TEXT_MAX_BYTES: usize = 16 * 1024;

impl Version {
    /// What we offer.
    pub const fn ours(capabilities: Capabilities) -> Self {
        Self { major: MAJOR, minor: MINOR, capabilities }
    }

    /// The answer to a client that proposed `self`, from a server that can do `ours`: no limit above either side's.
    ///
    /// # Errors
    /// [`ParseError::Field`] if the major versions differ; the client then closes.
    pub fn answer(&self, ours: Capabilities) -> Result<Self, ParseError> {
        if self.major != MAJOR {
            return Err(ParseError::Field { what: "major version", value: self.major.into(), allowed: "0" });
        }
        let theirs = self.capabilities;
        let write_multiple = ours.write_multiple && theirs.write_multiple;
        let max_data_xfer_size = ours.max_data_xfer_size.min(theirs.max_data_xfer_size);
        let capabilities = Capabilities { write_multiple, max_data_xfer_size, ..ours };
        Ok(Self { major: MAJOR, minor: self.minor.min(MINOR), capabilities })
    }

    /// Reads the payload; the capability text may be missing, and names it does not know are skipped.
    ///
    /// # Errors
    /// [`ParseError::Capabilities`] if the text is there and is not JSON, [`ParseError::Field`] for a limit of 0.
    pub fn parse(payload: &[u8]) -> Result<Self, ParseError> {
        let mut r = Reader::new("VERSION", payload);
        let (major, minor) = (r.u16()?, r.u16()?);
        let text = r.rest();
        let capabilities = if text.is_empty() { Capabilities::default() } else { parse_text(text)? };
        Ok(Self { major, minor, capabilities })
    }

    /// The payload.
    pub fn build(&self) -> Vec<u8> {
        let c = &self.capabilities;
        let mut capabilities = json!({
            "max_msg_fds": c.max_msg_fds,
            "max_data_xfer_size": c.max_data_xfer_size,
            "max_dma_maps": c.max_dma_maps,
            "pgsizes": c.pgsizes,
        });
        if c.write_multiple {
            capabilities["write_multiple"] = Value::Bool(true);
        }
        let mut out = Vec::new();
        out.put16(self.major).put16(self.minor);
        out.extend_from_slice(json!({ "capabilities": capabilities }).to_string().as_bytes());
        out.push(0);
        out
    }
}

fn parse_text(text: &[u8]) -> Result<Capabilities, ParseError> {
    let refuse = |reason: String| ParseError::Capabilities { reason };
    if text.len() > TEXT_MAX_BYTES {
        return Err(refuse(format!("{} bytes are more than {TEXT_MAX_BYTES}", text.len())));
    }
    let Some((0, text)) = text.split_last().map(|(last, text)| (*last, text)) else {
        return Err(refuse("no zero byte at its end".to_owned()));
    };
    let value: Value = serde_json::from_slice(text).map_err(|e| refuse(e.to_string()))?;
    let empty = Map::new();
    let object = match value.get("capabilities") {
        None => &empty,
        Some(Value::Object(object)) => object,
        Some(_) => return Err(refuse("`capabilities` is not an object".to_owned())),
    };
    let defaults = Capabilities::default();
    Ok(Capabilities {
        max_msg_fds: number(object, "max_msg_fds", defaults.max_msg_fds.into())?.min(u32::MAX.into()) as u32,
        max_data_xfer_size: number(object, "max_data_xfer_size", XFER_MAX_BYTES.into())?
            .min(XFER_MAX_BYTES.into()) as u32,
        max_dma_maps: number(object, "max_dma_maps", defaults.max_dma_maps.into())?.min(u32::MAX.into())
            as u32,
        pgsizes: number(object, "pgsizes", defaults.pgsizes)?,
        write_multiple: object.get("write_multiple").and_then(Value::as_bool).unwrap_or(false),
    })
}

fn number(object: &Map<String, Value>, name: &'static str, default: u64) -> Result<u64, ParseError> {
    match object.get(name) {
        None => Ok(default),
        Some(value) => match value.as_u64() {
            Some(0) => Err(ParseError::Field { what: name, value: 0, allowed: "1 and more" }),
            Some(number) => Ok(number),
            None => Err(ParseError::Capabilities { reason: format!("`{name}` is not a whole number") }),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn with_text(text: &str) -> Vec<u8> {
        let mut payload = vec![0, 0, 1, 0];
        payload.extend_from_slice(text.as_bytes());
        payload.push(0);
        payload
    }

    #[test]
    fn what_is_not_said_has_the_protocols_defaults() {
        for payload in [
            vec![0, 0, 1, 0],
            with_text("{}"),
            with_text("7"),
            with_text(r#"{"capabilities":{"strange":[1,2]}}"#),
        ] {
            assert_eq!(Version::parse(&payload).map(|v| v.capabilities), Ok(Capabilities::default()));
        }
    }

    #[test]
    fn broken_capability_texts_are_refused_with_a_reason() {
        for text in ["{", "{\"capabilities\":7}", r#"{"capabilities":{"max_msg_fds":"x"}}"#] {
            let parsed = Version::parse(&with_text(text));
            assert!(
                matches!(parsed, Err(ParseError::Capabilities { .. })) || text == "7",
                "{text}: {parsed:?}"
            );
        }
        let unterminated = [&[0, 0, 1, 0][..], b"{}"].concat();
        assert!(matches!(Version::parse(&unterminated), Err(ParseError::Capabilities { .. })));
        let zero = with_text(r#"{"capabilities":{"max_data_xfer_size":0}}"#);
        assert!(matches!(Version::parse(&zero), Err(ParseError::Field { .. })));
    }

    #[test]
    fn an_answer_never_promises_more_than_either_side_can_do() {
        let ours = Capabilities { write_multiple: true, max_msg_fds: 8, ..Capabilities::default() };
        let mut theirs = Version::ours(Capabilities { max_data_xfer_size: 4096, ..Capabilities::default() });
        let answer = theirs.answer(ours).unwrap();
        assert_eq!(answer.capabilities.max_data_xfer_size, 4096);
        assert!(!answer.capabilities.write_multiple);
        theirs.major = 1;
        assert!(theirs.answer(ours).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_are_refused(payload in prop::collection::vec(any::<u8>(), 0..100)) {
            if let Ok(version) = Version::parse(&payload) {
                prop_assert_eq!(Version::parse(&version.build()), Ok(version));
            }
        }
    }
}
