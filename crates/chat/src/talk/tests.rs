//! Agents that die, hang, or talk nonsense, as real programs.

use super::*;

fn talk(script: &str) -> Talk {
    let agent = ["sh", "-c", script].map(str::to_owned).to_vec();
    let cwd = tempfile::env::temp_dir();
    Talk::new(TalkOptions {
        agent: AgentAddress::Program(agent),
        cwd,
        offers_files: true,
        terminal: process::TerminalSize { columns: 80, rows: 24 },
        name: "test",
        version: "1",
    })
}

fn connect(talk: &mut Talk) {
    talk.run(Command::Connect { after: Duration::ZERO, session: None });
}

/// Returns the next event. On a busy machine any agent may be slow.
async fn next(talk: &mut Talk) -> Event {
    loop {
        match talk.next().await {
            Event::Slow => {}
            event => return event,
        }
    }
}

async fn first_event(talk: &mut Talk) -> Event {
    connect(talk);
    next(talk).await
}

async fn lost(script: &str) -> (String, bool) {
    match first_event(&mut talk(script)).await {
        Event::Lost { reason, can_retry } => (reason, can_retry),
        other => panic!("{other:?}"),
    }
}

// R: C2
#[tokio::test]
async fn agent_that_exits_is_reported_with_its_status_and_last_words() {
    let (reason, can_retry) = lost("echo 'no key' >&2; exit 7").await;
    assert!(reason.contains("exit status: 7") && reason.contains("no key"), "{reason}");
    assert!(can_retry);
    let (reason, _) = lost("kill -9 $$").await;
    assert!(reason.contains("SIGKILL"), "{reason}");
}

// R: C4
#[tokio::test(start_paused = true)]
async fn silent_agent_is_reported_after_five_seconds_and_given_up_later() {
    let before = tokio::time::Instant::now();
    let mut talk = talk("exec sleep 1000");
    connect(&mut talk);
    let event = talk.next().await;
    assert!(matches!(event, Event::Slow), "{event:?}");
    assert_eq!(before.elapsed().as_secs(), 5);
    let event = talk.next().await;
    let Event::Lost { reason, can_retry: true } = event else { panic!("{event:?}") };
    assert!(reason.contains("did not answer `initialize` within 30 s"), "{reason}");
}

// R: C3
#[tokio::test]
async fn nonsense_is_no_answer() {
    let wrong_shape = r#"read line; echo nonsense; echo '{"jsonrpc":"2.0","id":77,"result":{}}'; echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"one"}}'; sleep 100"#;
    let (reason, can_retry) = lost(wrong_shape).await;
    assert!(reason.contains("initialize does not match the protocol"), "{reason}");
    assert!(!can_retry);
    let both = r#"read line; echo '{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"no"}}'; sleep 100"#;
    let (reason, _) = lost(both).await;
    assert!(reason.contains("initialize"), "{reason}");
}

// R: C4
#[tokio::test]
async fn other_version_of_the_protocol_is_reported() {
    let script =
        r#"read line; echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":9}}'; sleep 100"#;
    let (reason, can_retry) = lost(script).await;
    assert!(reason.contains("version 9"), "{reason}");
    assert!(!can_retry);
}

#[tokio::test]
async fn missing_program_is_reported() {
    let mut talk = talk("");
    talk.options.agent = AgentAddress::Program(vec!["/no/such/agent".to_owned()]);
    let event = first_event(&mut talk).await;
    assert!(matches!(event, Event::Lost { can_retry: false, .. }), "{event:?}");
}

// R: C2
#[tokio::test]
async fn death_during_a_turn_is_noticed() {
    let script = r#"read line; echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}'
        read line; echo '{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s"}}'
        read line; echo '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"half"}}}}'
        kill -9 $$"#;
    let mut talk = talk(script);
    let event = first_event(&mut talk).await;
    assert!(matches!(event, Event::Connected(_)), "{event:?}");
    let event = next(&mut talk).await;
    assert!(matches!(&event, Event::Opened(opened) if opened.id.0.as_ref() == "s"), "{event:?}");
    talk.run(Command::Prompt("go".to_owned()));
    let event = next(&mut talk).await;
    assert!(matches!(event, Event::Update(_)), "{event:?}");
    let event = next(&mut talk).await;
    assert!(
        matches!(&event, Event::Lost { reason, can_retry: true } if reason.contains("SIGKILL")),
        "{event:?}"
    );
}

// R: C2
#[tokio::test]
async fn end_of_the_agent_is_reported_even_if_other_events_interrupt_the_wait() {
    // Closes its output and stays: finding out how it ends takes a while.
    let mut talk = talk(
        r#"read line; echo '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1,"agentCapabilities":{}}}' | sed "s/\"id\":0/\"id\":$(expr "$line" : '.*"id":\([0-9]*\)')/"; exec 1>&-; sleep 100"#,
    );
    connect(&mut talk);
    let mut reason = None;
    while reason.is_none() {
        // Every few milliseconds something else happens, such as a key.
        let event = tokio::time::timeout(Duration::from_millis(5), talk.next()).await;
        if let Ok(Event::Lost { reason: why, .. }) = event {
            reason = Some(why);
        }
    }
    assert!(reason.unwrap().contains("The connection to the agent was lost"));
}
