//! What all tools share: typed input, a plan of the work, and the work itself.
//!
//! A call is planned before the user is asked: paths are resolved, files are read, diffs are made. Then that plan runs, so nothing
//! happens that was not shown.

use std::sync::{Arc, Mutex, PoisonError};

use engine::ports::{
    Adopt, Intent, Offers, Outline, Output, Planned, Tool, ToolCx, ToolError, ToolSpec, Wait,
};
use engine::words::{Block, ModelId, ToolContent, ToolKind, one_line};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error as _};
use serde_json::{Value, json};

use crate::adopt;

/// A tool with typed input.
pub(crate) trait TypedTool: Send + Sync + 'static {
    /// Its name for models.
    const NAME: &'static str;
    /// What kind of work it does.
    const KIND: ToolKind;
    /// Its description for models.
    const DESCRIPTION: &'static str;
    /// Its description for small models, if they are offered it.
    const BRIEF: Option<&'static str> = None;
    /// Names that models use for such a tool, as `adopt::plain` writes them.
    const ALIASES: &'static [&'static str] = &[];

    /// The input. Field names are those that models know; other common spellings are aliases.
    type Input: DeserializeOwned + Send;
    /// What was decided before the user is asked.
    type Plan: Send + 'static;

    /// Tells whether it is offered to a model.
    fn suits(_model: &ModelId, _offers: Offers) -> bool {
        true
    }

    /// Returns the JSON schemas of the input's fields, and the names of the required ones.
    fn fields() -> (Value, &'static [&'static str]);

    /// Returns the JSON schemas of the fields that small models are offered.
    fn brief_fields() -> Value {
        Self::fields().0
    }

    /// Returns the title and the paths of a call that cannot be planned, as far as its input shows them.
    fn outline(input: &Value) -> (String, Vec<String>) {
        let fields = |names: &[&str]| names.iter().find_map(|name| input[name].as_str());
        let path = fields(&["filePath", "file_path", "path", "file"]);
        let mut title = Self::NAME.to_owned();
        title[..1].make_ascii_uppercase();
        if let Some(subject) = path.or_else(|| fields(&["pattern", "url", "question"])) {
            title.push(' ');
            title.push_str(subject);
        }
        (title, path.map(str::to_owned).into_iter().collect())
    }

    /// Decides what the call will do. Changes nothing.
    fn plan(
        &self,
        cx: &ToolCx<'_>,
        input: Self::Input,
    ) -> impl Future<Output = Result<(Intent, Self::Plan), ToolError>> + Send;

    /// Returns what the user is shown if the call takes long; `None` if it waits for the user.
    fn wait(&self, _plan: &Self::Plan) -> Option<Wait> {
        Some(Wait::default())
    }

    /// Does what was planned.
    fn run(
        &self,
        cx: &ToolCx<'_>,
        plan: Self::Plan,
    ) -> impl Future<Output = Result<Output, ToolError>> + Send;
}

/// Wraps a typed tool.
pub(crate) fn shaped<T: TypedTool>(tool: T) -> Arc<dyn Tool> {
    let (full, brief) = specs::<T>();
    Arc::new(Shaped { tool, full, brief })
}

/// The descriptions of a tool for models, and for small models if they are offered it.
type Specs = (Arc<ToolSpec>, Option<Arc<ToolSpec>>);

