//! `_session/steering`: sends a message to the running turn. An extension that other agents and clients also have.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::decode::read;
use super::tolerate;
use crate::code::RpcError;
use agent_client_protocol_schema::v1 as schema;

/// The parameters of `_session/steering`.
#[derive(Debug)]
pub struct Steer {
    /// The session and the message, as in a prompt.
    pub prompt: schema::PromptRequest,
    /// Whether an idle session is answered with an outcome instead of an error, so that the client can send a prompt.
    pub may_be_idle: bool,
}

impl Steer {
    /// Reads the parameters.
    ///
    /// # Errors
    /// -32602 with the invalid field.
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
