//! Pictures that tools return. A result is text, so the model is shown them behind all results of an answer.

use super::message::{Block, Message, Prompt};
use super::tool_call::ToolContent;

/// How many bytes of pictures one call may show to a model; what is large is made smaller on its way.
const MAX_PICTURES: usize = 10 * 1024 * 1024;

/// Returns the pictures among what a call shows, as far as a model takes them.
#[must_use]
pub fn pictures_in(content: &[ToolContent]) -> Vec<Block> {
    let mut room = MAX_PICTURES;
    let pictures = content.iter().filter_map(|content| match content {
        ToolContent::Block(block @ Block::Image(_)) => Some(block),
        ToolContent::Block(_)
        | ToolContent::Diff { .. }
        | ToolContent::Terminal(_)
        | ToolContent::Live { .. } => None,
    });
    let fits = |block: &&Block| {
        let is_small = block.size() <= room;
        room -= if is_small { block.size() } else { 0 };
        is_small
    };
    pictures.filter(fits).cloned().collect()
}

/// Returns the message that shows them to the model; none without pictures.
#[must_use]
pub fn pictures_message(mut pictures: Vec<Block>) -> Option<Message> {
    if pictures.is_empty() {
        return None;
    }
    pictures.insert(0, Block::Text("The pictures that the tools returned:".to_owned()));
    Some(Message::User(Prompt::from(pictures)))
}
