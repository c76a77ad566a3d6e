//! `_session/steering`: a message for the turn that runs. An extension that other agents and clients have, too.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{read, schema, tolerate};
use crate::code::RpcError;

/// The parameters of `_session/steering`.
#[derive(Debug)]
pub struct Steer {
    /// The session and what is said, as in a prompt.
    pub prompt: schema::PromptRequest,
    /// Whether a session that runs no turn is answered with an outcome instead of an error, so that the client prompts.
    pub may_be_idle: bool,
}

impl Steer {
    /// Reads the parameters.
    ///
    /// # Errors
    /// -32602 with the field.
    pub fn decode(params: Option<&RawValue>) -> Result<Steer, RpcError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Idle {
            #[serde(default)]
            idle_behavior: Option<String>,
        }
        let prompt = tolerate::prompt(params)?;
        let Idle { idle_behavior } = read(params)?;
        Ok(Steer { prompt, may_be_idle: idle_behavior.as_deref() == Some("promptRequired") })
    }
}
