//! Faults of the network and of HTTP: P01 to P17 and P35.

use std::io::Read;
#[cfg(target_os = "linux")]
use std::net::TcpStream;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpSocket;

use super::{
    Case, Client, Ends, SHORT, check, check_elsewhere, check_history, check_long_silence,
    check_silence, times,
};
use crate::agent::{text_of, update_kind};
use crate::models::{ANTHROPIC, CANARY, CHAT, Fake, PACKAGES, ask, updates};

/// Returns a bound socket that does not listen yet.
fn bind() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// Listens with a queue for this many connections.
fn listen(socket: TcpSocket, backlog: u32) -> TcpListener {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let _inside = runtime.enter();
    socket.listen(backlog).unwrap().into_std().unwrap()
}

// R: P6
#[test]
fn p01_unknown_host() {
    let case = Case {
        requests: 4,
        notice: "fake cannot be reached",
        ends: Ends::unavailable(&["cannot be reached", "Check the network and the base URL"]),
        ..Case::default()
    };
    check_elsewhere("http://no-such-host.invalid/v1", &case);
}

// R: P6
#[test]
fn p02_connection_refused() {
    let (socket, address) = bind();
    let case = Case {
        requests: 4,
        notice: "fake cannot be reached",
        ends: Ends::unavailable(&["Connection refused", "Check the network and the base URL"]),
        ..Case::default()
    };
    let mut client = Client::new(case.config(&format!("http://{address}/v1")));
    client.meet(&case);
    let fake = Fake::at(listen(socket, 16), "text \"Back.\"");
    client.prompt_again();
    check_history(&case, &fake.requests()[0]);
    client.end();
}

/// Returns an address that answers no packet, as behind a firewall: its queue is full. Also returns what fills it.
#[cfg(target_os = "linux")]
fn black_hole() -> (TcpListener, Vec<TcpStream>) {
    let (socket, address) = bind();
    let listener = listen(socket, 0);
    let mut full = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(SHORT)) {
        full.push(stream);
    }
    (listener, full)
}

// R: P6
#[cfg(target_os = "linux")]
#[test]
fn p03_black_hole() {
    let (listener, full) = black_hole();
    let case = Case {
        requests: 4,
        notice: "fake sent nothing for 1.0 s",
        ends: Ends::unavailable(&["sent nothing for 1.0 s", "`headerTimeout`"]),
        header_timeout: SHORT,
        ..Case::default()
    };
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let mut client = Client::new(case.config(&url));
    client.meet(&case);
    drop(full);
    let fake = Fake::at(listener, "text \"Back.\"");
    client.prompt_again();
    check_history(&case, &fake.requests()[0]);
    client.end();
}

#[cfg(target_os = "linux")]
#[test]
fn p03_black_hole_times_out_after_ten_seconds_and_can_be_cancelled() {
    let (listener, full) = black_hole();
    let case = Case::default();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let mut client = Client::new(case.config(&url));
    let turn = client.agent.prompt(&client.session, "Go.");
    let notice = client.agent.find(|message| update_kind(message) == "agent_thought_chunk");
    let notice = notice["params"]["update"]["content"]["text"].to_string();
    let words = format!("cannot be reached at {url}: no connection within 10 s");
    assert!(notice.contains(&words), "{notice}");
    client.agent.note("session/cancel", json!({ "sessionId": client.session }));
    assert_eq!(client.agent.reply(turn)["result"]["stopReason"], "cancelled");
    drop(full);
    let fake = Fake::at(listener, "text \"Back.\"");
    client.prompt_again();
    check_history(&case, &fake.requests()[0]);
    client.end();
}

// R: P6
#[test]
fn p04_plain_http_instead_of_tls() {
    let plain = Fake::new("text \"Hello.\"");
    let case = Case {
        requests: 4,
        notice: "does not use TLS",
        ends: Ends::unavailable(&["Try http:// instead of https://", "the base URL"]),
        ..Case::default()
    };
    check_elsewhere(&plain.url.replace("http:", "https:"), &case);
    assert!(plain.requests().is_empty());
}

