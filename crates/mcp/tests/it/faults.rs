//! Faults of servers, M01 to M20 of docs/internals/faults.md. The session stays usable, and the user is informed.

use std::time::Duration;

use engine::permission::Answer;
use engine::ports::Offers;
use engine::words::{Block, ToolContent, ToolStatus};
use mcp::Timing;

use crate::bench::{Bench, editor, faulty, is_running, program_at, quick};

const ECHO: &str = "model tool bad_echo {\"text\":\"hi\"}\nmodel text \"Done.\"\nmodel loop";

async fn with_timing(timing: Timing, args: &[&str]) -> Bench {
    Bench::with(ECHO, vec![faulty("bad", args)], timing, editor()).await
}

// R: M2
// Fault: M01
#[tokio::test]
async fn m01_missing_program_is_reported_and_not_retried() {
    let servers = vec![program_at("bad", "no-such-program", &[]), faulty("good", &[])];
    let bench = Bench::open("model tool good_echo {\"text\":\"hi\"}", servers).await;
    let notice = bench.notice("`bad` is not available").await;
    assert!(notice.contains("program `no-such-program` not found; install it"), "{notice}");
    bench
        .until("the other server is ready", |bench| bench.names().contains(&"good_echo".to_owned()))
        .await;
    assert_eq!(bench.prompt("go").await.calls, [(ToolStatus::Completed, "hi".to_owned())]);
}

// R: M2
// Fault: M02
#[tokio::test]
async fn m02_program_that_exits_at_once_is_reported_with_its_error_output() {
    let bench = with_timing(quick(), &["exit"]).await;
    let notice = bench.notice("`bad` failed").await;
    assert!(notice.contains("code 3; last output: no configuration found"), "{notice}");
}

// R: M2, S12
// Fault: M03
#[tokio::test]
async fn m03_silent_server_is_killed_and_not_restarted() {
    let timing = Timing {
        start: Duration::from_millis(100),
        start_limit: Duration::from_millis(100),
        ..quick()
    };
    let bench = with_timing(timing, &["silent", "m03-test"]).await;
    bench.notice("`bad` starts slowly").await;
    let turn = bench.prompt("go").await;
    assert!(turn.calls[0].1.contains("unknown tool `bad_echo`"), "{turn:?}");
    bench.notice("`bad` is not available").await;
    bench.until("it is killed", |_| !is_running("m03-test")).await;
}

// R: M2, S12
// Fault: M04
#[tokio::test]
async fn m04_tools_of_a_late_server_are_added() {
    let timing = Timing { start: Duration::from_millis(100), ..quick() };
    let bench = with_timing(timing, &["late", "600"]).await;
    bench.notice("`bad` starts slowly").await;
    assert!(bench.names().is_empty());
    let notice = bench.notice("`bad` is ready").await;
    assert!(notice.contains("10 tools"), "{notice}");
    assert_eq!(bench.prompt("go").await.calls, [(ToolStatus::Completed, "hi".to_owned())]);
}

// R: M2, T4
// Fault: M05
#[tokio::test]
async fn m05_crash_during_a_call_fails_it_and_restarts_the_server() {
    let bench = with_timing(quick(), &["crash_call"]).await.ready().await;
    let turn = bench.prompt("go").await;
    let (status, text) = &turn.calls[0];
    assert_eq!(*status, ToolStatus::Failed);
    assert!(text.contains("The MCP server `bad` failed"), "{text}");
    bench.notice("`bad` is ready").await;
}

// R: M2
// Fault: M06
#[tokio::test]
async fn m06_crash_loop_ends_after_five_restarts() {
    let bench = with_timing(quick(), &["exit_later"]).await;
    let notice = bench.notice("`bad` is not available").await;
    assert!(notice.contains("code 4"), "{notice}");
    assert!(bench.state().contains("`bad` (program): failed\n"), "{}", bench.state());
    // After `/mcp restart` it fails again.
    assert!(bench.prompt("/mcp restart bad").await.said.contains("Restarting the MCP server"));
    bench
        .until("it has failed again", |bench| bench.state().contains("`bad` (program): failed\n"))
        .await;
}

// R: M2, T4
// Fault: M07
#[tokio::test]
async fn m07_server_is_restarted_after_two_calls_time_out() {
    let timing = Timing { call: Duration::from_millis(100), ..quick() };
    let bench = with_timing(timing, &["hang_call", "m07-test"]).await.ready().await;
    let turn = bench.prompt("go").await;
    assert!(turn.calls[0].1.contains("did not answer within 0 s"), "{turn:?}");
    assert!(
        bench.state().contains(": ready"),
        "a single timeout does not end it: {}",
        bench.state()
    );
    bench.prompt("go").await;
    let notice = bench.notice("`bad` failed").await;
    assert!(notice.contains("did not answer two calls in a row"), "{notice}");
}

