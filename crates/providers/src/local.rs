//! Local servers: where they listen and which models they have.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::ports::ModelChoice;
use futures_util::future::join_all;

use crate::provider::{Options, Provider};
use crate::rows::ROWS;

/// Finds out where local servers listen that have more than one usual place: the first that answers. All are asked at the
/// same time. The result extends [`Options::places`].
pub async fn locate_local(options: &Options, limit: Duration) -> BTreeMap<String, Vec<String>> {
    let rows = ROWS.iter().filter(|row| row.is_local());
    let rows = rows.filter(|row| !options.configured.contains_key(row.id));
    let searches = rows.map(|row| async move {
        let given = options.places.get(row.id).cloned();
        let places = given.unwrap_or_else(|| {
            let urls = std::iter::once(&row.base_url).chain(row.other_urls);
            urls.map(|url| (*url).to_owned()).collect()
        });
        if places.len() < 2 {
            return None;
        }
        let provider = options.provider(row.id);
        let at = |place: &String| provider.at(place);
        let providers: Vec<Provider> = places.iter().map(at).collect();
        let answers = join_all(providers.iter().map(|place| place.ask_models(limit))).await;
        let at = answers.iter().position(Result::is_ok)?;
        Some((row.id.to_owned(), vec![places[at].clone()]))
    });
    join_all(searches).await.into_iter().flatten().collect()
}

/// Asks all local servers at the same time and returns the models of those that run.
pub async fn find_local(options: &Options, limit: Duration) -> Vec<ModelChoice> {
    let local: Vec<Provider> = options
        .providers()
        .into_iter()
        .filter(|provider| provider.is_local() && !provider.is_configured())
        .collect();
    let answers = join_all(local.iter().map(|provider| provider.ask_models(limit))).await;
    answers.into_iter().filter_map(Result::ok).flatten().collect()
}
