//! The transcripts of `conformance/`, each played twice: in this process, and against the built program.
//!
//! `UPDATE_EXPECT=1` rewrites the lines that the agent sends. Read the diff before you keep it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use client::script::{Played, play, play_program};
use client::transcript::{Step, Transcript};
use purlin::config::Config;
use purlin::serve::{self, Pipes};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wire::acp::dialect::Dialect;

use crate::schema;

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance")
}

pub(crate) fn load(name: &str) -> (PathBuf, Transcript) {
    let path = folder().join(format!("{name}.acp"));
    let text =
        std::fs::read_to_string(&path).unwrap_or_else(|err| panic!("{}: {err}", path.display()));
    let used = |used: &str| std::fs::read_to_string(folder().join(format!("{used}.acp"))).ok();
    let transcript = Transcript::parse(&text, &used).unwrap_or_else(|err| panic!("{name}: {err}"));
    (path, transcript)
}

/// Accepts what was played, or says what was not as written and what does not fit the schema.
fn judge(path: &Path, transcript: &Transcript, played: &Played) {
    let mut asked = HashMap::new();
    for line in transcript.lines() {
        if let Step::Send(message) = &line.step
            && let (Some(id), Some(method)) =
                (message.get("id"), message.get("method").and_then(|method| method.as_str()))
        {
            asked.insert(id.to_string(), method.to_owned());
        }
    }
    // The schema is v1's; the other dialects have none.
    let is_v1 = Dialect::ALL
        .iter()
        .all(|dialect| !transcript.has_tag(&format!("dialect-{}", dialect.name())));
    if is_v1 {
        let faults = schema::faults(&played.seen, &asked);
        assert!(faults.is_empty(), "{}:\n{}", path.display(), faults.join("\n"));
    }
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(path, &played.updated).unwrap();
        return;
    }
    assert!(played.is_as_written(), "{}:\n{}", path.display(), played.report());
}

async fn against_the_program(name: &str) {
    let (path, transcript) = load(name);
    let played = play_program(&transcript, |stage| {
        let mut args = vec![
            "acp".to_owned(),
            "--model".to_owned(),
            format!("script:{}", stage.script.display()),
        ];
        if let Some(config) = &stage.config {
            args.extend(["--config".to_owned(), config.display().to_string()]);
        }
        if !is_kept(name, &transcript) {
            args.push("--forget".to_owned());
        }
        process::Spec::new(env!("CARGO_BIN_EXE_purlin"), &stage.folder)
            .args(args)
            .env("XDG_DATA_HOME", stage.folder.with_file_name("data"))
    })
    .await
    .unwrap();
    judge(&path, &transcript, &played);
}

/// The player is not for Purlin alone: here is an agent on the protocol's official SDK.
// R: Q1
#[tokio::test]
async fn a_foreign_agent_is_played_against() {
    let (path, transcript) = load("prompt/black_box");
    let test = std::env::current_exe().unwrap();
    let agent = test.ancestors().nth(2).unwrap().join("examples/echo_sdk");
    let agent = agent.with_extension(std::env::consts::EXE_EXTENSION);
    let played = play_program(&transcript, |stage| process::Spec::new(&agent, &stage.folder));
    let played = played.await.unwrap();
    assert!(played.is_as_written(), "{}:\n{}", path.display(), played.report());
    // And it is not just agreeable: what another agent says is told from what is written.
    let (_, other) = load("initialize/handshake");
    let played = play_program(&other, |stage| process::Spec::new(&agent, &stage.folder));
    assert!(!played.await.unwrap().is_as_written());
}

