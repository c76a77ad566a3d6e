//! An MCP server over stdio with a fault of your choice: `faulty_server FAULT [ARGUMENT]`.
//!
//! Without a fault it works correctly and has a tool for each feature that a client must handle. The tests use it. To see
//! how a client reacts to a fault, configure it like any other server, for example for `purlin mcp test`.

#![expect(clippy::print_stdout, reason = "an MCP server that sends its messages on stdout")]

use std::io::{BufRead, Write};
use std::time::Duration;

use serde_json::{Value, json};

fn main() {
    let mut args = std::env::args().skip(1);
    let fault = args.next().unwrap_or_else(|| "none".to_owned());
    let argument = args.next().unwrap_or_default();
    let mut server =
        Server { fault, argument, calls: 0, lists: 0, answers: Vec::new(), cancelled: 0 };
    server.start();
    let mut input = std::io::stdin().lock();
    let mut line = String::new();
    while input.read_line(&mut line).is_ok_and(|count| count > 0) {
        if let Ok(message) = serde_json::from_str::<Value>(&line) {
            server.handle(&message, &mut input);
        }
        line.clear();
    }
    if server.fault == "ignores_eof" {
        // It does not exit at the end of its input.
        loop {
            std::thread::sleep(Duration::from_secs(60));
        }
    }
}

struct Server {
    fault: String,
    argument: String,
    calls: u32,
    lists: u32,
    /// The answers to our own requests.
    answers: Vec<Value>,
    cancelled: u32,
}

type Input<'a> = std::io::StdinLock<'a>;

impl Server {
    fn has(&self, fault: &str) -> bool {
        self.fault == fault
    }

    fn start(&self) {
        match self.fault.as_str() {
            "exit" => {
                eprintln!("no configuration found");
                std::process::exit(3);
            }
            "silent" => loop {
                std::thread::sleep(Duration::from_secs(60));
            },
            "late" => std::thread::sleep(Duration::from_millis(self.argument.parse().unwrap_or(0))),
            "garbage" => println!("npm warn deprecated\n\u{1b}[32mready\u{1b}[0m\n{{\n[1,2]\nnull"),
            "flood" => (0..200).for_each(|number| println!("line {number} of a log")),
            "noisy" => {
                let line = format!("{}\n", "n".repeat(1023));
                let text = line.repeat(1024);
                for _ in 0..100 {
                    drop(std::io::stderr().write_all(text.as_bytes()));
                }
                eprintln!("last line of the log");
            }
            _ => {}
        }
    }

    fn handle(&mut self, message: &Value, input: &mut Input<'_>) {
        let id = message["id"].clone();
        match message["method"].as_str() {
            Some("initialize") => self.initialize(id),
            Some("notifications/initialized") => self.initialized(),
            Some("notifications/cancelled") => self.cancelled += 1,
            Some("ping") => reply(id, json!({})),
            Some("tools/list") => self.list(id),
            Some("tools/call") => self.call(id, &message["params"], input),
            Some("prompts/list") => reply(id, prompts()),
            Some("prompts/get") => reply(id, prompt(&message["params"]["arguments"])),
            Some("resources/list") => {
                reply(id, json!({ "resources": [{ "uri": "test://note", "name": "note" }] }));
            }
            Some("resources/read") => {
                let uri = message["params"]["uri"].clone();
                reply(id, json!({ "contents": [{ "uri": uri, "text": "contents of the note" }] }));
            }
            Some(_) if !id.is_null() => {
                send(json!({ "id": id, "error": { "code": -32601, "message": "unknown method" } }));
            }
            Some(_) => {}
            None => self.answers.push(message.clone()),
        }
    }

    fn initialize(&self, id: Value) {
        let capabilities =
            json!({ "tools": { "listChanged": true }, "prompts": {}, "resources": {} });
        if self.has("odd_ids") {
            send(json!({ "id": 987654, "result": {} }));
            send(json!({ "id": "unknown", "error": { "code": 1, "message": "x" } }));
        }
        reply(
            id,
            json!({
                "protocolVersion": "2025-11-25",
                "capabilities": capabilities,
                "serverInfo": { "name": "faulty", "version": "1" },
            }),
        );
    }

    fn initialized(&self) {
        match self.fault.as_str() {
            "exit_later" => std::process::exit(4),
            "asks" => {
                send(json!({ "id": "q1", "method": "no/such/method", "params": {} }));
                send(json!({ "id": "q2", "method": "sampling/createMessage", "params": {
                    "messages": [], "maxTokens": 1 } }));
                send(json!({ "id": "q3", "method": "roots/list" }));
                send(json!({ "id": "q4", "method": "ping" }));
            }
            _ => {}
        }
    }

    fn list(&mut self, id: Value) {
        self.lists += 1;
        if self.has("stops_reading") && self.lists > 1 {
            return;
        }
        let tools: Vec<Value> = match self.fault.as_str() {
            "many_tools" => {
                (0..10_000).map(|n| tool(&format!("tool_{n}"), "one of many")).collect()
            }
            "recursive" => {
                let mut recursive = tool("tree", "Takes a tree");
                recursive["inputSchema"]["properties"] = json!({ "child": { "$ref": "#" } });
                vec![recursive]
            }
            "changing" => vec![tool("echo", &format!("Returns its input, version {}", self.lists))],
            "hidden" => vec![tool("echo", "Returns its input\u{200b}\u{e0041}\u{1b}[2J\u{202e}")],
            _ => TOOLS.iter().map(|(name, text)| tool(name, text)).collect(),
        };
        reply(id, json!({ "tools": tools }));
    }

