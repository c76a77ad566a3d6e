//! AWS Signature Version 4: signs a request to Amazon Bedrock. Pure: the caller passes the time.
//!
//! The tests are the vectors that AWS publishes with its signature test suite.

use std::time::SystemTime;

use sha2::{Digest, Sha256};

use crate::key::ApiKey;

/// The keys of an AWS account or role.
#[derive(Debug, Clone)]
pub(crate) struct AwsKeys {
    /// The access key id, which is no secret.
    pub(crate) id: String,
    pub(crate) secret: ApiKey,
    /// The token of a temporary login.
    pub(crate) session: Option<ApiKey>,
}

/// What a signature covers.
pub(crate) struct Unsigned<'a> {
    pub(crate) method: &'a str,
    /// Host, with the port if it is not the default, as in the `host` header.
    pub(crate) host: &'a str,
    /// The path as it is sent, percent-encoded.
    pub(crate) path: &'a str,
    /// The query as it is sent, sorted and percent-encoded.
    pub(crate) query: &'a str,
    pub(crate) content_type: Option<&'a str>,
    pub(crate) body: &'a [u8],
}

/// Where and when a signature is valid.
pub(crate) struct SigningScope<'a> {
    pub(crate) region: &'a str,
    pub(crate) service: &'a str,
    pub(crate) time: SystemTime,
}

/// Returns the headers that sign a request.
pub(crate) fn sign(
    request: &Unsigned<'_>,
    keys: &AwsKeys,
    scope: &SigningScope<'_>,
) -> Vec<(String, String)> {
    let time = timestamp(scope.time);
    let date = &time[..8];
    let mut headers: Vec<(&str, &str)> = Vec::new();
    headers.extend(request.content_type.map(|value| ("content-type", value)));
    headers.push(("host", request.host));
    headers.push(("x-amz-date", time.as_str()));
    headers.extend(keys.session.as_ref().map(|token| ("x-amz-security-token", token.reveal())));
    let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let mut canonical =
        format!("{}\n{}\n{}\n", request.method, encode_path(request.path), request.query);
    for (name, value) in &headers {
        canonical.push_str(&format!("{name}:{}\n", value.trim()));
    }
    canonical.push_str(&format!("\n{names}\n{}", hex(&Sha256::digest(request.body))));

    let place = format!("{date}/{}/{}/aws4_request", scope.region, scope.service);
    let hash = hex(&Sha256::digest(canonical.as_bytes()));
    let to_sign = format!("AWS4-HMAC-SHA256\n{time}\n{place}\n{hash}");
    let secret = format!("AWS4{}", keys.secret.reveal());
    let steps = [date, scope.region, scope.service, "aws4_request", to_sign.as_str()];
    let signature = steps
        .iter()
        .fold(secret.into_bytes(), |key, step| hmac_sha256(&key, step.as_bytes()).to_vec());
    let authorization = format!(
        "AWS4-HMAC-SHA256 Credential={}/{place}, SignedHeaders={names}, Signature={}",
        keys.id,
        hex(&signature)
    );
    let mut signed =
        vec![("authorization".to_owned(), authorization), ("x-amz-date".to_owned(), time.clone())];
    let token = keys.session.as_ref();
    signed
        .extend(token.map(|token| ("x-amz-security-token".to_owned(), token.reveal().to_owned())));
    signed
}

/// Percent-encodes everything but unreserved characters.
pub(crate) fn percent_encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(char::from(byte));
            }
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// Encodes the segments of a path once more, as every service but S3 demands.
fn encode_path(path: &str) -> String {
    path.split('/').map(percent_encode).collect::<Vec<_>>().join("/")
}