async fn in_process(name: &str) {
    let (path, transcript) = load(name);
    let has_files = transcript.lines().iter().any(|line| matches!(line.step, Step::File { .. }));
    if has_files || transcript.exit().is_some() {
        // Files and exit codes belong to a process of its own.
        return;
    }
    let data = data_folder(name);
    let work = data.with_extension("work");
    std::fs::create_dir_all(&work).unwrap();
    let model = engine::script::ScriptedModel::parse(&transcript.script(&work)).unwrap();
    let config = transcript.config().cloned();
    let (config, problems) = config.map_or_else(Default::default, Config::from_value);
    let mut hub = purlin::assemble::hub_options(None).unwrap();
    hub.models = purlin::assemble::scripted(model).unwrap();
    if is_kept(name, &transcript) {
        let store = purlin::assemble::store_in(Some(data.clone()), &config.limits);
        hub.journal = Arc::new(store);
    }
    let (agent_in, client_out) = duplex(64 * 1024);
    let (client_in, agent_out) = duplex(64 * 1024);
    let mut tasks = JoinSet::new();
    let pipes = pipes(agent_in, agent_out, &mut tasks);
    let stop = CancellationToken::new();
    let Config { limits, dialect, mcp, permission, additions, .. } = config;
    let machine = purlin::assemble::Machine::helped_by(env!("CARGO_BIN_EXE_purlin").into());
    let host = purlin::servers::host(&machine);
    let cwd = work.clone();
    let rules = permission.clone();
    let policy = purlin::permissions::policies(
        permission,
        is_kept(name, &transcript).then_some(data.clone()),
    );
    let policy = purlin::permissions::telling(policy, &problems);
    let tools = purlin::assemble::tools(Arc::clone(&machine), true);
    let tools = purlin::tour::with_tour(tools, rules);
    let tools = purlin::custom::with_additions(tools, additions, Arc::clone(&policy), machine);
    let options = serve::Options {
        limits,
        hub,
        dialect,
        cwd,
        stop,
        tools: purlin::servers::with_servers(tools, host, mcp),
        policy,
        primer: purlin::primer::primers(Vec::new()),
        ladder: None,
    };
    tasks.spawn(serve::serve(pipes, options));
    let played = play(&transcript, &work, client_in, client_out).await;
    std::fs::remove_dir_all(&work).unwrap();
    if is_kept(name, &transcript) {
        std::fs::remove_dir_all(&data).unwrap();
    }
    judge(&path, &transcript, &played);
}

/// Tells whether the sessions of a transcript are kept. All others run without a store.
fn is_kept(name: &str, transcript: &Transcript) -> bool {
    name.starts_with("kept/") || transcript.has_tag("kept")
}

fn data_folder(name: &str) -> PathBuf {
    let name = name.replace('/', "-");
    std::env::temp_dir().join(format!("purlin-{name}-{}", std::process::id()))
}

/// Connects two in-memory pipes to an agent in this process.
fn pipes(mut input: DuplexStream, mut output: DuplexStream, tasks: &mut JoinSet<()>) -> Pipes {
    let (to_agent, from_client) = mpsc::channel(4);
    let (to_writer, mut batches) = mpsc::channel::<Vec<u8>>(1);
    let (to_ack, written) = mpsc::channel(1);
    tasks.spawn(async move {
        let mut buffer = vec![0; 4096];
        while let Ok(count) = input.read(&mut buffer).await {
            if count == 0 || to_agent.send(buffer[..count].to_vec()).await.is_err() {
                return;
            }
        }
    });
    tasks.spawn(async move {
        while let Some(batch) = batches.recv().await {
            let done = output.write_all(&batch).await.map(|()| batch);
            if to_ack.send(done).await.is_err() {
                return;
            }
        }
    });
    Pipes { input: from_client, output: to_writer, written, progress: Default::default() }
}

/// One line per transcript; [`every_transcript_is_listed`] compares the list with the folder.
macro_rules! transcripts {
    ($($test:ident = $name:literal;)*) => {
        $(mod $test {
            #[tokio::test]
            async fn in_process() {
                super::in_process($name).await;
            }

            #[tokio::test]
            async fn against_the_program() {
                super::against_the_program($name).await;
            }
        })*

        /// Their names.
        pub(crate) const LISTED: &[&str] = &[$($name),*];
    };
}

