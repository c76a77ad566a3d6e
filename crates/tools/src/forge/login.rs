//! Login to GitHub by the device flow: the user enters a code on the web site, and a token is returned.

use std::time::Duration;

use engine::words::Secret;
use serde_json::Value;

/// The longest time until the user has entered the code.
const LONGEST: Duration = Duration::from_secs(900);

/// Logs in to a host. `show` gets the address and the code for the user.
///
/// # Errors
/// Says why there is no token.
pub async fn login(
    site: &str,
    client_id: &str,
    show: impl Fn(&str, &str),
) -> Result<Secret, String> {
    drop(rustls::crypto::ring::default_provider().install_default());
    // What is sent is for this host alone.
    let http = reqwest::Client::builder().timeout(Duration::from_secs(30));
    let http = http.redirect(reqwest::redirect::Policy::none()).build();
    let http = http.map_err(|err| err.to_string())?;
    let site = site.trim_end_matches('/');
    let begin = [("client_id", client_id), ("scope", "repo")];
    let begun = ask(&http, &format!("{site}/login/device/code"), &begin).await?;
    let word = |key: &str| begun[key].as_str().unwrap_or_default();
    let device = word("device_code");
    if device.is_empty() {
        return Err(begun["error_description"].as_str().unwrap_or("no code was issued").to_owned());
    }
    show(word("verification_uri"), word("user_code"));
    let mut pause = begun["interval"].as_u64().unwrap_or(5).min(60);
    let poll = async {
        loop {
            tokio::time::sleep(Duration::from_secs(pause)).await;
            let form = [
                ("client_id", client_id),
                ("device_code", device),
                ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
            ];
            let answer = ask(&http, &format!("{site}/login/oauth/access_token"), &form).await?;
            if let Some(token) = answer["access_token"].as_str() {
                return Ok(Secret::new(token));
            }
            match answer["error"].as_str().unwrap_or_default() {
                "authorization_pending" => {}
                "slow_down" => pause = answer["interval"].as_u64().unwrap_or(pause + 5).min(60),
                "" => return Err("the answer has no token".to_owned()),
                error => return Err(error.replace('_', " ")),
            }
        }
    };
    tokio::time::timeout(LONGEST, poll).await.unwrap_or(Err("the code expired".to_owned()))
}

async fn ask(http: &reqwest::Client, url: &str, form: &[(&str, &str)]) -> Result<Value, String> {
    let mut body = reqwest::Url::parse("x:/").map_err(|err| err.to_string())?;
    body.query_pairs_mut().extend_pairs(form);
    let request = http
        .post(url)
        .header("accept", "application/json")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(body.query().unwrap_or_default().to_owned());
    let response = request.send().await.map_err(|err| err.without_url().to_string())?;
    let status = response.status();
    let bytes = response.bytes().await.map_err(|err| err.without_url().to_string())?;
    serde_json::from_slice(&bytes).map_err(|_| format!("the server answered {status}"))
}
