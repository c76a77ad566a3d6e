//! What goes wrong, by the numbers of the fault list. The server's fault stays the server's: an error that says
//! what to do, no key in it, and nothing shown twice.

use std::time::{Duration, Instant};

use engine::ports::ModelError;

use crate::{CANARY, Fake, PACKAGES, ask_at, request};

const CHAT: &str = "@ai-sdk/openai-compatible";
const ANTHROPIC: &str = "@ai-sdk/anthropic";

fn is_unavailable(error: Option<&ModelError>) -> bool {
    matches!(error, Some(ModelError::Unavailable(_)))
}

#[tokio::test]
async fn p01_a_name_that_does_not_resolve() {
    let heard = ask_at("http://no-such-host.invalid/v1", CHAT, request()).await;
    assert!(is_unavailable(heard.error.as_ref()), "{heard:?}");
    assert_eq!(heard.waits(), 3);
    assert!(heard.words().contains("fake cannot be reached"), "{heard:?}");
}

#[tokio::test]
async fn p02_a_refused_connection() {
    let (listener, address) = crate::server::listen("127.0.0.1:0").await.unwrap();
    drop(listener);
    let heard = ask_at(&format!("http://{address}/v1"), CHAT, request()).await;
    assert!(is_unavailable(heard.error.as_ref()), "{heard:?}");
    assert_eq!(heard.waits(), 3);
    assert!(heard.words().contains("refused"), "{heard:?}");
}

#[tokio::test]
async fn p03_p16_silence_before_the_headers() {
    let fake = Fake::new("hang\n---\nhang\n---\ntext \"late\"").await;
    let heard = fake.ask(CHAT).await;
    assert_eq!((heard.waits(), heard.text().as_str()), (2, "late"), "{heard:?}");
    assert!(heard.lines[0].contains("sent nothing for 0."), "{heard:?}");
}

#[tokio::test]
async fn p04_no_tls_where_tls_should_be() {
    let fake = Fake::new("text \"hi\"").await;
    let heard = ask_at(&fake.url.replace("http:", "https:"), CHAT, request()).await;
    assert!(is_unavailable(heard.error.as_ref()), "{heard:?}");
    assert_eq!(heard.waits(), 3);
}

