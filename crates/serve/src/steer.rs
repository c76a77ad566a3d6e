//! `_session/steering`: a message enters the turn that runs, between two requests to the model.

use engine::Error;
use engine::session::Command;
use serde_json::{Value, json};
use wire::acp::schema;
use wire::acp::steer::Steer;
use wire::{RequestId, RpcError};

use crate::bridge;
use crate::calls::{crowded, session_in};
use crate::dispatcher::Dispatcher;
use crate::wake::Answer;

impl Dispatcher {
    /// Lets a message wait for the turn that runs.
    pub(super) fn steer(&mut self, id: &RequestId, request: Steer) -> Result<(), RpcError> {
        self.check_login()?;
        let (may_be_idle, request) = (request.may_be_idle, request.prompt);
        let session = session_in(&request.session_id);
        let Some(entry) = self.sessions.get(&session) else {
            return Err(self.error_out(&Error::NoSuchSession(session)));
        };
        if entry.turn.is_none() && may_be_idle {
            self.answer(id, "_session/steering", &steering_idle());
            return Ok(());
        }
        if entry.turn.is_none() {
            return Err(self.error_out(&Error::NoTurn(session)));
        }
        let prompt = bridge::prompt_in(request.prompt, &entry.cwd, &self.limits)?;
        let (handle, of) = (entry.handle.clone(), session);
        let permit = handle.reserve().map_err(|_| crowded())?;
        let reply = self.reply(id, move |outcome| Answer::Steered(of, may_be_idle, outcome))?;
        permit.send(Command::Steer(prompt, reply));
        Ok(())
    }
}

/// Says that running turns can be steered.
pub(super) fn steering_offer() -> schema::Meta {
    let mut meta = schema::Meta::new();
    meta.insert("steering".to_owned(), json!({ "supported": true }));
    meta
}

/// What a client is told that steers a session without a turn and said that it would prompt then.
pub(super) fn steering_idle() -> Value {
    json!({ "outcome": "promptRequired", "reason": "noRunningTurn" })
}
