//! One of each algorithm, for tests of what each must show.

use std::sync::Arc;
use std::time::Duration;

use super::algorithm::{AnyModel, Model};
use super::example::Example;
use super::shared_rate::SharedRate;

macro_rules! every_kind {
    ([$one:ident] $($name:ident: $Policy:ident,)*) => {
        [$($one::<super::$Policy>(),)*]
    };
}

/// An algorithm of each kind, with all the keys that it may have.
pub(crate) fn every_kind(client_id: &str) -> impl Iterator<Item = Arc<dyn AnyModel>> {
    let shared = SharedRate::as_it_is(client_id, None);
    let all = policies!(every_kind! { changed }).into_iter();
    all.chain([Arc::new(shared) as _])
}

/// It replaces another one while requests come in.
fn changed<M: Model + Example>() -> Arc<dyn AnyModel> {
    let [before, after] = [1, 2].map(|seconds| M::example(5, Duration::from_secs(seconds)));
    Arc::new(after.after(&before).0)
}
