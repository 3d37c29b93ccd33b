//! Reads limiters as they are stored: which exist, what each holds, and which version of which
//! client wrote its members. Nothing here writes.

pub(crate) mod grants;
pub(crate) mod health;
pub(crate) mod member;
pub(crate) mod reply;
pub(crate) mod sample;
pub(crate) mod scan;
pub(crate) mod script;
pub(crate) mod settings;
pub(crate) mod tally;
