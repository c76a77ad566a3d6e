//! Pictures for a model that takes none: they are replaced by words, and the user is told.

use std::sync::Arc;

use engine::ports::Request;
use engine::words::{Block, Message, Prompt};

/// What the model reads where a picture was.
const INSTEAD: &str =
    "(There was a picture here. This model takes no pictures, so you do not see it.)";

/// Takes the pictures out of a request. Returns whether the last thing that the user said had one.
pub(crate) fn take_out(request: &mut Request) -> bool {
    let mut is_new = false;
    for message in &mut request.messages {
        let Message::User(prompt) = &**message else { continue };
        is_new = prompt.blocks.iter().any(is_picture);
        if is_new {
            let blocks = prompt.blocks.iter().map(|block| match block {
                block if is_picture(block) => Block::Text(INSTEAD.to_owned()),
                block => block.clone(),
            });
            *message = Arc::new(Message::User(Prompt::from(blocks.collect::<Vec<Block>>())));
        }
    }
    // What was said before was told of before.
    is_new && matches!(request.messages.last().map(|last| &**last), Some(Message::User(_)))
}

fn is_picture(block: &Block) -> bool {
    matches!(block, Block::Image(_))
}

#[cfg(test)]
mod tests {
    use engine::words::{Media, ModelId, Thinking};

    use super::*;

    fn request(messages: Vec<Message>) -> Request {
        Request {
            model: ModelId::new("m"),
            instructions: "".into(),
            messages: messages.into_iter().map(Arc::new).collect(),
            tools: Vec::new(),
            thinking: Thinking::default(),
        }
    }

    #[test]
    fn pictures_are_replaced_and_only_a_new_one_is_told_of() {
        let media = Media { data: "AAAA".to_owned(), mime: "image/png".to_owned() };
        let shown =
            Message::User(Prompt::from(vec![Block::Text("Look.".into()), Block::Image(media)]));
        let said = Message::Agent { thoughts: Vec::new(), text: "Hm.".into(), calls: Vec::new() };
        let plain = Message::User(Prompt::from(vec![Block::Text("And?".into())]));
        let mut fresh = request(vec![shown.clone()]);
        assert!(take_out(&mut fresh));
        let Message::User(prompt) = &*fresh.messages[0] else { panic!("the user said it") };
        assert_eq!(prompt.text(), format!("Look.\n{INSTEAD}"));
        assert!(!take_out(&mut request(vec![shown.clone(), said])));
        assert!(!take_out(&mut request(vec![shown, plain])));
    }
}
