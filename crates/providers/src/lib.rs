//! Model providers: the engine's `Model` over HTTP, in four wire formats.
//!
//! Start with [`Options`]: it combines the table of known providers, the user's config and the API keys into
//! [`Provider`]s, which have the models. `format` has the formats, without IO; only `http` opens connections; `exchange`
//! retries.

mod catalogue;
mod endpoint;
mod exchange;
mod fault;
mod format;
mod http;
mod images;
mod key;
mod model;
mod provider;
mod rows;
mod url;

pub use format::Format;
pub use http::Timing;
pub use key::ApiKey;
pub use provider::{
    ListedModel, OWN_FILE, Options, Provider, find_local, key_variables, keyed_providers,
    known_providers,
};
