//! Model providers: the engine's `Model` over HTTP, in four wire formats.
//!
//! Start with [`Options`]: it joins the table of known providers, the user's config and keys into [`Provider`]s, and
//! those have the models. The formats are pure and in `format`; `http` is the only socket; `exchange` retries.

mod catalogue;
mod exchange;
mod fault;
mod format;
mod http;
mod key;
mod model;
mod options;
mod pictures;
mod provider;
mod rows;

pub use format::Format;
pub use http::Timing;
pub use key::ApiKey;
pub use options::{Connection, Cost, Limit, Modalities, ModelOptions, ProviderOptions};
pub use provider::{
    Listed, OWN_FILE, Options, Provider, find_local, key_takers, key_variables, known_providers,
};
