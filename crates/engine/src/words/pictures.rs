//! Pictures that tools return. A result is text, so the pictures follow in a message after all results of an answer.

use super::message::{Block, Message, Prompt};
use super::tool_call::ToolContent;

/// How many bytes of pictures one call may send to a model. Large pictures are scaled down later.
const MAX_PICTURES: usize = 10 * 1024 * 1024;

/// Returns the pictures in the content of a call, up to the limit.
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

/// Returns the message that shows pictures to the model; `None` without pictures.
#[must_use]
pub fn pictures_message(mut pictures: Vec<Block>) -> Option<Message> {
    if pictures.is_empty() {
        return None;
    }
    pictures.insert(0, Block::Text("Pictures returned by the tools:".to_owned()));
    Some(Message::User(Prompt::from(pictures)))
}