#[test]
fn p04_untrusted_certificate() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/v1", listener.local_addr().unwrap());
    let met = Arc::new(AtomicUsize::new(0));
    let (tls, count) = (tls_config(), Arc::clone(&met));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let tls = rustls::ServerConnection::new(Arc::clone(&tls)).unwrap();
            count.fetch_add(1, Ordering::Relaxed);
            let mut request = Vec::new();
            let read = rustls::StreamOwned::new(tls, stream.unwrap()).read_to_end(&mut request);
            assert!(read.is_err() && request.is_empty(), "the program trusts anybody");
        }
    });
    let case = Case {
        requests: 4,
        notice: "invalid peer certificate",
        ends: Ends::unavailable(&[
            "fake cannot be reached at https://127.0.0.1:",
            ": invalid peer certificate",
            "Check the network and the base URL",
        ]),
        ..Case::default()
    };
    check_elsewhere(&url, &case);
    assert_eq!(met.load(Ordering::Relaxed), 4);
}

fn tls_config() -> Arc<rustls::ServerConfig> {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};

    let pem = include_bytes!("nobody.pem");
    let certificate = CertificateDer::from_pem_slice(pem).unwrap();
    let key = PrivateKeyDer::from_pem_slice(pem).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    Arc::new(config.with_single_cert(vec![certificate], key).unwrap())
}

