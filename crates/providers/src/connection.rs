//! How the config, the table of providers and the environment combine to a connection: format, URL, headers, time limits.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::words::{ConnectionConfig, Secret};

use crate::endpoint::{AwsLogin, Headers};
use crate::format::Format;
use crate::http::Timing;
use crate::key::ApiKey;
use crate::provider::Options;
use crate::rows::{Row, format_of_package};
use crate::sigv4::AwsKeys;
use crate::url::is_nearby;

/// The keys of an AWS account or role in the environment.
pub(crate) const AWS_KEYS: [&str; 3] =
    ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"];
/// Settings in the environment that are no keys.
pub(crate) const SETTINGS: [&str; 3] = ["AWS_REGION", "AWS_DEFAULT_REGION", "AZURE_RESOURCE_NAME"];
/// The region of Amazon Bedrock if none is set.
const DEFAULT_REGION: &str = "us-east-1";

/// Returns the base URL of the config, or the one that follows from resource or region.
pub(crate) fn base_url(
    connection: &ConnectionConfig,
    format: Format,
    row: Option<&Row>,
    options: &Options,
) -> Option<String> {
    if connection.base_url.is_some() {
        return connection.base_url.clone();
    }
    match format {
        Format::AzureChat => {
            let variable = options.settings.get("AZURE_RESOURCE_NAME").filter(|_| row.is_some());
            let resource = connection.resource_name.as_ref().or(variable)?;
            Some(format!("https://{resource}.openai.azure.com/openai"))
        }
        Format::BedrockConverse => {
            let region = region(connection, options);
            Some(format!("https://bedrock-runtime.{region}.amazonaws.com"))
        }
        _ => None,
    }
}

/// Returns what is wrong if a provider has no base URL.
pub(crate) fn missing_url(format: Format) -> &'static str {
    match format {
        Format::AzureChat => {
            "no resource. Set AZURE_RESOURCE_NAME, `options.resourceName` or `options.baseURL`"
        }
        _ => "`options.baseURL` is missing",
    }
}

/// Returns what requests are signed with, if the format wants that and the environment has keys.
pub(crate) fn aws_login(
    connection: &ConnectionConfig,
    format: Format,
    options: &Options,
) -> Option<AwsLogin> {
    if format != Format::BedrockConverse {
        return None;
    }
    let [id, secret, session] = AWS_KEYS.map(|name| options.environment.get(name));
    let (id, secret, session) = (id?.reveal().to_owned(), secret?.clone(), session.cloned());
    let region = region(connection, options).to_owned();
    Some(AwsLogin { keys: AwsKeys { id, secret, session }, region })
}

fn region<'a>(connection: &'a ConnectionConfig, options: &'a Options) -> &'a str {
    let variable = ["AWS_REGION", "AWS_DEFAULT_REGION"].map(|name| options.settings.get(name));
    let region = connection.region.as_ref().or(variable[0]).or(variable[1]);
    region.map_or(DEFAULT_REGION, String::as_str)
}

/// Returns the time limits. A server nearby may load a model or read a long prompt for minutes before its first byte.
pub(crate) fn timing(connection: &ConnectionConfig, base_url: &str) -> Timing {
    const NEARBY: Duration = Duration::from_secs(600);
    let mut default = Timing::default();
    if is_nearby(base_url) {
        default.first_byte = NEARBY;
        default.idle = NEARBY;
    }
    let time = |millis: Option<u64>, default| millis.map_or(default, Duration::from_millis);
    Timing {
        first_byte: time(connection.header_timeout, default.first_byte),
        idle: time(connection.chunk_timeout, default.idle),
        first_wait: time(connection.retry_delay, default.first_wait),
        retry_budget: time(connection.retry_timeout, default.retry_budget),
    }
}

/// Returns the format of a provider, and the problem if its package is not supported.
pub(crate) fn format(package: Option<&str>, row: Option<&Row>) -> (Format, Option<String>) {
    match (package, row) {
        (Some(package), _) => match format_of_package(package) {
            Some(format) => (format, None),
            None => {
                let problem = format!("`npm` names `{package}`, which is not a supported format");
                (Format::OpenAiChat, Some(problem))
            }
        },
        (None, Some(row)) => (row.format, None),
        (None, None) => (Format::OpenAiChat, None),
    }
}

pub(crate) fn headers(configured: &BTreeMap<String, Secret>, format: Format) -> Headers {
    let version = ("anthropic-version".to_owned(), "2023-06-01".to_owned());
    let fixed = (format == Format::AnthropicMessages).then_some(version);
    let configured = configured.iter();
    let configured =
        configured.map(|(name, value)| (name.clone(), value.reveal().trim().to_owned()));
    Headers(fixed.into_iter().chain(configured).collect())
}

/// Returns the words in the values of headers that may be secret.
pub(crate) fn secrets(headers: &BTreeMap<String, Secret>) -> Vec<ApiKey> {
    let words = headers.values().flat_map(|value| value.reveal().split_whitespace());
    // Shorter words are not secret, such as `Bearer` and `true`.
    words.filter(|word| word.len() >= 8).map(ApiKey::new).collect()
}