#[tokio::test]
async fn p05_p06_a_refused_key_is_not_tried_again_and_not_repeated() {
    for (status, package) in [401, 403].into_iter().zip([CHAT, ANTHROPIC]) {
        let body = format!(r#"{{"error":{{"message":"Incorrect API key provided: {CANARY}"}}}}"#);
        let script = format!("status {status}\nbody {}", serde_json::Value::from(body));
        let fake = Fake::new(&script).await;
        let heard = fake.ask(package).await;
        assert!(matches!(heard.error, Some(ModelError::AuthNeeded(_))), "{heard:?}");
        assert_eq!(heard.waits(), 0);
        assert!(heard.words().contains("Incorrect API key provided: ****"), "{heard:?}");
        assert!(heard.words().contains("Set `provider.fake.options.apiKey`"), "{heard:?}");
        assert_eq!(fake.shared.asked().len(), 1);
    }
}

#[tokio::test]
async fn p07_a_wait_that_is_asked_for_is_kept() {
    let fake = Fake::new("status 429\nheader retry-after-ms: 700\n---\ntext \"hi\"").await;
    let begun = Instant::now();
    let heard = fake.ask(CHAT).await;
    assert_eq!(heard.text(), "hi");
    assert!(begun.elapsed() >= Duration::from_millis(700));
    assert!(heard.lines[0].contains("says to wait 0.7 s"), "{heard:?}");
}

#[tokio::test]
async fn p08_a_wait_that_is_too_long_ends_it_and_says_when() {
    let fake = Fake::new("status 429\nheader retry-after: 10000").await;
    let heard = fake.ask(CHAT).await;
    assert!(matches!(heard.error, Some(ModelError::RateLimited(_))), "{heard:?}");
    assert!(heard.words().contains("10000 s"), "{heard:?}");
    assert_eq!(fake.shared.asked().len(), 1);
}

#[tokio::test]
async fn p09_too_many_requests_without_a_time_or_without_money() {
    let spent = r#"status 429
header retry-after: 1
body "{\"error\":{\"code\":\"insufficient_quota\",\"message\":\"You exceeded your current quota\"}}""#;
    for script in ["status 429", spent] {
        let fake = Fake::new(script).await;
        let heard = fake.ask(CHAT).await;
        assert!(matches!(heard.error, Some(ModelError::RateLimited(_))), "{heard:?}");
        assert_eq!(fake.shared.asked().len(), 1);
    }
}

#[tokio::test]
async fn p10_p11_p12_p13_p14_server_errors_are_tried_twice_again() {
    for status in [500, 502, 503, 504, 529] {
        let fake =
            Fake::new(&format!("status {status}\n---\nstatus {status}\n---\ntext \"hi\"")).await;
        let heard = fake.ask(ANTHROPIC).await;
        assert_eq!((heard.waits(), heard.text().as_str()), (2, "hi"), "{status}");

        let fake = Fake::new(&format!("status {status}\n---\nloop")).await;
        let heard = fake.ask(ANTHROPIC).await;
        assert!(is_unavailable(heard.error.as_ref()), "{status}: {heard:?}");
        assert_eq!(fake.shared.asked().len(), 3, "{status}");
    }
}

#[tokio::test]
async fn p15_an_error_event_after_200_has_the_class_of_its_status() {
    for package in PACKAGES {
        let fake = Fake::new("error overloaded_error \"Overloaded\"\n---\ntext \"hi\"").await;
        let heard = fake.ask(package).await;
        assert_eq!((heard.waits(), heard.text().as_str()), (1, "hi"), "{package}: {heard:?}");
        // Behind the first text it is too late to try again.
        let fake = Fake::new("text \"half\"\nerror overloaded_error \"Overloaded\"").await;
        let heard = fake.ask(package).await;
        assert_eq!(heard.text(), "half", "{package}");
        assert!(matches!(heard.error, Some(ModelError::Incomplete(_))), "{package}: {heard:?}");
    }
}

#[tokio::test]
async fn p17_silence_behind_the_headers_is_tried_again() {
    let fake = Fake::new("raw \": ping\\n\\n\"\nhang\n---\ntext \"hi\"").await;
    let heard = fake.ask(CHAT).await;
    assert_eq!((heard.waits(), heard.text().as_str()), (1, "hi"), "{heard:?}");
}

#[tokio::test]
async fn p18_p19_silence_in_text_and_in_arguments() {
    for package in PACKAGES {
        let fake = Fake::new("text \"half\"\nhang").await;
        let heard = fake.ask(package).await;
        assert_eq!(heard.text(), "half", "{package}");
        assert!(matches!(heard.error, Some(ModelError::Incomplete(_))), "{package}: {heard:?}");
    }
    // Arguments that were never whole were never shown: safe to ask again.
    let fake = Fake::new("open-tool read \"{\\\"path\\\":\"\nhang\n---\ntext \"hi\"").await;
    let heard = fake.ask(ANTHROPIC).await;
    assert_eq!(heard.text(), "hi", "{heard:?}");
    assert!(!heard.lines.iter().any(|line| line.starts_with("tool ")), "{heard:?}");
}

#[tokio::test]
async fn p20_p21_p22_a_cut_shows_no_garbage() {
    let cuts = [
        "raw \"data: {\\\"choices\\\":[{\\\"delta\\\":{\\\"content\\\":\\\"gar\"\ncut",
        "raw \"data: {\\\"choices\\\":[{\\\"delta\\\":{\\\"content\\\":\\\"gar\"\nbytes c3\ncut",
        "cut",
        "end",
    ];
    for cut in cuts {
        let fake = Fake::new(&format!("text \"half\"\n{cut}")).await;
        let heard = fake.ask(CHAT).await;
        assert_eq!(heard.text(), "half", "{cut}");
        assert!(matches!(heard.error, Some(ModelError::Incomplete(_))), "{cut}: {heard:?}");
        let fake = Fake::new(&format!("{cut}\n---\ntext \"hi\"")).await;
        assert_eq!(fake.ask(CHAT).await.text(), "hi", "{cut}");
    }
}

#[tokio::test]
async fn p23_p24_p25_events_twice_out_of_order_and_unknown() {
    let script = r#"
raw "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":7}\n\n"
raw "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":9,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\"}}\n\n"
raw "event: of_tomorrow\ndata: {\"type\":\"of_tomorrow\"}\n\n"
text "hi"
raw "data: {\"type\":\"message_start\",\"message\":{}}\n\n"
"#;
    let heard = Fake::new(script).await.ask(ANTHROPIC).await;
    assert_eq!((heard.text().as_str(), &heard.error), ("hi", &None), "{heard:?}");
}

