//! `/context`: what the model sees, section by section, with origin and size.

use super::{Front, Room, front, load, size_of_tool};
use crate::ports::Settings;
use crate::turn::cx::TurnCx;
use crate::turn::instructions::Section;
use crate::words::{Message, tokens_of};

/// Describes the next request.
pub(crate) async fn report(cx: &mut TurnCx<'_>, settings: &Settings) -> String {
    let Some(choice) = settings.choice() else {
        return format!("The model `{}` is not available.", settings.model);
    };
    let used = load(cx, settings, choice).await.used;
    let Front { system, opening, tools } = front(cx, settings, choice).await;
    let window = choice.window();
    let how = if cx.conversation.context.measured.is_some() {
        "counted by the provider"
    } else {
        "estimated"
    };
    let mut text = format!(
        "The context window of `{}` has {window} tokens. About {used} are in use ({} %, {how}). Above {}, the conversation is compacted.\n\n",
        choice.id,
        used * 100 / window.max(1),
        Room::of(window).limit,
    );
    text.push_str("| part | origin | bytes | tokens (approx.) |\n|---|---|---|---|\n");
    for Section { name, origin, text: body, note } in std::iter::once(&system).chain(&opening) {
        let note = note.as_ref().map(|note| format!(" ({note})")).unwrap_or_default();
        row(&mut text, name, &format!("{origin}{note}"), body.len(), tokens_of(body));
    }
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    let bytes: usize = tools.iter().map(|tool| size_of_tool(tool)).sum();
    row(&mut text, "tools", &names.join(", "), bytes, bytes as u64 * 3 / 10);
    let messages = cx.conversation.history.messages();
    let first = usize::from(cx.conversation.history.has_summary());
    if first > 0 {
        let bytes = messages[0].size();
        let tokens = cx.conversation.history.tokens() - cx.conversation.history.tokens_from(1);
        row(&mut text, "summary", "of the earlier conversation", bytes, tokens);
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
    row(&mut text, "conversation", &origin, bytes, cx.conversation.history.tokens_from(first));
    text
}

fn row(text: &mut String, name: &str, origin: &str, bytes: usize, tokens: u64) {
    let origin = origin.replace('|', "\\|");
    text.push_str(&format!("| {name} | {origin} | {bytes} | {tokens} |\n"));
}