// R: M2, W24
// Fault: M07
#[tokio::test]
async fn m07_wait_for_a_silent_server_is_shown() {
    let timing = Timing { call: Duration::from_secs(3), ..quick() };
    let bench = with_timing(timing, &["hang_call", "m07-silent"]).await.ready().await;
    let turn = bench.prompt("go").await;
    let is_wait = |content: &ToolContent| match content {
        ToolContent::Block(Block::Text(text)) => {
            text.starts_with("Waiting for the MCP server `bad`: ") && text.ends_with(" s left")
        }
        _ => false,
    };
    assert!(turn.shown.iter().any(is_wait), "{turn:?}");
}

// R: M2
// Fault: M07
#[tokio::test]
async fn m07_progress_prevents_the_timeout_of_a_call() {
    let timing = Timing { call: Duration::from_millis(600), ..quick() };
    let script = r#"model tool bad_slow {"steps":6,"pause":200}"#;
    let bench = Bench::with(script, vec![faulty("bad", &[])], timing, editor()).await;
    let bench = bench.ready().await;
    assert_eq!(bench.prompt("go").await.calls, [(ToolStatus::Completed, "done".to_owned())]);
}

// R: M2
// Fault: M08
#[tokio::test]
async fn m08_garbage_on_stdout_is_ignored_and_a_flood_of_it_ends_the_server() {
    let bench = with_timing(quick(), &["garbage"]).await.ready().await;
    assert_eq!(bench.prompt("go").await.calls, [(ToolStatus::Completed, "hi".to_owned())]);
    let bench = with_timing(quick(), &["flood"]).await;
    let notice = bench.notice("`bad` failed").await;
    assert!(notice.contains("is not an MCP message"), "{notice}");
}

// R: M2
// Fault: M09
#[tokio::test]
async fn m09_endless_line_fails_only_its_call_and_needs_little_memory() {
    let bench = with_timing(quick(), &["long_line"]).await.ready().await;
    let before = memory();
    let turn = bench.prompt("go").await;
    let grown = memory().saturating_sub(before);
    assert!(turn.calls[0].1.contains("its response is too large"), "{turn:?}");
    assert!(grown < 40 * 1024 * 1024, "memory grew by {grown} bytes for a line of 100 MiB");
    assert!(bench.state().contains(": ready"), "{}", bench.state());
}

/// Returns the peak memory of this process.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

// R: M2
// Fault: M10
#[tokio::test]
async fn m10_unexpected_and_repeated_answers_are_ignored() {
    let bench = with_timing(quick(), &["odd_ids"]).await.ready().await;
    for _ in 0..2 {
        let turn = bench.prompt("go").await;
        assert_eq!(turn.calls, [(ToolStatus::Completed, "the first answer".to_owned())]);
    }
    let bench = with_timing(quick(), &["broken_reply"]).await.ready().await;
    let turn = bench.prompt("go").await;
    assert!(turn.calls[0].1.contains("The error has no code and message"), "{turn:?}");
}

// R: M3
// Fault: M11
#[tokio::test]
async fn m11_list_of_ten_thousand_tools_is_limited() {
    let bench = with_timing(quick(), &["many_tools"]).await.ready().await;
    assert_eq!(bench.names().len(), 128);
    assert!(bench.state().contains("9872 more are omitted"), "{}", bench.state().len());
}

