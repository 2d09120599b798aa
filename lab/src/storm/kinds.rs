//! The names of the experiment: which storm, as the command line and the results call it. The policies are the driver's.

/// What goes wrong, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Storm {
    /// The receiver's eager buffers overflow: one RcvEgrFullErr a dropped packet.
    EgrFull,
    /// RcvEgrFullErr and SendArmLaunchErr in turn.
    Alternate,
    /// Bursts of RcvICRCErr with RcvHdrErr between them, in the port's own error word.
    Port,
}

impl Storm {
    /// Every storm.
    pub const ALL: [Self; 3] = [Self::EgrFull, Self::Alternate, Self::Port];

    /// The name on the command line and in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::EgrFull => "egrfull",
            Self::Alternate => "alternate",
            Self::Port => "port",
        }
    }

    /// The storm called `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|storm| storm.name() == name)
    }
}
