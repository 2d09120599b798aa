//! The layout of `ibstat`, line for line: people and scripts have read it for fifteen years.
//!
//! Pure text from plain values; `info` fills them in. Labels are followed by a colon and one space, the device's lines
//! are indented by one tab and a port's by two, unless one port alone is asked for.

use serde::{Deserialize, Serialize};
use std::fmt::{self, Write};

/// One device.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Ca {
    pub(crate) name: String,
    pub(crate) ca_type: String,
    pub(crate) firmware_version: String,
    pub(crate) hardware_version: String,
    #[serde(serialize_with = "hex64", deserialize_with = "from_hex64")]
    pub(crate) node_guid: u64,
    #[serde(serialize_with = "hex64", deserialize_with = "from_hex64")]
    pub(crate) system_image_guid: u64,
    pub(crate) ports: Vec<PortView>,
}

/// One port.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PortView {
    pub(crate) port: u8,
    pub(crate) state: String,
    pub(crate) physical_state: String,
    pub(crate) rate: Rate,
    pub(crate) base_lid: u16,
    pub(crate) lmc: u8,
    pub(crate) sm_lid: u16,
    #[serde(serialize_with = "hex32", deserialize_with = "from_hex32")]
    pub(crate) capability_mask: u32,
    #[serde(serialize_with = "hex64", deserialize_with = "from_hex64")]
    pub(crate) port_guid: u64,
    pub(crate) link_layer: String,
}

fn hex64<S: serde::Serializer>(value: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{value:#018x}"))
}

fn hex32<S: serde::Serializer>(value: &u32, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{value:#010x}"))
}

fn from_hex64<'a, D: serde::Deserializer<'a>>(from: D) -> Result<u64, D::Error> {
    let text = String::deserialize(from)?;
    let digits = text.strip_prefix("0x").unwrap_or("none");
    u64::from_str_radix(digits, 16)
        .map_err(|_| serde::de::Error::custom(format!("{text:?} is no number in hex")))
}

fn from_hex32<'a, D: serde::Deserializer<'a>>(from: D) -> Result<u32, D::Error> {
    u32::try_from(from_hex64(from)?).map_err(serde::de::Error::custom)
}

/// A rate as `ibstat` prints it: whole Gb/s, but 2.5 for a single lane at the lowest speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    /// Tenths of a Gb/s.
    pub(crate) tenth_gbps: u32,
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.tenth_gbps / 10, self.tenth_gbps % 10) {
            (whole, 0) => write!(f, "{whole}"),
            (whole, tenths) => write!(f, "{whole}.{tenths}"),
        }
    }
}

impl Serialize for Rate {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.tenth_gbps % 10 {
            0 => to.serialize_u32(self.tenth_gbps / 10),
            _ => to.serialize_f64(f64::from(self.tenth_gbps) / 10.0),
        }
    }
}

impl<'a> Deserialize<'a> for Rate {
    fn deserialize<D: serde::Deserializer<'a>>(from: D) -> Result<Self, D::Error> {
        let gbps = f64::deserialize(from)?;
        match (0.0..10_000.0).contains(&gbps) {
            true => Ok(Self { tenth_gbps: (gbps * 10.0).round() as u32 }),
            false => Err(serde::de::Error::custom(format!("{gbps} Gb/s is no rate"))),
        }
    }
}

/// The block of a device; without its ports if `short`.
pub(crate) fn device_text(ca: &Ca, short: bool) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "CA '{}'", ca.name);
    let _ = writeln!(text, "\tCA type: {}", ca.ca_type);
    let _ = writeln!(text, "\tNumber of ports: {}", ca.ports.len());
    let _ = writeln!(text, "\tFirmware version: {}", ca.firmware_version);
    let _ = writeln!(text, "\tHardware version: {}", ca.hardware_version);
    let _ = writeln!(text, "\tNode GUID: {:#018x}", ca.node_guid);
    let _ = writeln!(text, "\tSystem image GUID: {:#018x}", ca.system_image_guid);
    if !short {
        for port in &ca.ports {
            let _ = writeln!(text, "\tPort {}:", port.port);
            write_port(&mut text, port, "\t\t");
        }
    }
    text
}

/// One port alone.
pub(crate) fn port_text(ca: &Ca, port: &PortView) -> String {
    let mut text = format!("CA: '{}'\nPort {}:\n", ca.name, port.port);
    write_port(&mut text, port, "");
    text
}

fn write_port(text: &mut String, port: &PortView, indent: &str) {
    let _ = writeln!(text, "{indent}State: {}", port.state);
    let _ = writeln!(text, "{indent}Physical state: {}", port.physical_state);
    let _ = writeln!(text, "{indent}Rate: {}", port.rate);
    let _ = writeln!(text, "{indent}Base lid: {}", port.base_lid);
    let _ = writeln!(text, "{indent}LMC: {}", port.lmc);
    let _ = writeln!(text, "{indent}SM lid: {}", port.sm_lid);
    let _ = writeln!(text, "{indent}Capability mask: {:#010x}", port.capability_mask);
    let _ = writeln!(text, "{indent}Port GUID: {:#018x}", port.port_guid);
    let _ = writeln!(text, "{indent}Link layer: {}", port.link_layer);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_port() -> Ca {
        let port = PortView {
            port: 1,
            state: "Active".into(),
            physical_state: "LinkUp".into(),
            rate: Rate { tenth_gbps: 400 },
            base_lid: 6,
            lmc: 0,
            sm_lid: 1,
            capability_mask: 0x0761_0868,
            port_guid: 0x0011_7500_0070_4ac2,
            link_layer: "InfiniBand".into(),
        };
        Ca {
            name: "qib0".into(),
            ca_type: "InfiniPath_QLE7340".into(),
            firmware_version: String::new(),
            hardware_version: "2".into(),
            node_guid: port.port_guid,
            system_image_guid: port.port_guid,
            ports: vec![port],
        }
    }

    #[test]
    fn device_has_the_layout_of_ibstat() {
        let expected = "CA 'qib0'\n\tCA type: InfiniPath_QLE7340\n\tNumber of ports: 1\n\tFirmware version: \n\
            \tHardware version: 2\n\tNode GUID: 0x0011750000704ac2\n\tSystem image GUID: 0x0011750000704ac2\n\
            \tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: 40\n\t\tBase lid: 6\n\t\tLMC: 0\n\
            \t\tSM lid: 1\n\t\tCapability mask: 0x07610868\n\t\tPort GUID: 0x0011750000704ac2\n\
            \t\tLink layer: InfiniBand\n";
        assert_eq!(device_text(&one_port(), false), expected);
        let (device, _) = expected.split_once("\tPort 1").expect("a port follows");
        assert_eq!(device_text(&one_port(), true), device);
    }

    #[test]
    fn one_slow_lane_has_two_and_a_half_gigabits() {
        assert_eq!(Rate { tenth_gbps: 25 }.to_string(), "2.5");
        assert_eq!(Rate { tenth_gbps: 100 }.to_string(), "10");
        assert_eq!(
            serde_json::json!([Rate { tenth_gbps: 25 }, Rate { tenth_gbps: 400 }]),
            serde_json::json!([2.5, 40])
        );
    }

    #[test]
    fn port_alone_has_a_colon_behind_ca_and_no_indentation() {
        let ca = one_port();
        let text = port_text(&ca, &ca.ports[0]);
        assert!(text.starts_with("CA: 'qib0'\nPort 1:\nState: Active\n"), "{text}");
        assert!(!text.contains('\t'), "{text}");
    }
}