/// Returns the descriptions of a tool: made once for all sessions.
fn specs<T: TypedTool>() -> Specs {
    static MADE: Mutex<Vec<Specs>> = Mutex::new(Vec::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(specs) = made.iter().find(|(spec, _)| spec.name == T::NAME) {
        return specs.clone();
    }
    let (properties, required) = T::fields();
    let spec = |description: &str, properties: Value| {
        let schema = json!({ "type": "object", "properties": properties, "required": required });
        let (name, description) = (T::NAME.to_owned(), description.trim().to_owned());
        Arc::new(ToolSpec {
            name,
            description,
            schema: schema.into(),
            adopt: Adopt::new(adopt_call::<T>),
        })
    };
    let brief = T::BRIEF.map(|description| spec(description, T::brief_fields()));
    let specs = (spec(T::DESCRIPTION, properties), brief);
    made.push(specs.clone());
    specs
}

/// Reads a call of the tool under any of its names.
fn adopt_call<T: TypedTool>(name: &str, input: &Value) -> Option<Value> {
    let is_alias = name != T::NAME;
    let plain = adopt::plain(name);
    if is_alias && plain != T::NAME && !T::ALIASES.contains(&plain.as_str()) {
        return None;
    }
    let (fields, required) = T::fields();
    let corrected = adopt::correct(input, fields.as_object()?, required);
    // What an alias means is clear only if the arguments fit.
    let is_complete = required.iter().all(|field| !corrected[*field].is_null());
    (!is_alias || is_complete).then_some(corrected)
}

struct Shaped<T: TypedTool> {
    tool: T,
    full: Arc<ToolSpec>,
    brief: Option<Arc<ToolSpec>>,
}

impl<T: TypedTool> Tool for Shaped<T> {
    fn spec(&self) -> Arc<ToolSpec> {
        Arc::clone(&self.full)
    }

    fn brief_spec(&self) -> Option<Arc<ToolSpec>> {
        self.brief.clone()
    }

    fn kind(&self) -> ToolKind {
        T::KIND
    }

    fn suits(&self, model: &ModelId, offers: Offers) -> bool {
        T::suits(model, offers)
    }

    fn outline(&self, input: &Value) -> Outline {
        let (title, paths) = T::outline(input);
        Outline { title: one_line(&title), paths }
    }

    fn plan<'a>(
        self: Arc<Self>,
        cx: &'a ToolCx<'a>,
        input: &'a Value,
    ) -> BoxFuture<'a, Result<(Intent, Box<dyn Planned>), ToolError>> {
        async move {
            let (mut intent, plan) = self.tool.plan(cx, parse::<T>(input)?).await?;
            // One line, so that a file name with a line end in it cannot look like two lines.
            intent.title = one_line(&intent.title);
            Ok((intent, Box::new(PlannedCall { tool: self, plan }) as Box<dyn Planned>))
        }
        .boxed()
    }
}

/// A planned call of a typed tool.
struct PlannedCall<T: TypedTool> {
    tool: Arc<Shaped<T>>,
    plan: T::Plan,
}

impl<T: TypedTool> Planned for PlannedCall<T> {
    fn wait(&self) -> Option<Wait> {
        self.tool.tool.wait(&self.plan)
    }

    fn run<'a>(self: Box<Self>, cx: &'a ToolCx<'a>) -> BoxFuture<'a, Result<Output, ToolError>> {
        async move { self.tool.tool.run(cx, self.plan).await }.boxed()
    }
}

fn parse<T: TypedTool>(input: &Value) -> Result<T::Input, ToolError> {
    if !input.is_object() {
        return Err(ToolError::Model("the input is not a JSON object".to_owned()));
    }
    T::Input::deserialize(input).or_else(|err| {
        let corrected = adopt_call::<T>(T::NAME, input);
        corrected.and_then(|input| T::Input::deserialize(input).ok()).ok_or_else(|| {
            let form = specs::<T>().0.form();
            ToolError::Model(format!("invalid input for `{}`: {err}. The form is {form}", T::NAME))
        })
    })
}

/// Makes an output with the same text for the user and the model.
pub(crate) fn shown(text: String) -> Output {
    Output { content: Some(vec![ToolContent::Block(Block::Text(text.clone()))]), text, raw: None }
}

/// Reads a number, which some models write as a string.
pub(crate) fn number<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let value = Option::<Value>::deserialize(from)?;
    let number = match &value {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Number(number)) => number.as_f64(),
        Some(Value::String(text)) => text.trim().parse().ok(),
        Some(_) => None,
    };
    match number {
        Some(number) if (0.0..=f64::from(u32::MAX)).contains(&number) && number.fract() == 0.0 =>
        {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "whole, and compared with both ends"
            )]
            Ok(Some(number as u32))
        }
        _ => Err(D::Error::custom("expected an integer")),
    }
}

/// Reads a boolean, which some models write as a string.
pub(crate) fn flag<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    match Option::<Value>::deserialize(from)? {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(flag),
        Some(Value::String(text)) if text == "true" => Ok(true),
        Some(Value::String(text)) if text == "false" => Ok(false),
        Some(_) => Err(D::Error::custom("expected `true` or `false`")),
    }
}
