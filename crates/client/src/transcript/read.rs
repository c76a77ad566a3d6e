//! Reads one line of a transcript.

use serde_json::Value;

use super::{PermissionPolicy, ReplyValue, TranscriptStep, When};

pub(super) fn step(text: &str) -> Result<TranscriptStep, String> {
    if let Some(raw) = text.strip_prefix(">!") {
        let raw = raw.strip_prefix(' ').unwrap_or(raw);
        return unescape(raw).map(TranscriptStep::SendRaw);
    }
    let text = text.trim();
    if text.is_empty() || text.starts_with('#') {
        return Ok(TranscriptStep::Comment);
    }
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let rest = rest.trim_start();
    match word {
        ">" => read_object(rest).map(TranscriptStep::Send),
        "<" => read_object(rest).map(TranscriptStep::Expect),
        "tag" => read_word(rest).map(TranscriptStep::Tag),
        "use" => read_word(rest).map(TranscriptStep::Use),
        "config" => read_object(rest).map(TranscriptStep::Config),
        "fs" => read_fs(rest),
        "model" if rest.is_empty() => Err("'model' needs an argument".to_owned()),
        "model" => Ok(TranscriptStep::Model(rest.to_owned())),
        "eof" if rest.is_empty() => Ok(TranscriptStep::Eof),
        "exit" if rest == "any" => Ok(TranscriptStep::Exit(None)),
        "exit" => {
            let code = rest.parse().map_err(|_| "'exit' needs a number".to_owned())?;
            Ok(TranscriptStep::Exit(Some(code)))
        }
        word => loose_step(word, rest),
    }
}

/// Reads the lines for agents whose wording is not known, see the tag `loose`.
fn loose_step(word: &str, rest: &str) -> Result<TranscriptStep, String> {
    let number = || rest.parse().map_err(|_| format!("'{word}' needs a number of milliseconds"));
    match word {
        "row" => read_word(rest).map(TranscriptStep::Row),
        "needs" => reply_value(rest).map(TranscriptStep::Needs),
        "let" => {
            let (name, value) =
                rest.split_once(' ').ok_or("'let' needs a name, an id, a pointer")?;
            Ok(TranscriptStep::Let(name.to_owned(), reply_value(value)?))
        }
        "never" => read_object(rest).map(TranscriptStep::Never),
        "seen" => read_object(rest).map(TranscriptStep::Seen),
        "says" => serde_json::from_str(rest)
            .map(TranscriptStep::Says)
            .map_err(|_| "'says' needs a JSON string".to_owned()),
        "quiet" => number().map(TranscriptStep::Quiet),
        "within" => number().map(TranscriptStep::Within),
        "serve" if rest.is_empty() => Ok(TranscriptStep::Serve),
        "policy" => policy(rest).map(TranscriptStep::Policy),
        "refuse" if rest.is_empty() => Ok(TranscriptStep::Refuse),
        "closed" if rest.is_empty() => Ok(TranscriptStep::Closed),
        "answered" | "unanswered" => {
            let id = serde_json::from_str(rest).map_err(|_| "expected an id".to_owned())?;
            Ok(TranscriptStep::Answered(id, word == "answered"))
        }
        "atmost" => {
            let (count, message) = rest.split_once(' ').ok_or("expected a number, a message")?;
            let count = count.parse().map_err(|_| "'atmost' needs a number".to_owned())?;
            Ok(TranscriptStep::AtMost(count, read_object(message)?))
        }
        "wrote" => match read_fs(rest)? {
            TranscriptStep::File { path, text, .. } => Ok(TranscriptStep::Wrote(path, text)),
            _ => Err("expected a file".to_owned()),
        },
        "absent" => read_word(rest).map(TranscriptStep::Absent),
        "restart" if rest.is_empty() => Ok(TranscriptStep::Restart),
        "kill" if rest.is_empty() => Ok(TranscriptStep::Kill),
        "term" if rest.is_empty() => Ok(TranscriptStep::Term),
        "flood" => {
            let (count, message) = rest.split_once(' ').ok_or("'flood' needs a number, a line")?;
            let count = count.parse().map_err(|_| "'flood' needs a number".to_owned())?;
            Ok(TranscriptStep::Flood(count, message.to_owned()))
        }
        _ => Err(format!("unknown keyword '{word}'")),
    }
}

fn read_object(text: &str) -> Result<Value, String> {
    match serde_json::from_str(text) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err("expected a JSON object".to_owned()),
        Err(err) => Err(format!("invalid JSON: {err}")),
    }
}

fn read_word(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains(char::is_whitespace) {
        return Err("expected one word".to_owned());
    }
    Ok(text.to_owned())
}

fn read_fs(rest: &str) -> Result<TranscriptStep, String> {
    let (path, text) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    if !path.starts_with("/w/") || path.split('/').any(|part| part == "..") {
        return Err("the path of a file must start with /w/".to_owned());
    }
    let text = serde_json::from_str(text.trim())
        .map_err(|_| "the content of a file must be a JSON string".to_owned())?;
    // `set_file_times` sets the time when all lines are known.
    Ok(TranscriptStep::File { path: path.to_owned(), text, when: When::Before })
}

/// Reads `ID POINTER`.
fn reply_value(text: &str) -> Result<ReplyValue, String> {
    let (call, pointer) = text.split_once(' ').ok_or("expected an id and a JSON pointer")?;
    let call = serde_json::from_str(call).map_err(|_| "the id must be JSON".to_owned())?;
    Ok(ReplyValue { call, pointer: pointer.trim().to_owned() })
}

fn policy(word: &str) -> Result<PermissionPolicy, String> {
    const KINDS: [&str; 4] = ["allow_once", "allow_always", "reject_once", "reject_always"];
    match word {
        "cancelled" => Ok(PermissionPolicy::Cancelled),
        "fail" => Ok(PermissionPolicy::Fail),
        "hold" => Ok(PermissionPolicy::Hold),
        word => {
            let kind = KINDS.into_iter().find(|kind| *kind == word);
            kind.map(PermissionPolicy::Choose).ok_or_else(|| format!("unknown policy '{word}'"))
        }
    }
}

/// Reads the escapes of a `>!` line.
fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let Some((escape, tail)) = rest.split_first() else {
            return Err("incomplete escape; write \\\\ for a backslash".to_owned());
        };
        rest = tail;
        bytes.push(match escape {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'0' => 0,
            b'\\' => b'\\',
            b'x' => {
                let digits = rest.get(..2).and_then(|digits| str::from_utf8(digits).ok());
                let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
                rest = rest.get(2..).unwrap_or_default();
                byte.ok_or("'\\x' needs two hexadecimal digits")?
            }
            other => return Err(format!("unknown escape '\\{}'", char::from(*other))),
        });
    }
    Ok(bytes)
}
