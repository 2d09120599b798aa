//! What two ends of a cable offer each other, and what they agree on: speed, width, scrambling.
//!
//! ```text
//!   IBCCtrlB   speeds SDR DDR QDR, enhanced mode, width 1X / 4X / either      IBNCModeCtrl   scrambling
//!                    '------------------------- Offer ----------------------------------------'
//!   both ends in enhanced mode:  the highest common speed       else:  the lowest of each end, if it is the same
//!   width:                       4X if both can, else 1X        scrambling: if both can, in enhanced mode
//! ```
//!
//! Enhanced mode is the speed negotiation of IBTA 1.2. A port without it stays at the speed at which it begins, the
//! lowest that is enabled; that is why the stock driver, finding itself at SDR, makes both ends begin at DDR
//! (F-480 to F-483).

use qhca_regs::map::port;

/// Speed codes, as in the board's and the port's masks.
pub(super) const SDR: u8 = 1;
pub(super) const DDR: u8 = 2;
pub(super) const QDR: u8 = 4;
const X1: u8 = 1;
const X4: u8 = 2;

/// What a port that wants a link says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// SDR 1, DDR 2, QDR 4.
    pub speeds: u8,
    /// 1X 1, 4X 2.
    pub widths: u8,
    /// Negotiates its speed as IBTA 1.2 says.
    pub enhanced: bool,
    /// Of several common speeds in enhanced mode the highest is taken, not the lowest.
    pub highest: bool,
    /// Can scramble.
    pub scrambles: bool,
}

impl Offer {
    /// A port that can do everything.
    pub const ALL: Self = Self::of_speeds(SDR | DDR | QDR);

    /// A port that can do everything, at these speeds.
    pub const fn of_speeds(speeds: u8) -> Self {
        Self { speeds, widths: X1 | X4, enhanced: true, highest: true, scrambles: true }
    }

    /// What the registers offer of the speeds that the board brings out.
    pub(super) fn from_registers(b: port::IbcCtrlB, mode: port::IbncModeCtrl, board_speeds: u8) -> Self {
        let speeds = u8::from(b.sd_speed_sdr()) * SDR
            + u8::from(b.sd_speed_ddr()) * DDR
            + u8::from(b.sd_speed_qdr()) * QDR;
        let widths = match b.ib_num_channels() {
            0 => X1,
            3 => X1 | X4,
            _ => X4,
        };
        Self {
            speeds: speeds & board_speeds,
            widths,
            enhanced: b.ib_enhanced_mode(),
            highest: b.sd_speed(),
            scrambles: mode.scramble_cap_local(),
        }
    }

    fn lowest(self) -> u8 {
        self.speeds & self.speeds.wrapping_neg()
    }
}

/// What a link runs at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Agreed {
    pub(super) speed: u8,
    pub(super) wide: bool,
    pub(super) scrambled: bool,
}

/// What `own` and `peer` agree on; `None` if they find no common speed or width.
pub(super) fn agree(own: Offer, peer: Offer) -> Option<Agreed> {
    let common = own.speeds & peer.speeds;
    let enhanced = own.enhanced && peer.enhanced;
    let speed = match enhanced {
        true if own.highest && peer.highest => highest_of(common),
        true => common & common.wrapping_neg(),
        false if own.lowest() == peer.lowest() => own.lowest(),
        false => 0,
    };
    let widths = own.widths & peer.widths;
    (speed != 0 && widths != 0).then_some(Agreed {
        speed,
        wide: widths & X4 != 0,
        scrambled: enhanced && own.scrambles && peer.scrambles,
    })
}

fn highest_of(speeds: u8) -> u8 {
    [QDR, DDR, SDR].into_iter().find(|speed| speeds & speed != 0).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use qhca_regs::map::port::{IbcCtrlB, IbncModeCtrl};

    fn offer(b: IbcCtrlB) -> Offer {
        Offer::from_registers(b, IbncModeCtrl::default().with_scramble_cap_local(true), 7)
    }

    #[test]
    fn stock_setting_against_itself_is_qdr_4x_scrambled() {
        let stock = offer(IbcCtrlB(0x304BF));
        let agreed = Agreed { speed: QDR, wide: true, scrambled: true };
        assert_eq!(agree(stock, stock), Some(agreed));
        assert_eq!(agree(stock, Offer::ALL), Some(agreed));
    }

    #[test]
    fn peer_without_enhanced_mode_gives_sdr_until_both_begin_at_ddr() {
        let stock = offer(IbcCtrlB(0x304BF));
        let old = Offer { enhanced: false, ..Offer::of_speeds(SDR | DDR) };
        assert_eq!(agree(stock, old).map(|agreed| agreed.speed), Some(SDR));
        let ddr_only = offer(
            IbcCtrlB(0x304BF).with_ib_enhanced_mode(false).with_sd_speed_sdr(false).with_sd_speed_qdr(false),
        );
        assert_eq!(agree(ddr_only, Offer { speeds: DDR, ..old }).map(|agreed| agreed.speed), Some(DDR));
        assert_eq!(agree(ddr_only, old), None, "one end still begins at SDR");
    }

    #[test]
    fn width_is_what_both_ends_can() {
        let channels = |code| offer(IbcCtrlB(0x304BF).with_ib_num_channels(code));
        let wide = |a, b| agree(channels(a), channels(b)).map(|agreed| agreed.wide);
        assert_eq!((wide(0, 3), wide(3, 3), wide(1, 3)), (Some(false), Some(true), Some(true)));
        assert_eq!(wide(0, 1), None, "1X only and 4X only");
    }

    #[test]
    fn board_that_knows_only_qdr_offers_no_more() {
        let qdr_only = Offer::from_registers(IbcCtrlB(0x304BF), IbncModeCtrl::default(), QDR);
        assert_eq!(qdr_only.speeds, QDR);
        assert_eq!(agree(qdr_only, Offer::of_speeds(SDR | DDR)), None);
    }

    fn any_offer() -> impl Strategy<Value = Offer> {
        (0..8u8, 0..4u8, any::<(bool, bool, bool)>()).prop_map(
            |(speeds, widths, (enhanced, highest, scrambles))| Offer {
                speeds,
                widths,
                enhanced,
                highest,
                scrambles,
            },
        )
    }

    proptest! {
        #[test]
        fn both_ends_agree_on_the_same_and_only_on_what_both_offer(a in any_offer(), b in any_offer()) {
            let agreed = agree(a, b);
            prop_assert_eq!(agreed, agree(b, a));
            if let Some(Agreed { speed, wide, .. }) = agreed {
                prop_assert_eq!(speed.count_ones(), 1);
                prop_assert!(a.speeds & b.speeds & speed != 0);
                let width = if wide { X4 } else { X1 };
                prop_assert!(a.widths & b.widths & width != 0);
            }
        }
    }
}