#[tokio::test]
async fn p26_an_event_of_100_mib_is_not_held() {
    let fake = Fake::new("flood 104857600").await;
    let heard = fake.ask(CHAT).await;
    assert!(heard.words().contains("longer than 4194304 bytes"), "{heard:?}");
}

#[tokio::test]
async fn p27_a_gzip_bomb_is_not_unpacked() {
    let fake = Fake::new("header content-encoding: gzip\nbomb 16777216").await;
    let begun = Instant::now();
    let heard = fake.ask("@ai-sdk/google").await;
    assert!(matches!(heard.error, Some(ModelError::Failed(_))), "{heard:?}");
    assert!(heard.words().contains("longer than 4194304 bytes"), "{heard:?}");
    assert!(begun.elapsed() < Duration::from_secs(5), "took {:?}", begun.elapsed());
}

#[tokio::test]
async fn p28_a_web_page_instead_of_an_answer() {
    let page =
        "header content-type: text/html; charset=utf-8\nbody \"<html>Log in to the hotel</html>\"";
    for script in [page.to_owned(), format!("status 404\n{page}")] {
        let heard = Fake::new(&script).await.ask(CHAT).await;
        assert!(matches!(heard.error, Some(ModelError::Failed(_))), "{heard:?}");
        assert!(heard.words().contains("a web page came"), "{heard:?}");
        assert!(heard.words().contains("base URL"), "{heard:?}");
    }
}

#[tokio::test]
async fn p33_an_empty_answer_is_asked_for_once_more() {
    for package in PACKAGES {
        let fake = Fake::new("usage 1 0 0 0\n---\ntext \"hi\"").await;
        assert_eq!(fake.ask(package).await.text(), "hi", "{package}");
        let fake = Fake::new("usage 1 0 0 0\n---\nloop").await;
        let heard = fake.ask(package).await;
        assert!(heard.words().contains("answered nothing"), "{package}: {heard:?}");
        assert_eq!(fake.shared.asked().len(), 2, "{package}");
    }
}

#[tokio::test]
async fn p34_a_conversation_that_is_too_long_is_told_as_such() {
    let script = r#"status 400
body "{\"error\":{\"code\":\"context_length_exceeded\",\"message\":\"This model's maximum context length is 8192 tokens\"}}""#;
    let fake = Fake::new(script).await;
    let heard = fake.ask(CHAT).await;
    assert!(matches!(heard.error, Some(ModelError::ContextFull(_))), "{heard:?}");
    assert_eq!(fake.shared.asked().len(), 1);
}

#[tokio::test]
async fn p35_a_redirect_to_another_place_is_refused_and_the_key_stays() {
    let thief = Fake::new("text \"thanks\"").await;
    for status in [301, 302, 307, 308] {
        let script = format!("status {status}\nheader location: {}/chat/completions", thief.url);
        let heard = Fake::new(&script).await.ask(CHAT).await;
        assert!(heard.words().contains("not followed"), "{status}: {heard:?}");
    }
    assert!(thief.shared.asked().is_empty());
    // Within the same place it is followed.
    let fake =
        Fake::new("status 307\nheader location: /v2/chat/completions\n---\ntext \"hi\"").await;
    assert_eq!(fake.ask(CHAT).await.text(), "hi");
}

#[tokio::test]
async fn p36_one_token_just_before_each_time_out() {
    let fake = Fake::new("text \"a\"\nwait 200\ntext \"b\"\nwait 200\ntext \"c\"\nwait 200").await;
    let heard = fake.ask(CHAT).await;
    assert_eq!((heard.text().as_str(), &heard.error), ("abc", &None));
}

#[tokio::test]
async fn arguments_that_are_no_json_reach_the_tool_as_text() {
    let heard = Fake::new("raw-tool read \"{\\\"path\\\": \"").await.ask(ANTHROPIC).await;
    assert!(heard.lines.contains(&r#"tool read "{\"path\": ""#.to_owned()), "{heard:?}");
}