fn hmac_sha256(key: &[u8], message: &[u8]) -> [u8; 32] {
    const BLOCK: usize = 64;
    let mut padded = [0_u8; BLOCK];
    if key.len() > BLOCK {
        padded[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        padded[..key.len()].copy_from_slice(key);
    }
    let inner = Sha256::new().chain_update(padded.map(|byte| byte ^ 0x36)).chain_update(message);
    let outer = Sha256::new().chain_update(padded.map(|byte| byte ^ 0x5c));
    outer.chain_update(inner.finalize()).finalize().into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a time as `20150830T123600Z`.
fn timestamp(time: SystemTime) -> String {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs());
    // Days since March 1, year 0: the leap day is then the last day of a year.
    let days = seconds / 86_400 + 719_468;
    let era = days / 146_097;
    let day = days % 146_097;
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let (year, clock) = (era * 400 + year + next, seconds % 86_400);
    let (hours, minutes, seconds) = (clock / 3_600, clock / 60 % 60, clock % 60);
    format!("{year:04}{month:02}{date:02}T{hours:02}{minutes:02}{seconds:02}Z")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const TOKEN: &str = "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA==";

    fn request<'a>(method: &'a str, query: &'a str) -> Unsigned<'a> {
        Unsigned {
            method,
            host: "example.amazonaws.com",
            path: "/",
            query,
            content_type: None,
            body: b"",
        }
    }

    fn signature(request: &Unsigned<'_>, session: Option<&str>) -> String {
        let keys = AwsKeys {
            id: "AKIDEXAMPLE".to_owned(),
            secret: ApiKey::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
            session: session.map(ApiKey::new),
        };
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_440_938_160);
        let scope = SigningScope { region: "us-east-1", service: "service", time };
        let signed = sign(request, &keys, &scope);
        let (_, authorization) = &signed[0];
        let begin = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders=";
        assert!(authorization.starts_with(begin), "{authorization}");
        assert_eq!(signed[1], ("x-amz-date".to_owned(), "20150830T123600Z".to_owned()));
        authorization.rsplit_once('=').unwrap().1.to_owned()
    }

    #[test]
    fn published_test_vectors_are_signed_alike() {
        let cases = [
            // get-vanilla
            (
                request("GET", ""),
                None,
                "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            ),
            // get-vanilla-query-order-key-case
            (
                request("GET", "Param1=value1&Param2=value2"),
                None,
                "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
            ),
            // post-vanilla
            (
                request("POST", ""),
                None,
                "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
            ),
            // post-x-www-form-urlencoded
            (
                Unsigned {
                    content_type: Some("application/x-www-form-urlencoded"),
                    body: b"Param1=value1",
                    ..request("POST", "")
                },
                None,
                "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
            ),
            // post-sts-header-before
            (
                request("POST", ""),
                Some(TOKEN),
                "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead",
            ),
        ];
        for (request, session, expected) in cases {
            assert_eq!(signature(&request, session), expected, "{}", request.method);
        }
    }

    /// Vectors of RFC 4231.
    #[test]
    fn hmac_is_computed_as_published() {
        let short = hmac_sha256(b"Jefe", b"what do ya want for nothing?");
        assert_eq!(hex(&short), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        let long =
            hmac_sha256(&[0xaa; 131], b"Test Using Larger Than Block-Size Key - Hash Key First");
        assert_eq!(hex(&long), "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    }

    #[test]
    fn model_names_are_encoded_once_to_send_and_twice_to_sign() {
        let sent = format!("/model/{}/converse-stream", percent_encode("a.b-v1:0"));
        assert_eq!(sent, "/model/a.b-v1%3A0/converse-stream");
        assert_eq!(encode_path(&sent), "/model/a.b-v1%253A0/converse-stream");
    }

    #[test]
    fn times_are_written_in_the_basic_format() {
        let at = |seconds| timestamp(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "19700101T000000Z");
        assert_eq!(at(951_782_399), "20000228T235959Z");
        assert_eq!(at(951_782_400), "20000229T000000Z");
        assert_eq!(at(1_767_225_599), "20251231T235959Z");
    }
}
