//! `cargo xtask draw FILE.acp`: a transcript as a Mermaid sequence diagram.
//!
//! Three participants: client, agent, model. A transcript has the order of messages between client and agent, but of the
//! model's answers only their own order; `script` finds their place. `gist` makes the labels.

mod gist;
mod script;

use std::collections::HashMap;

use anyhow::{Context, Result};
use serde_json::Value;

use script::Script;

/// Returns the diagram of a transcript.
///
/// # Errors
/// Names the line whose message is not JSON.
pub(crate) fn draw(transcript: &str) -> Result<String> {
    let mut diagram = Diagram {
        lines: "sequenceDiagram\n    participant client\n    participant agent\n".to_owned(),
        calls: HashMap::new(),
    };
    let mut script = Script::read(transcript);
    if !script.is_empty() {
        diagram.add("participant model");
    }
    for (index, line) in transcript.lines().enumerate() {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let read = || serde_json::from_str(rest).with_context(|| format!("line {}", index + 1));
        match word {
            ">" => {
                let message = read()?;
                diagram.message(Lane::Client, &message);
                script.sent(&message);
                diagram.exchange(&mut script);
            }
            "<" => {
                let message = read()?;
                script.expected(&message);
                diagram.exchange(&mut script);
                diagram.message(Lane::Agent, &message);
            }
            ">!" => diagram.add(&format!("client->>agent: {}", gist::short(rest))),
            "use" => diagram.add(&format!("Note over client,agent: {}", gist::short(rest))),
            "eof" => diagram.add("client-xagent: closes the input"),
            "exit" => diagram.add(&format!("Note over agent: ends with {rest}")),
            _ => {}
        }
    }
    Ok(diagram.lines)
}

/// Who sends a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Lane {
    Client,
    Agent,
}

impl Lane {
    fn name(self) -> &'static str {
        match self {
            Lane::Client => "client",
            Lane::Agent => "agent",
        }
    }

    fn other(self) -> Lane {
        match self {
            Lane::Client => Lane::Agent,
            Lane::Agent => Lane::Client,
        }
    }
}

struct Diagram {
    lines: String,
    /// Methods by caller and id: a reply alone does not say what it answers.
    calls: HashMap<(Lane, String), String>,
}

impl Diagram {
    fn add(&mut self, line: &str) {
        self.lines.push_str("    ");
        self.lines.push_str(line);
        self.lines.push('\n');
    }

    fn message(&mut self, from: Lane, message: &Value) {
        let id = message.get("id").map(Value::to_string);
        let (arrow, label) = match (message.get("method").and_then(Value::as_str), id) {
            (Some(method), id) => {
                let arrow = if id.is_some() { "->>" } else { "-)" };
                self.calls.extend(id.map(|id| ((from, id), method.to_owned())));
                (arrow, gist::of_call(method, message))
            }
            (None, id) => {
                let method = id.and_then(|id| self.calls.remove(&(from.other(), id)));
                ("-->>", gist::of_reply(method.as_deref(), message))
            }
        };
        self.add(&format!("{}{arrow}{}: {label}", from.name(), from.other().name()));
    }

    /// Draws the request to the model and its answer, if it is time for one.
    fn exchange(&mut self, script: &mut Script) {
        let Some(answer) = script.take_due() else { return };
        self.add("agent->>model: request");
        for part in answer {
            self.add(&format!("model-->>agent: {}", gist::short(&part)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transcript_becomes_a_diagram_with_three_participants() {
        let transcript = r##"# The tool is allowed and runs.
use initialized
model text "I will change it."
model tool write {"path":"/w/a.txt","content":"bye"}
model text "Done; see #1."

> {"id":4,"method":"session/prompt","params":{"sessionId":"s1","prompt":[{"type":"text","text":"go"}]}}
< {"method":"session/update","params":{"sessionId":"s1","update":{"sessionUpdate":"tool_call","toolCallId":"t1","title":"Write a.txt","status":"pending"}}}
< {"id":"a1","method":"session/request_permission","params":{"sessionId":"s1","toolCall":{"toolCallId":"t1"}}}
> {"id":"a1","result":{"outcome":{"outcome":"selected","optionId":"allow"}}}
< {"method":"session/update","params":{"sessionId":"s1","update":{"sessionUpdate":"tool_call_update","toolCallId":"t1","status":"completed"}}}
< {"method":"session/update","params":{"sessionId":"s1","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"Done; see #1."}}}}
< {"id":4,"result":{"stopReason":"end_turn"}}
> {"id":5,"method":"nope"}
< {"id":5,"error":{"code":-32601,"message":"Method not found"}}
eof
exit 0
"##;
        let expected = r##"sequenceDiagram
    participant client
    participant agent
    participant model
    Note over client,agent: initialized
    client->>agent: session/prompt "go"
    agent->>model: request
    model-->>agent: text "I will change it."
    model-->>agent: tool write {"path":"/w/a.txt","content":"bye"}
    agent-)client: session/update tool_call "Write a.txt" pending
    agent->>client: session/request_permission t1
    client-->>agent: session/request_permission: allow
    agent-)client: session/update tool_call_update t1 completed
    agent->>model: request
    model-->>agent: text "Done#59; see #35;1."
    agent-)client: session/update agent_message_chunk "Done#59; see #35;1."
    agent-->>client: session/prompt: end_turn
    client->>agent: nope
    agent-->>client: nope: error -32601 Method not found
    client-xagent: closes the input
    Note over agent: ends with 0
"##;
        assert_eq!(draw(transcript).unwrap(), expected);
    }

    #[test]
    fn error_names_the_bad_line() {
        let err = draw("# A comment.\n> {oops}\n").unwrap_err();
        assert_eq!(err.to_string(), "line 2");
    }

    #[test]
    fn without_a_scripted_model_there_is_no_third_lane() {
        assert!(!draw("> {\"id\":1,\"method\":\"initialize\"}\n").unwrap().contains("model"));
    }
}
