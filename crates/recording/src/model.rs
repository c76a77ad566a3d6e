//! Models: their requests are compared, their answers are played.

use std::sync::Arc;

use engine::hub::FindModels;
use engine::ports::{Model, ModelChoice, ModelError, ModelEvent, ModelStream, Request};
use engine::words::{ModelId, Price, Profile};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::recorder::Recorder;
use crate::tape::Tape;

/// A model as it is written.
#[derive(Serialize, Deserialize)]
pub(crate) struct ChoiceValue {
    id: ModelId,
    name: String,
    context_size: u64,
    price: Option<Price>,
    can_think: bool,
    profile: Option<Profile>,
}

/// An item of an answer.
#[derive(Serialize, Deserialize)]
enum ItemValue {
    Event(ModelEvent),
    Error(ModelError),
    End,
    /// A defect of the program.
    Panic,
}

impl Tape {
    /// Wraps what finds the models of sessions.
    #[must_use]
    pub fn models(&self, find: FindModels) -> FindModels {
        let tape = self.clone();
        Arc::new(move || {
            let (tape, find) = (tape.clone(), Arc::clone(&find));
            Box::pin(async move {
                let mut real = None;
                let find = async {
                    let found = find().await;
                    let values: Vec<ChoiceValue> = found.iter().map(value_of).collect();
                    real = Some(found);
                    values
                };
                let values = tape.step("models", find).await;
                match real {
                    Some(found) => found.iter().map(|choice| tape.model(choice)).collect(),
                    None => values.into_iter().map(|value| tape.played_model(value)).collect(),
                }
            })
        })
    }

    pub(crate) fn model(&self, choice: &ModelChoice) -> ModelChoice {
        let inner = Some(Arc::clone(&choice.model));
        let model = TapedModel { tape: self.clone(), id: choice.id.clone(), inner };
        ModelChoice { model: Arc::new(model), ..choice.clone() }
    }

    pub(crate) fn played_model(&self, value: ChoiceValue) -> ModelChoice {
        let ChoiceValue { id, name, context_size, price, can_think, profile } = value;
        let model = TapedModel { tape: self.clone(), id: id.clone(), inner: None };
        let model = Arc::new(model);
        ModelChoice { id, name, context_size, price, can_think, profile, model }
    }
}

pub(crate) fn value_of(choice: &ModelChoice) -> ChoiceValue {
    ChoiceValue {
        id: choice.id.clone(),
        name: choice.name.clone(),
        context_size: choice.context_size,
        price: choice.price,
        can_think: choice.can_think,
        profile: choice.profile,
    }
}

struct TapedModel {
    tape: Tape,
    id: ModelId,
    inner: Option<Arc<dyn Model>>,
}

impl TapedModel {
    /// Returns the key of a request: a hash of all that the model gets, so that another request is noticed.
    fn key(&self, request: &Request) -> String {
        let tools: Vec<[&str; 3]> = request
            .tools
            .iter()
            .map(|tool| [tool.name.as_str(), tool.description.as_str(), tool.schema.text()])
            .collect();
        let mut value = json!({
            "model": request.model,
            "instructions": *request.instructions,
            "messages": request.messages,
            "tools": tools,
            "thinking": request.thinking,
        });
        match &self.tape {
            Tape::Record(recorder) => recorder.masks().value(&mut value),
            Tape::Play(player) => player.masks().value(&mut value),
        }
        let hash = Sha256::digest(value.to_string());
        let hash: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let key = format!("model {} {} messages {hash}", self.id, request.messages.len());
        format!("{key} {}", self.tape.ordinal(&key))
    }
}

/// An answer that is recorded or played.
struct Answer {
    tape: Tape,
    key: String,
    /// The real one.
    answer: Option<ModelStream>,
    recorder: Option<Arc<Recorder>>,
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(recorder) = self.recorder.as_ref().filter(|_| std::thread::panicking()) {
            recorder.step(&self.key, &ItemValue::Panic);
        }
    }
}

async fn next_item(mut of: Answer) -> Option<(Result<ModelEvent, ModelError>, Answer)> {
    let Answer { tape, key, answer, .. } = &mut of;
    let next = async {
        match answer.as_mut()?.next().await? {
            Ok(event) => Some(ItemValue::Event(event)),
            Err(err) => Some(ItemValue::Error(err)),
        }
    };
    if let Tape::Play(player) = &*tape {
        player.must_have(key);
    }
    let item = tape.step(key, next.map(|item| item.unwrap_or(ItemValue::End))).await;
    let item = match item {
        ItemValue::Event(event) => Ok(event),
        ItemValue::Error(err) => Err(err),
        ItemValue::End => return None,
        ItemValue::Panic => std::panic::resume_unwind(Box::new("the model panicked")),
    };
    Some((item, of))
}

impl Model for TapedModel {
    fn answer(&self, request: Request) -> ModelStream {
        let key = self.key(&request);
        let recorder = match &self.tape {
            Tape::Record(recorder) => Some(Arc::clone(recorder)),
            Tape::Play(_) => None,
        };
        let answer = self.inner.as_ref().map(|inner| inner.answer(request));
        let state = Answer { tape: self.tape.clone(), key, answer, recorder };
        Box::pin(stream::unfold(state, next_item))
    }

    fn prepare(&self) -> BoxFuture<'_, ()> {
        match &self.inner {
            Some(inner) => inner.prepare(),
            None => Box::pin(std::future::ready(())),
        }
    }

    fn sees_pictures(&self) -> bool {
        let key = format!("pictures {}", self.id);
        self.tape.state(&key, || self.inner.as_ref().is_none_or(|inner| inner.sees_pictures()))
    }

    fn window(&self) -> Option<u64> {
        let key = format!("window {}", self.id);
        self.tape.state(&key, || self.inner.as_ref().and_then(|inner| inner.window()))
    }
}