transcripts! {
    agents_cancel = "agents/cancel";
    agents_failures = "agents/failures";
    agents_narrowed = "agents/narrowed";
    agents_permission = "agents/permission";
    agents_question = "agents/question";
    agents_two_at_once = "agents/two_at_once";
    context_alternating = "context/alternating";
    context_compact = "context/compact";
    context_endless_summary = "context/endless_summary";
    context_full = "context/full";
    context_nearly_full = "context/nearly_full";
    context_plain_client = "context/plain_client";
    context_same_failure = "context/same_failure";
    custom_agents = "custom/agents";
    custom_commands = "custom/commands";
    custom_hooks = "custom/hooks";
    custom_project = "custom/project";
    custom_unknown_model = "custom/unknown_model";
    dialect_aliases = "dialect/aliases";
    dialect_container_conversation = "dialect/container_conversation";
    dialect_container_custom_mode = "dialect/container_custom_mode";
    dialect_container_failures = "dialect/container_failures";
    dialect_container_limits = "dialect/container_limits";
    dialect_container_load = "dialect/container_load";
    dialect_container_modes = "dialect/container_modes";
    dialect_container_refused = "dialect/container_refused";
    dialect_container_workspace = "dialect/container_workspace";
    dialect_forced = "dialect/forced";
    dialect_forced_container = "dialect/forced_container";
    dialect_message_flows = "dialect/message_flows";
    dialect_message_specification = "dialect/message_specification";
    dialect_protocol_specification = "dialect/protocol_specification";
    dialect_reference_conversation = "dialect/reference_conversation";
    dialect_reference_blocks = "dialect/reference_blocks";
    dialect_reference_failures = "dialect/reference_failures";
    dialect_reference_limits = "dialect/reference_limits";
    dialect_reference_modes = "dialect/reference_modes";
    dialect_reference_refused = "dialect/reference_refused";
    dialect_reference_unanswered = "dialect/reference_unanswered";
    dialect_v1_conversation = "dialect/v1_conversation";
    dialect_v1_limits = "dialect/v1_limits";
    end_idle = "end/idle";
    end_in_a_turn = "end/in_a_turn";
    initialize_authenticate = "initialize/authenticate";
    initialize_first_of_all = "initialize/first_of_all";
    initialize_handshake = "initialize/handshake";
    initialize_other_versions = "initialize/other_versions";
    kept_agent = "kept/agent";
    kept_command_load = "kept/command_load";
    kept_compact = "kept/compact";
    kept_continue = "kept/continue";
    kept_fork_delete = "kept/fork_delete";
    kept_handshake = "kept/handshake";
    kept_list_title = "kept/list_title";
    kept_load = "kept/load";
    kept_not_found = "kept/not_found";
    kept_reference_load = "kept/reference_load";
    kept_rewind = "kept/rewind";
    kept_steering = "kept/steering";
    kept_undo = "kept/undo";
    kept_undo_patch = "kept/undo_patch";
    kept_undo_redo = "kept/undo_redo";
    kept_undo_refused = "kept/undo_refused";
    prompt_answer = "prompt/answer";
    prompt_black_box = "prompt/black_box";
    prompt_busy = "prompt/busy";
    prompt_cancel = "prompt/cancel";
    prompt_cancel_early = "prompt/cancel_early";
    prompt_cancel_request = "prompt/cancel_request";
    prompt_content = "prompt/content";
    prompt_guide = "prompt/guide";
    prompt_init_review = "prompt/init_review";
    prompt_meta = "prompt/meta";
    prompt_model_fails = "prompt/model_fails";
    prompt_no_progress = "prompt/no_progress";
    prompt_no_session = "prompt/no_session";
    prompt_slash_commands = "prompt/slash_commands";
    prompt_steering_command = "prompt/steering_command";
    prompt_steering_refused = "prompt/steering_refused";
    prompt_stop_reasons = "prompt/stop_reasons";
    prompt_steering = "prompt/steering";
    prompt_steering_late = "prompt/steering_late";
    prompt_tour = "prompt/tour";
    session_close = "session/close";
    session_isolated = "session/isolated";
    session_new = "session/new";
    session_new_older_forms = "session/new_older_forms";
    session_new_refused = "session/new_refused";
    session_set_config_option = "session/set_config_option";
    session_set_mode = "session/set_mode";
    session_set_model = "session/set_model";
    tools_always = "tools/always";
    tools_at_once = "tools/at_once";
    tools_at_once_cancel = "tools/at_once_cancel";
    tools_cancel_in_terminal = "tools/cancel_in_terminal";
    tools_cancel_while_asking = "tools/cancel_while_asking";
    tools_careful = "tools/careful";
    tools_client_refuses = "tools/client_refuses";
    tools_command = "tools/command";
    tools_command_cancel = "tools/command_cancel";
    tools_command_live = "tools/command_live";
    tools_command_live_timeout = "tools/command_live_timeout";
    tools_command_network = "tools/command_network";
    tools_command_timeout = "tools/command_timeout";
    tools_disk_edit = "tools/disk_edit";
    tools_disk_write = "tools/disk_write";
    tools_exit_plan = "tools/exit_plan";
    tools_fetch_private = "tools/fetch_private";
    tools_method_missing = "tools/method_missing";
    tools_deny_search = "tools/deny_search";
    tools_deny_wins = "tools/deny_wins";
    tools_mode_forbids = "tools/mode_forbids";
    tools_mode_narrows = "tools/mode_narrows";
    tools_mode_while_asking = "tools/mode_while_asking";
    tools_never = "tools/never";
    tools_nothing_offered = "tools/nothing_offered";
    tools_outside = "tools/outside";
    tools_page = "tools/page";
    tools_patch = "tools/patch";
    tools_permission = "tools/permission";
    tools_plan = "tools/plan";
    tools_question = "tools/question";
    tools_question_options = "tools/question_options";
    tools_refused = "tools/refused";
    tools_search = "tools/search";
    tools_secret = "tools/secret";
    tools_secret_below = "tools/secret_below";
    tools_stale = "tools/stale";
    tools_stale_while_asking = "tools/stale_while_asking";
    tools_specific_wins = "tools/specific_wins";
    tools_terminal = "tools/terminal";
    tools_terminal_refused = "tools/terminal_refused";
    tools_visible = "tools/visible";
    tools_visible_words = "tools/visible_words";
    wire_bad_params = "wire/bad_params";
    wire_flood_of_errors = "wire/flood_of_errors";
    wire_ids = "wire/ids";
    wire_not_a_request = "wire/not_a_request";
    wire_not_json = "wire/not_json";
    wire_notes_are_not_answered = "wire/notes_are_not_answered";
    wire_odd_lines = "wire/odd_lines";
    wire_rate = "wire/rate";
    wire_too_large = "wire/too_large";
    wire_unknown_methods = "wire/unknown_methods";
}

#[test]
fn every_transcript_is_listed() {
    let mut found: Vec<String> = Vec::new();
    for chapter in std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()) {
        let name = chapter.file_name().unwrap().to_string_lossy().into_owned();
        if !chapter.is_dir() || ["judge", "schema"].contains(&name.as_str()) {
            continue;
        }
        for file in std::fs::read_dir(&chapter).unwrap().map(|entry| entry.unwrap().path()) {
            if file.extension().is_some_and(|ending| ending == "acp") {
                found.push(format!("{name}/{}", file.file_stem().unwrap().to_string_lossy()));
            }
        }
    }
    found.sort();
    let mut listed: Vec<&str> = LISTED.to_vec();
    listed.sort_unstable();
    assert_eq!(found, listed);
}