/// The provider's error repeats the key; our messages must not.
fn check_refused_key(status: u16) {
    let body = format!(r#"{{"error":{{"message":"Incorrect API key provided: {CANARY}"}}}}"#);
    let script = format!("status {status}\nbody {}", Value::from(body));
    for package in PACKAGES {
        let words = [
            "fake rejected the API key: Incorrect API key provided: ****",
            "Set `provider.fake.options.apiKey`",
        ];
        let ends = Ends::Badly(-32000, "auth_required", &words);
        check(&Case { package, script: &script, ends, ..Case::default() });
    }
}

// R: P6, I4, O1
#[test]
fn p05_rejected_key_is_not_retried() {
    check_refused_key(401);
}

// R: P6, I4, O1
#[test]
fn p06_key_without_permission_is_not_retried() {
    check_refused_key(403);
}

#[test]
fn key_that_names_an_unset_variable_is_reported() {
    for (key, words) in [
        ("{env:PURLIN_NO_SUCH_KEY}", "the variable PURLIN_NO_SUCH_KEY is not set"),
        ("{file:/no/such/key}", "cannot read the file /no/such/key"),
    ] {
        let fake = Fake::new("status 401\n---\ntext \"Back.\"");
        let mut config = Case::default().config(&fake.url);
        config["provider"]["fake"]["options"]["apiKey"] = json!(key);
        let mut client = Client::new(config);
        let (reply, _) = client.ask("Go.");
        let details = reply["error"]["data"]["details"].as_str().unwrap();
        assert!(details.starts_with(&format!("fake rejected the API key: {words}")), "{details}");
        assert!(details.ends_with("or run `purlin auth login fake`"), "{details}");
        client.prompt_again();
        client.end();
    }
}

/// The provider's error repeats the key; our messages must not, even if the error is cut inside the key.
// R: O1
#[test]
fn key_repeated_by_a_provider_is_masked() {
    const GATE: &str = "gate-canary-0123456789";
    let long = format!("{}{CANARY}", "x".repeat(290));
    for said in [long, format!("no {GATE} here")] {
        let body = json!({ "error": { "message": said } }).to_string();
        let fake = Fake::new(&format!(
            "status 400\nbody {}\n---\nerror bad {}\n---\ntext \"Back.\"",
            Value::from(body),
            Value::from(said)
        ));
        let mut config = Case::default().config(&fake.url);
        let headers = json!({ "X-Gate": format!("Bearer {GATE}") });
        config["provider"]["fake"]["options"]["headers"] = headers;
        let mut client = Client::new(config);
        for _ in 0..2 {
            let (reply, _) = client.ask("Go.");
            assert_eq!(reply["error"]["data"]["kind"], "model_failed", "{reply}");
            assert!(reply.to_string().contains("****"), "{reply}");
        }
        client.prompt_again();
        assert!(!client.heard.contains(&CANARY[..6]) && !client.heard.contains(GATE));
        client.end();
    }
}

#[test]
fn p07_requested_delay_is_respected() {
    let asked = check(&Case {
        script: "status 429\nheader retry-after: 2\n---\ntext \"Hello.\"",
        requests: 2,
        notice: "retry after 2.0 s",
        shown: "Hello.",
        ..Case::default()
    });
    assert!(asked[1].at - asked[0].at >= Duration::from_secs(2));
    let words = ["retry after 0.1 s", "Try again after that time, or choose another model"];
    check(&Case {
        script: &times(4, "status 429\nheader retry-after-ms: 100"),
        requests: 4,
        notice: "retry after 0.1 s",
        ends: Ends::Badly(-32003, "model_rate_limited", &words),
        ..Case::default()
    });
}

#[test]
fn p08_too_long_delay_ends_the_turn_and_is_reported() {
    let words = ["retry after 10000 s", "Try again after that time, or choose another model"];
    check(&Case {
        script: "status 429\nheader retry-after: 10000",
        ends: Ends::Badly(-32003, "model_rate_limited", &words),
        ..Case::default()
    });
}

#[test]
fn p09_rate_limit_without_a_delay_or_without_credit() {
    let words = ["fake: rate limit reached", "Try again later or choose another model"];
    let (notice, ends) =
        ("fake: rate limit reached", Ends::Badly(-32003, "model_rate_limited", &words));
    let script = times(3, "status 429");
    check(&Case { script: &script, requests: 3, notice, ends, ..Case::default() });
    let script = "status 429\n---\ntext \"Hello.\"";
    check(&Case { script, requests: 2, notice, shown: "Hello.", ..Case::default() });
    let spent =
        r#"{"error":{"code":"insufficient_quota","message":"You exceeded your current quota"}}"#;
    let words = ["fake: the account has no credit left", "Add credit or choose another model"];
    check(&Case {
        script: &format!("status 429\nheader retry-after: 1\nbody {}", Value::from(spent)),
        ends: Ends::Badly(-32003, "model_rate_limited", &words),
        ..Case::default()
    });
}

/// Checks that a server error leads to retries until the time for them is used up: here two.
fn check_server_error(answer: &str, package: &str) {
    check(&Case {
        package,
        script: &format!("{}\n---\ntext \"Hello.\"", times(2, answer)),
        requests: 3,
        notice: "fake is overloaded",
        shown: "Hello.",
        ..Case::default()
    });
    check(&Case {
        package,
        script: &times(3, answer),
        requests: 3,
        notice: "fake is overloaded",
        ends: Ends::unavailable(&["fake is overloaded", "Try again later"]),
        ..Case::default()
    });
}

// R: P6
#[test]
fn p10_internal_error() {
    check_server_error("status 500", CHAT);
}

// R: P6
#[test]
fn p11_bad_gateway() {
    check_server_error("status 502\nbody \"<html>Bad gateway</html>\"", CHAT);
}

// R: P6
#[test]
fn p12_unavailable() {
    check_server_error("status 503", CHAT);
}

// R: P6
#[test]
fn p13_gateway_timeout() {
    check_server_error("status 504", CHAT);
}

// R: P6
#[test]
fn p14_overloaded() {
    let body = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    check_server_error(&format!("status 529\nbody {}", Value::from(body)), ANTHROPIC);
}

// R: P6
#[test]
fn p15_error_event_after_200_is_handled_like_its_status() {
    for package in PACKAGES {
        check_server_error("error overloaded_error \"Overloaded\"", package);
        // After the first text the answer is continued.
        check(&Case {
            package,
            script: "text \"half\"\nerror overloaded_error \"Overloaded\"\n---\ntext \" more\"",
            requests: 2,
            notice: "fake is overloaded",
            shown: "half more",
            ..Case::default()
        });
    }
}

// R: P6
#[test]
fn retries_are_shown_as_notices() {
    let fake = Fake::new("status 503\n---\ntext \"Hello.\"");
    let mut agent = fake.agent(CHAT).start();
    let offers = json!({ "session": { "notices": {} } });
    agent.result("initialize", json!({ "protocolVersion": 1, "clientCapabilities": offers }));
    let session = agent.open();
    let (_, seen) = ask(&mut agent, &session, "Go.");
    assert_eq!(text_of(&session, &seen), "Hello.");
    let notice = updates(&seen, "notice").remove(0);
    assert!(notice.to_string().contains("Retrying"), "{notice}");
    assert!(updates(&seen, "agent_thought_chunk").is_empty());
}

// R: P6
#[test]
fn wait_for_an_overloaded_provider_is_shown_and_can_be_cancelled() {
    let fake = Fake::new("status 529\n---\ntext \"Back.\"");
    let mut config = Case::default().config(&fake.url);
    let options = &mut config["provider"]["fake"]["options"];
    options["retryDelay"] = json!(60_000);
    options["retryTimeout"] = json!(120_000);
    let mut client = Client::new(config);
    let turn = client.agent.prompt(&client.session, "Go.");
    let notice = client.agent.find(|message| update_kind(message) == "agent_thought_chunk");
    let notice = notice["params"]["update"]["content"]["text"].as_str().unwrap();
    assert!(notice.starts_with("fake is overloaded (HTTP 529). Retrying in "), "{notice}");
    let seconds = notice.trim_end().trim_end_matches(" s…").rsplit(' ').next().unwrap();
    let seconds: u64 = seconds.parse().unwrap();
    assert!((15..=30).contains(&seconds), "{notice}");
    client.agent.note("session/cancel", json!({ "sessionId": client.session }));
    assert_eq!(client.agent.reply(turn)["result"]["stopReason"], "cancelled");
    client.prompt_again();
    client.end();
}

// R: P6
#[test]
fn p16_silence_before_the_headers() {
    check_silence("hang", CHAT);
    check_long_silence("hang");
}

// R: P6
#[test]
fn p17_silence_after_the_headers() {
    check_long_silence("header content-type: text/event-stream\nhang");
    check_silence("raw \": ping\\n\\n\"\nhang", CHAT);
}

/// Linux reaches its own servers at 0.0.0.0, which is no loopback address: connections are kept open.
// R: P6
#[cfg(target_os = "linux")]
#[test]
fn connection_that_died_unused_is_replaced_in_silence() {
    for package in PACKAGES {
        let fake = Fake::new("text \"One.\"\n---\ntext \"Two.\"\n---\ncut\n---\ntext \"Three.\"");
        let case = Case { package, ..Case::default() };
        let mut client = Client::new(case.config(&fake.url.replace("127.0.0.1", "0.0.0.0")));
        for text in ["One.", "Two.", "Three."] {
            client.meet(&Case { package, shown: text, ..Case::default() });
        }
        let connections: Vec<usize> =
            fake.requests().iter().map(|asked| asked.connection).collect();
        assert_eq!(connections, [0, 0, 0, 1], "{package}");
        client.end();
    }
}

#[test]
fn p35_redirect_to_another_host_is_refused_without_sending_the_key() {
    let thief = Fake::new("text \"thanks\"");
    for status in [301, 302, 307, 308] {
        let place = format!("{}/chat/completions", thief.url);
        check(&Case {
            script: &format!("status {status}\nheader location: {place}"),
            ends: Ends::failed(&["redirect to 127.0.0.1", "not followed", "base URL"]),
            ..Case::default()
        });
    }
    assert!(thief.requests().is_empty());
    // A redirect to the same server is followed.
    check(&Case {
        script: "status 307\nheader location: /v2/chat/completions\n---\ntext \"Hello.\"",
        requests: 2,
        shown: "Hello.",
        ..Case::default()
    });
}
