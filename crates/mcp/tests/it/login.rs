//! OAuth logins to a server, with a small authorization server and a simulated browser.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use engine::words::ToolStatus;
use mcp::oauth::{Login, Vault, storage_key};
use mcp::{Host, Options, Remote, ServerConfig, Transport};
use serde_json::json;

use crate::bench::{Bench, editor, quick};
use crate::remote::{Answer, Request, listen, streamable};

/// A vault in memory.
#[derive(Default)]
struct MemoryVault(Mutex<HashMap<String, String>>);

impl Vault for MemoryVault {
    fn load(&self, key: &str) -> Option<String> {
        self.0.lock().unwrap().get(key).cloned()
    }

    fn save(&self, key: &str, login: Option<&str>) -> Result<(), String> {
        let mut stored = self.0.lock().unwrap();
        match login {
            Some(login) => drop(stored.insert(key.to_owned(), login.to_owned())),
            None => drop(stored.remove(key)),
        }
        Ok(())
    }
}

/// A server that requires a token, and its authorization server. The first token expires at once and can be refreshed.
fn protected(request: &Request) -> Answer {
    let home = format!("http://{}", request.header("host").unwrap());
    let kind = || vec![("content-type", "application/json".to_owned())];
    let body = match request.path.split('?').next().unwrap() {
        "/.well-known/oauth-protected-resource" | "/.well-known/oauth-protected-resource/mcp" => {
            json!({ "resource": format!("{home}/mcp"), "authorization_servers": [home] })
        }
        "/.well-known/oauth-authorization-server" => json!({
            "issuer": home,
            "authorization_endpoint": format!("{home}/authorize"),
            "token_endpoint": format!("{home}/token"),
            "registration_endpoint": format!("{home}/register"),
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
        }),
        "/register" => {
            let client: serde_json::Value = serde_json::from_str(&request.body).unwrap();
            json!({ "client_id": "purlin-1", "redirect_uris": client["redirect_uris"] })
        }
        "/token" => {
            let is_first = request.body.contains("grant_type=authorization_code");
            assert_eq!(is_first, request.body.contains("code=yes"), "{}", request.body);
            let (token, lasts) = if is_first { ("token-1", 1) } else { ("token-2", 3600) };
            json!({ "access_token": token, "token_type": "Bearer", "expires_in": lasts, "refresh_token": "again" })
        }
        "/mcp" if request.header("authorization") == Some("Bearer token-2") => {
            return streamable(request);
        }
        "/mcp" => {
            let challenge =
                format!("Bearer resource_metadata=\"{home}/.well-known/oauth-protected-resource\"");
            return Answer::Whole(401, vec![("www-authenticate", challenge)], String::new());
        }
        _ => return Answer::Whole(404, Vec::new(), String::new()),
    };
    Answer::Whole(200, kind(), body.to_string())
}

// R: M1, I4
#[tokio::test]
async fn server_that_requires_a_login_works_after_it() {
    let (home, _tasks) = listen(Arc::new(|request| protected(&request))).await;
    let url = format!("{home}/mcp");
    let vault = Arc::new(MemoryVault::default());
    let login = Login::new(Arc::clone(&vault) as Arc<dyn Vault>);
    let host = Host::new(Options {
        timing: quick(),
        environment: Vec::new(),
        directory: tempfile::env::temp_dir(),
        login: login.clone(),
        guard: process::Guard::default(),
        starter: mcp::Starter::default(),
        confinement: None,
    });
    let remote = Remote { url: url.clone(), headers: Vec::new() };
    let config = ServerConfig::remote("remote", Transport::Http(remote)).unwrap();
    let open = || Bench::on(&host, "model tool remote_echo {}", vec![config.clone()], editor());

    let bench = open().await;
    let notice = bench.notice("`remote` is not available").await;
    assert!(notice.contains("run `purlin mcp login remote`"), "{notice}");

    let attempt = login.begin("remote", &url, "http://127.0.0.1:1/callback").await.unwrap();
    let page = attempt.page().to_owned();
    assert!(page.starts_with(&format!("{home}/authorize?")), "{page}");
    assert!(page.contains("code_challenge="), "{page}");
    let state = page.split(['?', '&']).find_map(|part| part.strip_prefix("state=")).unwrap();
    let callback = format!("http://127.0.0.1:1/callback?code=yes&state={state}&iss={home}");
    attempt.finish(&callback).await.unwrap();
    let stored = || vault.load(&storage_key("remote", &url)).unwrap();
    assert!(stored().contains("token-1"));

    // Another server with the same name does not get the token.
    let (other, _tasks) = listen(Arc::new(|request| protected(&request))).await;
    let remote = Remote { url: format!("{other}/mcp"), headers: Vec::new() };
    let other = ServerConfig::remote("remote", Transport::Http(remote)).unwrap();
    let bench = Bench::on(&host, "model tool remote_echo {}", vec![other], editor()).await;
    bench.notice("`remote` is not available").await;

    let bench = open().await.ready().await;
    assert_eq!(
        bench.prompt("go").await.calls,
        [(ToolStatus::Completed, "from the remote server".to_owned())]
    );
    // The token was refreshed, and the new one is stored.
    assert!(stored().contains("token-2"));
}

// R: I4
#[tokio::test]
async fn forged_callback_is_rejected() {
    let (home, _tasks) = listen(Arc::new(|request| protected(&request))).await;
    let vault = Arc::new(MemoryVault::default());
    let login = Login::new(Arc::clone(&vault) as Arc<dyn Vault>);
    let attempt =
        login.begin("remote", &format!("{home}/mcp"), "http://127.0.0.1:1/callback").await.unwrap();
    assert!(attempt.finish("http://127.0.0.1:1/callback?code=yes&state=forged").await.is_err());
    assert_eq!(vault.load(&storage_key("remote", &format!("{home}/mcp"))), None);
}

/// A server may name any address as its login page. Only a web page is offered to the user.
// R: I4
#[tokio::test]
async fn login_page_must_be_a_web_page() {
    for page in ["file:///etc/passwd", "vscode://evil/run", "javascript:alert(1)", "ms-msdt:/id"] {
        let hostile = move |request: Request| match request.path.as_str() {
            "/.well-known/oauth-authorization-server" => {
                let home = format!("http://{}", request.header("host").unwrap());
                let body = json!({
                    "issuer": home,
                    "authorization_endpoint": page,
                    "token_endpoint": format!("{home}/token"),
                    "registration_endpoint": format!("{home}/register"),
                    "response_types_supported": ["code"],
                    "code_challenge_methods_supported": ["S256"],
                });
                let kind = vec![("content-type", "application/json".to_owned())];
                Answer::Whole(200, kind, body.to_string())
            }
            _ => protected(&request),
        };
        let (home, _tasks) = listen(Arc::new(hostile)).await;
        let login = Login::new(Arc::new(MemoryVault::default()));
        let url = format!("{home}/mcp");
        let begun = login.begin("remote", &url, "http://127.0.0.1:1/callback").await;
        let Err(err) = begun else { panic!("{page} was offered") };
        assert!(err.to_string().contains("login failed"), "{page}: {err}");
    }
}
