//! Modify: a change of state, or of attributes, that happens wholly or not at all.

use qhca_regs::Instant;

use super::{AttrMask, ModifyError, Qp, QpAttr, QpState, Requester, RnrTimer, Settings, allowed};
use crate::out::Template;
use crate::psn::Psn;
use crate::shared::Shared;
use crate::wire::Service;

/// The largest code of a timer, or number of repeats.
const TIMER_MAX: u64 = 31;
const REPEATS_MAX: u64 = 7;

impl Qp {
    /// Changes the queue pair as `attr` says.
    pub(crate) fn modify(&mut self, sh: &mut Shared, attr: &QpAttr, now: Instant) -> Result<(), ModifyError> {
        let to = self.check_change(sh, attr)?;
        let from = self.state;
        self.take_settings(attr);
        match to {
            QpState::Reset => self.reset(),
            QpState::Error => {
                // Whoever asks for it wants silence: no answer is owed any more.
                self.resp.silence();
                self.fail(sh, None, now);
                return Ok(());
            }
            QpState::Rtr if from == QpState::Init => {
                self.resp.start(attr.rq_psn.unwrap_or_default(), self.set.max_dest_rd_atomic);
            }
            QpState::Rts if from == QpState::Rtr => {
                let psn = attr.sq_psn.unwrap_or_default();
                self.req = Requester::start(psn, self.sq.head, self.set.retry_count, self.set.rnr_retry);
            }
            QpState::Sqd if attr.max_dest_rd_atomic.is_some() => {
                self.resp.set_resources(self.set.max_dest_rd_atomic);
            }
            _ => {}
        }
        self.state = to;
        self.drained_event = to == QpState::Sqd && attr.drained_event.unwrap_or(self.drained_event);
        self.pkey = sh.port.pkeys.get(usize::from(self.set.pkey_index)).copied().unwrap_or(0);
        if self.service != Service::Ud {
            self.template = Template::new(&sh.port, &self.set.address, self.pkey, self.set.dest_qp);
        }
        self.look_if_drained(sh);
        sh.schedule(self.index, &mut self.scheduled);
        Ok(())
    }

    /// Whether `attr` may be done from here, and where it leads.
    fn check_change(&self, sh: &Shared, attr: &QpAttr) -> Result<QpState, ModifyError> {
        if let Some(said) = attr.cur_state
            && said != self.state
        {
            return Err(ModifyError::CurrentState { said, is: self.state });
        }
        let (from, to) = (self.state, attr.state.unwrap_or(self.state));
        if attr.alternate_path.is_some() {
            return Err(ModifyError::PathMigration);
        }
        let (needs, optional) =
            allowed(self.service, from, to).ok_or(ModifyError::NoSuchChange { from, to })?;
        let given = attr.mask();
        let missing = needs - given;
        if !missing.is_empty() {
            return Err(ModifyError::Missing(missing));
        }
        let surplus = given - needs - optional;
        if !surplus.is_empty() {
            return Err(ModifyError::NotAllowed(surplus));
        }
        self.check_values(sh, attr)?;
        Ok(to)
    }

    fn check_values(&self, sh: &Shared, attr: &QpAttr) -> Result<(), ModifyError> {
        let depth_max = u64::from(sh.config.max_rd_atomic);
        let pkeys = (sh.port.pkeys.len() as u64).saturating_sub(1);
        let values = [
            (AttrMask::PKEY_INDEX, attr.pkey_index.map(u64::from), pkeys),
            (AttrMask::PORT, attr.port.map(u64::from), 2),
            (AttrMask::TIMEOUT, attr.timeout.map(u64::from), TIMER_MAX),
            (AttrMask::RETRY_COUNT, attr.retry_count.map(u64::from), REPEATS_MAX),
            (AttrMask::RNR_RETRY, attr.rnr_retry.map(u64::from), REPEATS_MAX),
            (AttrMask::MAX_RD_ATOMIC, attr.max_rd_atomic.map(u64::from), depth_max),
            (AttrMask::MAX_DEST_RD_ATOMIC, attr.max_dest_rd_atomic.map(u64::from), depth_max),
            (AttrMask::PATH_MTU, attr.path_mtu.map(|mtu| mtu as u64), sh.port.mtu as u64),
        ];
        for (attribute, value, max) in values {
            if let Some(value) = value.filter(|value| *value > max) {
                return Err(ModifyError::Value { attribute, value, max });
            }
        }
        match attr.min_rnr_timer {
            Some(RnrTimer::Code(0)) => Err(ModifyError::RnrTimerZero),
            Some(RnrTimer::Code(code)) if u64::from(code) > TIMER_MAX => Err(ModifyError::Value {
                attribute: AttrMask::MIN_RNR_TIMER,
                value: code.into(),
                max: TIMER_MAX,
            }),
            _ => Ok(()),
        }
    }

    fn take_settings(&mut self, attr: &QpAttr) {
        let set = &mut self.set;
        *set = Settings {
            access: attr.access.unwrap_or(set.access),
            pkey_index: attr.pkey_index.unwrap_or(set.pkey_index),
            qkey: attr.qkey.unwrap_or(set.qkey),
            address: attr.address.unwrap_or(set.address),
            mtu: attr.path_mtu.unwrap_or(set.mtu),
            timeout: attr.timeout.unwrap_or(set.timeout),
            retry_count: attr.retry_count.unwrap_or(set.retry_count),
            rnr_retry: attr.rnr_retry.unwrap_or(set.rnr_retry),
            max_rd_atomic: attr.max_rd_atomic.unwrap_or(set.max_rd_atomic),
            max_dest_rd_atomic: attr.max_dest_rd_atomic.unwrap_or(set.max_dest_rd_atomic),
            min_rnr_timer: match attr.min_rnr_timer {
                None => set.min_rnr_timer,
                Some(RnrTimer::Code(code)) => code,
                Some(RnrTimer::Longest655Ms) => 0,
            },
            dest_qp: attr.dest_qp.unwrap_or(set.dest_qp),
        };
    }

    /// As new: what waits is forgotten without a completion.
    fn reset(&mut self) {
        self.sq.head = self.sq.tail;
        self.rq.clear();
        self.req = Requester::start(Psn::default(), self.sq.head, 0, 0);
        self.resp.reset();
        self.set = Settings::new();
        self.drained_event = false;
    }
}
