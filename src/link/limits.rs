//! Until when an attempt of a call may run, and whether another one may follow.

use tokio::time::Instant;

/// Whether a call whose answer was lost may be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    Safe,
    Never,
}

/// What an attempt must observe.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) deadline: Instant,
    /// Until when the server may receive the call.
    pub(crate) valid_until: Instant,
    pub(crate) repeat: Repeat,
    /// Whether the attempt waits for a connection. Otherwise it is not sent if there is none.
    pub(crate) waits_to_connect: bool,
    /// Whether the attempt is sent only over a connection that leads to one server.
    pub(crate) needs_one_server: bool,
    /// How many requests for permits the call has, for events.
    pub(crate) requests: u32,
    /// The number of the attempt, from 1, for events.
    pub(crate) attempt: u32,
}

impl Limits {
    pub(crate) fn new(deadline: Instant, repeat: Repeat) -> Self {
        Self {
            deadline,
            valid_until: deadline,
            repeat,
            waits_to_connect: true,
            needs_one_server: false,
            requests: 0,
            attempt: 1,
        }
    }

    /// For an attempt that is noted as one that may have run: it is sent at once, or not at all.
    pub(crate) fn at_once(self) -> Self {
        Self {
            waits_to_connect: false,
            ..self
        }
    }

    /// For a call on keys that one server has.
    pub(crate) fn on_one_server(self) -> Self {
        Self {
            needs_one_server: true,
            ..self
        }
    }

    pub(crate) fn for_requests(self, requests: u32) -> Self {
        Self { requests, ..self }
    }

    #[cfg(test)]
    pub(crate) fn for_test() -> Self {
        let minute = std::time::Duration::from_secs(60);
        Self::new(Instant::now() + minute, Repeat::Never)
    }
}
