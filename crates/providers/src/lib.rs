//! Model providers: the engine's `Model` over HTTP, in six wire formats.
//!
//! Start with [`Options`]: it combines the table of known providers, the user's config and the API keys into
//! [`Provider`]s, which have the models. `format` has the formats, without IO; only `http` opens connections; `exchange`
//! retries; `learned` is what servers tell about their models.

mod catalogue;
mod connection;
mod endpoint;
mod event_stream;
mod exchange;
mod fault;
mod format;
#[cfg(test)]
mod fuzz;
mod http;
mod images;
mod key;
mod learned;
mod local;
mod model;
mod provider;
mod reading;
mod repetition;
mod retry;
mod rows;
mod sigv4;
mod url;

pub use format::Format;
pub use http::{Timing, post_json};
pub use key::ApiKey;
pub use local::{find_local, locate_local};
pub use provider::{
    KeyCheck, ListedModel, OWN_FILE, Options, Provider, key_variables, keyed_providers,
    known_providers, setting_variables,
};
