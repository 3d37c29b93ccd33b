//! `serve`: starts the server of the crate `redisson-rate-limiter-serve` with the store that the
//! command line names.

use redisson_rate_limiter_serve::{Error, ServeArguments, Store, try_rules};

use crate::failure::Failure;
use crate::report::Report;
use crate::store::StoreArguments;

pub(super) async fn serve(
    store: &StoreArguments,
    arguments: ServeArguments,
) -> Result<Report, Failure> {
    if let Some(tried) = try_rules(&arguments).await? {
        return Ok(Report::either(tried.is_granted, tried.text, tried.json));
    }
    let store = Store {
        builder: store.builder()?,
        url: store.url().map(str::to_owned),
        response_timeout: store.response_timeout(),
    };
    redisson_rate_limiter_serve::serve(store, arguments).await?;
    Ok(Report::printed(true))
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Limiter(error) => error.into(),
            error => Self::usage(error.to_string()),
        }
    }
}
