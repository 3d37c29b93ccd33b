//! The keys of a limiter that each script takes, in its order.

use smallvec::SmallVec;

use crate::keys::{Keys, sibling};
use crate::permit::CallId;
use crate::rate::RateType;

impl Keys {
    /// The keys that an audit of a limiter of this type reads.
    pub(crate) fn of_audit(&self, rate_type: RateType) -> [&str; 4] {
        let [name, value, permits] = self.of_type(rate_type);
        [name, value, permits, self.audit()]
    }

    /// The keys of a script that gives permits of live grants back.
    pub(crate) fn of_refund(&self) -> [&str; 6] {
        let [name, value, client_value, permits, client_permits] = self.in_order();
        [
            name,
            value,
            client_value,
            permits,
            client_permits,
            self.audit(),
        ]
    }

    /// The keys of an acquire of a limiter of this type.
    fn of_type(&self, rate_type: RateType) -> [&str; 3] {
        let [name, value, client_value, permits, client_permits] = self.in_order();
        match rate_type {
            RateType::Overall => [name, value, permits],
            RateType::PerClient => [name, client_value, client_permits],
        }
    }

    /// The keys of an acquire: those of a limiter of this type, those of the other type if the
    /// acquire may create the limiter, and last the key of the call, if it has one.
    pub(crate) fn of_acquire<'a>(
        &'a self,
        rate_type: RateType,
        sets_up: bool,
        of_call: Option<&'a str>,
    ) -> SmallVec<[&'a str; 6]> {
        let mut keys = SmallVec::new();
        keys.extend(self.of_type(rate_type));
        if sets_up {
            let [_name, others @ ..] = self.of_type(rate_type.other());
            keys.extend(others);
        }
        keys.extend(of_call);
        keys
    }

    /// The key of a call that was granted in part, which exists while a copy of the call may
    /// arrive.
    pub(crate) fn of_call(&self, id: &CallId) -> String {
        sibling(
            &self.name,
            &format!(":{:032x}:call", u128::from_be_bytes(*id)),
        )
    }
}
