//! Working servers: tools, prompts, resources, elicitation and progress.

use engine::Event;
use engine::permission::Answer;
use engine::words::{Block, Media, StopReason, ToolContent, ToolStatus};
use tokio_util::sync::CancellationToken;

use crate::bench::{Bench, editor, faulty, host, is_running, quick};

/// Makes one tool call and returns its status and output.
async fn call(tool: &str, input: &str) -> (ToolStatus, String) {
    let script = format!("model tool {tool} {input}");
    let bench = Bench::open(&script, vec![faulty("good", &[])]).await.ready().await;
    bench.prompt("go").await.calls.remove(0)
}

// R: M1, M3
#[tokio::test]
async fn tool_call_returns_the_result_of_the_server() {
    let (status, text) = call("good_echo", r#"{"text":"hello"}"#).await;
    assert_eq!((status, text.as_str()), (ToolStatus::Completed, "hello"));
    let (status, text) = call("good_fail", "{}").await;
    assert_eq!((status, text.as_str()), (ToolStatus::Failed, "something went wrong"));
    let (status, text) = call("good_numbers", "{}").await;
    assert_eq!((status, text.as_str()), (ToolStatus::Completed, r#"{"n":7}"#));
}

// R: M3
#[tokio::test]
async fn image_is_shown_to_the_user_and_the_model() {
    let script = "model tool good_image {}\nmodel end\nmodel echo";
    let bench = Bench::open(script, vec![faulty("good", &[])]).await.ready().await;
    let turn = bench.prompt("go").await;
    let image = Media { data: "aGVsbG8=".to_owned(), mime: "image/png".to_owned() };
    assert!(turn.shown.contains(&ToolContent::Block(Block::Image(image))), "{turn:?}");
    // The scripted model repeats the last thing it saw.
    assert_eq!(turn.said, "Pictures returned by the tools:");
}

// R: M3
#[tokio::test]
async fn progress_is_shown_during_a_tool_call() {
    let bench =
        Bench::open(r#"model tool good_slow {"steps":3,"pause":250}"#, vec![faulty("good", &[])])
            .await
            .ready()
            .await;
    let turn = bench.prompt("go").await;
    let progress = ToolContent::Block(Block::Text("67 % · working".to_owned()));
    assert!(turn.shown.contains(&progress), "{turn:?}");
    assert_eq!(turn.calls, [(ToolStatus::Completed, "done".to_owned())]);
}

// R: M3, T2
#[tokio::test]
async fn tool_needs_permission_until_it_is_always_allowed() {
    let script = "model tool good_echo {}\nmodel text \"Done.\"\nmodel loop";
    let bench = Bench::open(script, vec![faulty("good", &[])]).await.ready().await;
    bench.prompt("go").await;
    bench.prompt("go").await;
    assert_eq!(bench.editor.questions().len(), 2);
    bench.editor.set_answer(Answer::AllowAlways);
    bench.prompt("go").await;
    bench.prompt("go").await;
    assert_eq!(bench.editor.questions().len(), 3);
    bench.editor.set_answer(Answer::RejectOnce);
    let rejecting = editor();
    rejecting.set_answer(Answer::RejectOnce);
    let bench =
        Bench::with(script, vec![faulty("good", &[])], quick(), rejecting).await.ready().await;
    let turn = bench.prompt("go").await;
    assert_eq!(turn.calls, [(ToolStatus::Failed, "Rejected by the user".to_owned())]);
}

// R: M3
#[tokio::test]
async fn elicitation_is_shown_to_the_user() {
    let bench =
        Bench::open("model tool good_ask {}", vec![faulty("good", &[])]).await.ready().await;
    let turn = bench.prompt("go").await;
    let (_, answered) = &turn.calls[0];
    let answered: serde_json::Value = serde_json::from_str(answered).unwrap();
    assert_eq!(answered["action"], "accept");
    assert_eq!(answered["content"]["age"], 36);
    let forms = bench.editor.forms();
    assert!(forms[0].message.contains("`good` asks: Who are you?"), "{}", forms[0].message);
    assert_eq!(forms[0].fields.as_ref().unwrap()["required"], serde_json::json!(["name"]));
}

// R: M3
#[tokio::test]
async fn cancelled_call_is_cancelled_on_the_server() {
    let script = "model tool good_echo {}\nmodel end\nmodel tool good_cancelled {}";
    let bench = Bench::open(script, vec![faulty("good", &["hang_once"])]).await.ready().await;
    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    let (turn, ()) = tokio::join!(bench.send("go", cancel), async {
        bench.until("the call runs", |bench| {
            let events = bench.editor.events();
            events.iter().any(|event| matches!(event, Event::ToolUpdate(_, update) if update.status == Some(ToolStatus::InProgress)))
        })
        .await;
        stop.cancel();
    });
    assert_eq!(turn.stop, Some(StopReason::Cancelled));
    assert_eq!(bench.prompt("count").await.calls[0].1, "1");
}

// R: M1
#[tokio::test]
async fn server_gets_only_its_own_environment_variables() {
    let mut config = faulty("good", &[]);
    if let mcp::Transport::Command(command) = &mut config.transport {
        command.env.push(("DECLARED".to_owned(), engine::words::Secret::new("1")));
    }
    let bench = Bench::open("model tool good_environment {}", vec![config]).await.ready().await;
    let (_, text) = &bench.prompt("go").await.calls[0];
    let directory = tempfile::env::temp_dir().canonicalize().unwrap();
    let mut names: Vec<&str> = text.split(" in ").next().unwrap().split(',').collect();
    names.sort_unstable();
    assert_eq!(names, ["DECLARED", "PATH"]);
    assert!(text.ends_with(&directory.display().to_string()), "{text}");
}

// R: M1
#[tokio::test]
async fn arguments_arrive_unchanged_without_a_shell() {
    let args = ["none", "$(touch /tmp/canary); `id` && rm -rf / | * > x", "$HOME", "a b"];
    let bench = Bench::open("model tool good_arguments {}", vec![faulty("good", &args)])
        .await
        .ready()
        .await;
    assert_eq!(bench.prompt("go").await.calls[0].1, args.join("|"));
}

// R: M3, P5
#[tokio::test]
async fn prompts_are_slash_commands() {
    let bench = Bench::open("model echo", vec![faulty("good", &[])]).await.ready().await;
    bench
        .until("the command is announced", |bench| {
            let events = bench.editor.events();
            events.iter().any(|event| {
                matches!(event, Event::Commands(commands) if commands.iter().any(|command| {
                    command.name == "good_greet" && command.hint.as_deref() == Some("<who> [how]")
                }))
            })
        })
        .await;
    assert_eq!(
        bench.prompt("/good_greet").await.said,
        "The MCP server `good` could not provide this prompt: `who` is missing"
    );
    assert_eq!(bench.prompt("/good_greet Ada").await.said, "Say hello to Ada");
}

// R: M3
#[tokio::test]
async fn linked_resource_is_attached_to_the_prompt() {
    let servers = || vec![faulty("good", &[])];
    let bench = Bench::open("model echo", servers()).await.ready().await;
    let turn = bench.prompt("what is in @good:test://note?").await;
    assert_eq!(turn.stop, Some(StopReason::EndTurn));
    use engine::ports::{Expanded, Extension};
    let link = Block::Link { uri: "test://note".to_owned(), name: "note".to_owned() };
    let prompt = engine::words::Prompt::from(vec![link]);
    let Expanded::Prompt(prompt) = bench.servers.expand(prompt).await else {
        panic!("a link is not a command");
    };
    let [Block::Resource { contents: engine::words::Contents::Text(text), .. }] =
        &prompt.blocks[..]
    else {
        panic!("{prompt:?}");
    };
    assert_eq!(text, "contents of the note");
}

// R: M2
#[tokio::test]
async fn slash_mcp_shows_state_tools_and_log() {
    let bench = Bench::open("", vec![faulty("good", &[]), faulty("bad", &["exit"])]).await;
    bench.until("one server is ready", |bench| bench.state().contains(": ready")).await;
    bench
        .until("one server has failed", |bench| bench.state().contains("`bad` (program): failed"))
        .await;
    let said = bench.prompt("/mcp").await.said;
    assert!(said.contains("- `good` (program): ready\n  - 10 tools: echo, fail,"), "{said}");
    assert!(
        said.contains("its program exited with code 3; last output: no configuration found"),
        "{said}"
    );
    let said = bench.prompt("/mcp log bad").await.said;
    assert!(said.contains("no configuration found"), "{said}");
    assert!(bench.prompt("/mcp log none").await.said.contains("Configured servers: `good`, `bad`"));
}

// R: M1
#[tokio::test]
async fn shared_server_starts_once_and_stops_with_its_last_session() {
    let host = host(quick());
    let shared = || {
        let mut config = faulty("good", &["none", "shared-server-test"]);
        config.is_shared = true;
        vec![config]
    };
    let count = || {
        let cmdline = |entry: std::fs::DirEntry| std::fs::read(entry.path().join("cmdline")).ok();
        let lines = std::fs::read_dir("/proc").unwrap().filter_map(|entry| cmdline(entry.ok()?));
        lines.filter(|line| line.windows(18).any(|part| part == b"shared-server-test")).count()
    };
    let mut first = Bench::on(&host, "", shared(), editor()).await.ready().await;
    let mut second = Bench::on(&host, "", shared(), editor()).await.ready().await;
    assert_eq!(count(), 1);
    first.close();
    assert!(second.names().contains(&"good_echo".to_owned()));
    assert_eq!(count(), 1);
    second.close();
    second.until("it is stopped", |_| !is_running("shared-server-test")).await;
}

// R: M2
#[tokio::test]
async fn server_exits_when_its_session_is_closed() {
    let mut bench =
        Bench::open("", vec![faulty("good", &["none", "closed-session-test"])]).await.ready().await;
    assert!(is_running("closed-session-test"));
    bench.close();
    bench.until("it is stopped", |_| !is_running("closed-session-test")).await;
    bench.host.end().await;
}