    fn call(&mut self, id: Value, params: &Value, input: &mut Input<'_>) {
        self.calls += 1;
        match self.fault.as_str() {
            "crash_call" => {
                eprintln!("division by zero");
                std::process::exit(1);
            }
            "hang_call" => return,
            "hang_once" if self.calls == 1 => return,
            "stops_reading" => loop {
                std::thread::sleep(Duration::from_secs(60));
            },
            "long_line" => {
                let mut out = std::io::stdout().lock();
                let text = vec![b'x'; 1024 * 1024];
                drop(write!(
                    out,
                    "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[{{\"type\":\"text\",\"text\":\""
                ));
                for _ in 0..100 {
                    drop(out.write_all(&text));
                }
                drop(out.write_all(b"\"}]}}\n"));
                return;
            }
            "odd_ids" => {
                reply(json!(424242), json!({ "content": [] }));
                reply(id.clone(), text("the first answer"));
                return reply(id, text("the second answer"));
            }
            "broken_reply" => return send(json!({ "id": id, "result": 7, "error": true })),
            _ => {}
        }
        self.work(id, params, input);
        if self.has("changing") {
            send(json!({ "method": "notifications/tools/list_changed" }));
        }
    }

    fn work(&mut self, id: Value, params: &Value, input: &mut Input<'_>) {
        let arguments = &params["arguments"];
        let result = match params["name"].as_str().unwrap_or_default() {
            "echo" => text(arguments["text"].as_str().unwrap_or("nothing")),
            "fail" => {
                json!({ "content": [{ "type": "text", "text": "something went wrong" }], "isError": true })
            }
            "image" => json!({ "content": [
                { "type": "text", "text": "here it is" },
                { "type": "image", "data": "aGVsbG8=", "mimeType": "image/png" },
            ] }),
            "numbers" => json!({ "content": [], "structuredContent": { "n": 7 } }),
            "environment" => {
                let names: Vec<String> = std::env::vars().map(|(name, _)| name).collect();
                text(&format!(
                    "{} in {}",
                    names.join(","),
                    std::env::current_dir()
                        .map_or_else(|_| String::new(), |at| at.display().to_string())
                ))
            }
            "arguments" => text(&std::env::args().skip(1).collect::<Vec<_>>().join("|")),
            "slow" => {
                let token = &params["_meta"]["progressToken"];
                let steps = arguments["steps"].as_u64().unwrap_or(3);
                for step in 1..=steps {
                    std::thread::sleep(Duration::from_millis(
                        arguments["pause"].as_u64().unwrap_or(250),
                    ));
                    send(json!({ "method": "notifications/progress", "params": {
                        "progressToken": token, "progress": step, "total": steps, "message": "working" } }));
                }
                text("done")
            }
            "ask" => {
                let schema = json!({ "type": "object", "properties": {
                    "name": { "type": "string" }, "age": { "type": "integer" } }, "required": ["name"] });
                send(json!({ "id": "e1", "method": "elicitation/create", "params": {
                    "message": "Who are you?", "requestedSchema": schema } }));
                text(&next_message(input)["result"].to_string())
            }
            "answers" => text(&Value::Array(self.answers.clone()).to_string()),
            "cancelled" => text(&self.cancelled.to_string()),
            other => {
                return send(json!({ "id": id, "error": {
                "code": -32602, "message": format!("unknown tool {other}") } }));
            }
        };
        reply(id, result);
    }
}

/// Reads messages until a reply arrives. Others are dropped.
fn next_message(input: &mut Input<'_>) -> Value {
    let mut line = String::new();
    while input.read_line(&mut line).is_ok_and(|count| count > 0) {
        match serde_json::from_str::<Value>(&line) {
            Ok(message) if message.get("method").is_none() => return message,
            _ => line.clear(),
        }
    }
    Value::Null
}

const TOOLS: [(&str, &str); 10] = [
    ("echo", "Returns its input"),
    ("fail", "Always fails"),
    ("image", "Returns an image"),
    ("numbers", "Returns only structured content"),
    ("environment", "Lists its environment variables and its working directory"),
    ("arguments", "Lists its arguments"),
    ("slow", "Takes some time and reports its progress"),
    ("ask", "Asks the user"),
    ("answers", "Lists the answers to its own requests"),
    ("cancelled", "Counts the calls that were cancelled"),
];

fn tool(name: &str, description: &str) -> Value {
    json!({ "name": name, "description": description, "inputSchema": { "type": "object" } })
}

fn text(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

fn prompts() -> Value {
    json!({ "prompts": [{ "name": "greet", "description": "Greets a person",
        "arguments": [{ "name": "who", "required": true }, { "name": "how" }] }] })
}

fn prompt(arguments: &Value) -> Value {
    let who = arguments["who"].as_str().unwrap_or("nobody");
    json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": format!("Say hello to {who}") } }] })
}

fn reply(id: Value, result: Value) {
    send(json!({ "id": id, "result": result }));
}

fn send(mut message: Value) {
    message["jsonrpc"] = json!("2.0");
    let mut out = std::io::stdout().lock();
    drop(writeln!(out, "{message}"));
    drop(out.flush());
}
