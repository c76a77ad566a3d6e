//! `/context`: what the model sees, part by part, with its origin and its size.

use crate::turn::TurnCx;
use crate::turn::instructions::Section;
use crate::turn::session::Settings;
use crate::words::Message;

use super::{Room, front, load, size_of_tool, tokens_of};

/// Writes down what the next request holds.
pub(crate) async fn report(cx: &mut TurnCx<'_>, settings: &Settings) -> String {
    let Some(choice) = settings.choice() else {
        return format!("There is no model `{}` to have a context.", settings.model);
    };
    let used = load(cx, settings, choice).await.used;
    let (sections, tools) = front(cx, settings, choice).await;
    let window = choice.context_size;
    let how = if cx.mind.measured.is_some() { "as the provider counts" } else { "by our estimate" };
    let mut text = format!(
        "The window of `{}` holds {window} tokens. About {used} are in use ({} %), {how}; the conversation is summed up beyond {}.\n\n",
        choice.id,
        used * 100 / window.max(1),
        Room::of(window).limit,
    );
    text.push_str("| part | origin | bytes | tokens, about |\n|---|---|---|---|\n");
    for Section { name, origin, text: told, note } in &sections {
        let note = note.as_ref().map(|note| format!(" ({note})")).unwrap_or_default();
        row(&mut text, name, &format!("{origin}{note}"), told.len(), tokens_of(told));
    }
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    let bytes: usize = tools.iter().map(|tool| size_of_tool(tool)).sum();
    row(&mut text, "tools", &names.join(", "), bytes, bytes as u64 * 3 / 10);
    let messages = cx.history.messages();
    let first = usize::from(cx.history.has_summary());
    if first > 0 {
        let bytes = messages[0].size();
        let tokens = cx.history.tokens() - cx.history.tokens_from(1);
        row(&mut text, "summary", "of what was said before", bytes, tokens);
    }
    let (mut said, mut answers, mut results, mut bytes) = (0, 0, 0, 0);
    for message in &messages[first..] {
        bytes += message.size();
        match &**message {
            Message::User(_) => said += 1,
            Message::Agent { .. } => answers += 1,
            Message::ToolResult { .. } => results += 1,
        }
    }
    let origin = format!("{said} of the user, {answers} answers, {results} results");
    row(&mut text, "conversation", &origin, bytes, cx.history.tokens_from(first));
    text
}

fn row(text: &mut String, name: &str, origin: &str, bytes: usize, tokens: u64) {
    let origin = origin.replace('|', "\\|");
    text.push_str(&format!("| {name} | {origin} | {bytes} | {tokens} |\n"));
}
