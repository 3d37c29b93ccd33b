//! Reading limiters as they are stored: which there are, what each holds, and what its members say
//! about who wrote them. Nothing here writes.

pub(crate) mod grants;
pub(crate) mod health;
pub(crate) mod member;
pub(crate) mod reply;
pub(crate) mod sample;
pub(crate) mod scan;
pub(crate) mod script;
pub(crate) mod settings;
pub(crate) mod tally;