// R: M3
// Fault: M12
#[tokio::test]
async fn m12_recursive_schema_is_harmless() {
    let bench = with_timing(quick(), &["recursive"]).await.ready().await;
    let tools = bench.tools();
    assert!(tools[0].spec().schema.text().contains(r##""$ref":"#""##));
}

// R: M3
// Fault: M13
#[tokio::test]
async fn m13_changed_description_needs_permission_again() {
    let editor = editor();
    editor.set_answer(Answer::AllowAlways);
    let timing = Timing { start: Duration::from_secs(1), ..quick() };
    let bench =
        Bench::with(ECHO, vec![faulty("bad", &["changing"])], timing, editor).await.ready().await;
    for version in 1..=3 {
        bench
            .until("the tools are listed again", |bench| {
                let tools = bench.tools();
                tools[0].spec().description == format!("Returns its input, version {version}")
            })
            .await;
        bench.prompt("go").await;
        assert_eq!(bench.editor.questions().len(), version);
    }
}

// R: M3
#[tokio::test]
async fn hidden_text_in_a_description_reaches_neither_model_nor_user() {
    let bench = with_timing(quick(), &["hidden"]).await.ready().await;
    assert_eq!(bench.tools()[0].spec().description, "Returns its input[2J");
}

// R: M2
// Fault: M14
#[tokio::test]
async fn m14_only_the_end_of_a_flood_on_stderr_is_stored() {
    let before = memory();
    let bench = with_timing(quick(), &["noisy"]).await.ready().await;
    let grown = memory().saturating_sub(before);
    assert!(grown < 20 * 1024 * 1024, "memory grew by {grown} bytes for 100 MiB of log");
    bench
        .until("the end of the log is shown", |bench| {
            bench.state().contains("last line of the log")
        })
        .await;
    assert_eq!(bench.prompt("go").await.calls, [(ToolStatus::Completed, "hi".to_owned())]);
}

// R: M2
// Fault: M15
#[tokio::test]
async fn m15_server_that_does_not_exit_is_killed() {
    let faulty_server = faulty("bad", &[]);
    let mcp::Transport::Command(command) = faulty_server.transport else {
        panic!("not a local server");
    };
    let script = format!("trap '' TERM INT HUP; exec {} ignores_eof m15-test", command.program);
    let mut bench =
        Bench::open("", vec![program_at("bad", "sh", &["-c", &script])]).await.ready().await;
    assert!(is_running("m15-test"));
    bench.close();
    bench.host.end().await;
    bench.until("it is killed", |_| !is_running("m15-test")).await;
}

// R: M2
// Fault: M18
#[tokio::test]
async fn m18_requests_of_a_server_are_answered_or_refused() {
    let bench = Bench::open("model tool bad_answers {}", vec![faulty("bad", &["asks"])])
        .await
        .ready()
        .await;
    let (_, text) = &bench.prompt("go").await.calls[0];
    let answers: Vec<serde_json::Value> = serde_json::from_str(text).unwrap();
    let answer = |id: &str| answers.iter().find(|answer| answer["id"] == id).unwrap().clone();
    assert_eq!(answer("q1")["error"]["code"], -32601);
    assert_eq!(answer("q2")["error"]["code"], -32601);
    let directory = tempfile::env::temp_dir().canonicalize().unwrap();
    assert_eq!(
        answer("q3")["result"]["roots"][0]["uri"],
        format!("file://{}", directory.display())
    );
    assert_eq!(answer("q4")["result"], serde_json::json!({}));
}

// R: M2
// Fault: M19
#[tokio::test]
async fn m19_server_that_stops_reading_fails_only_its_own_calls() {
    let timing = Timing { call: Duration::from_millis(300), ..quick() };
    // Much more than the buffer of a pipe.
    let big = "x".repeat(1024 * 1024);
    let script =
        format!("model tool bad_echo {{\"text\":\"{big}\"}}\nmodel text \"Done.\"\nmodel loop");
    let servers = vec![faulty("bad", &["stops_reading", "m19-test"])];
    let bench = Bench::with(&script, servers, timing, editor()).await.ready().await;
    for _ in 0..2 {
        let turn = bench.prompt("go").await;
        assert_eq!(turn.calls[0].0, ToolStatus::Failed);
    }
    bench.notice("`bad` failed").await;
}

// R: M3
// Fault: M20
#[tokio::test]
async fn m20_equal_tool_names_of_two_servers_are_made_unique() {
    let servers = vec![faulty("a", &[]), faulty("b", &[]), faulty("a", &["exit"])];
    let script = "model tool a_arguments {}\nmodel tool b_arguments {}";
    let bench = Bench::open(script, servers).await.ready().await;
    bench.until("both servers are ready", |bench| bench.names().len() == 20).await;
    assert_eq!(bench.prompt("go").await.calls.len(), 2);
}

// R: M2
#[tokio::test]
async fn client_without_notices_is_informed_in_the_next_turn() {
    let editor = editor().with_offers(Offers::default());
    let bench = Bench::with(
        "model text \"Done.\"",
        vec![program_at("bad", "no-such-program", &[])],
        quick(),
        editor,
    )
    .await;
    bench.until("it has failed", |bench| bench.state().contains("failed")).await;
    let turn = bench.prompt("go").await;
    assert!(turn.thought.contains("The MCP server `bad` is not available"), "{turn:?}");
}
