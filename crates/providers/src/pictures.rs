//! Pictures on their way to a model: made such as providers take them, or replaced by words, of which the user is told.
//!
//! Only the request changes; the conversation keeps what was sent. One picture is `scale`'s business.

mod scale;

use std::sync::{Arc, Mutex, PoisonError, Weak};

use engine::ports::Request;
use engine::words::{Block, Media, Message, Prompt};
use tokio::sync::Semaphore;
use tokio::task;

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

/// Tells whether there are pictures in a request.
pub(crate) fn are_in(request: &Request) -> bool {
    request.messages.iter().any(|message| has_picture(message))
}

fn has_picture(message: &Message) -> bool {
    match message {
        Message::User(prompt) => prompt.blocks.iter().any(is_picture),
        Message::Agent { .. } | Message::ToolResult { .. } => false,
    }
}

/// The messages that were looked at, and what is sent instead of each: a conversation is sent again and again, and its
/// pictures are decoded once. Never held across an await.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fitted(Arc<Mutex<Vec<Known>>>);

/// A message with pictures, and what is sent instead of it.
type Known = (Weak<Message>, Arc<Message>);

impl Fitted {
    /// Makes the pictures of a request such as providers take them. Returns what is wrong with those that were not seen
    /// before, for the user.
    pub(crate) async fn fit(&self, request: &mut Request) -> Vec<String> {
        let mut problems = Vec::new();
        for message in &mut request.messages {
            if !has_picture(message) {
                continue;
            }
            let sent = match self.find(message) {
                Some(sent) => sent,
                None => {
                    let sent = fit_message(message, &mut problems).await;
                    self.keep(message, &sent);
                    sent
                }
            };
            *message = sent;
        }
        problems
    }

    fn find(&self, message: &Arc<Message>) -> Option<Arc<Message>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let same = known.iter().find(|(seen, _)| seen.as_ptr() == Arc::as_ptr(message));
        same.map(|(_, sent)| Arc::clone(sent))
    }

    /// Keeps what is sent for a message, for as long as the conversation has it.
    fn keep(&self, message: &Arc<Message>, sent: &Arc<Message>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(seen, _)| seen.strong_count() > 0);
        known.push((Arc::downgrade(message), Arc::clone(sent)));
    }
}

async fn fit_message(message: &Arc<Message>, problems: &mut Vec<String>) -> Arc<Message> {
    let Message::User(prompt) = &**message else { return Arc::clone(message) };
    let mut blocks = prompt.blocks.clone();
    for block in &mut blocks {
        let Block::Image(picture) = block else { continue };
        match fit_picture(picture.clone()).await {
            Ok(Some(smaller)) => *picture = smaller,
            Ok(None) => {}
            Err(why) => {
                problems.push(format!("a picture was not sent to the model: {why}"));
                *block = Block::Text(format!(
                    "(There was a picture here, and you do not see it: {why}. Say so if it matters.)"
                ));
            }
        }
    }
    match blocks == prompt.blocks {
        true => Arc::clone(message),
        false => Arc::new(Message::User(Prompt::from(blocks))),
    }
}

/// One picture is decoded at a time, so that the memory for it is bounded whatever many sessions send.
static DECODING: Semaphore = Semaphore::const_new(1);

async fn fit_picture(picture: Media) -> Result<Option<Media>, String> {
    let turn = DECODING.acquire().await;
    let work = task::spawn_blocking(move || {
        let fitted = scale::fit(&picture);
        // Held until the work ends, also when nobody waits for it any more.
        drop(turn);
        fitted
    });
    work.await.unwrap_or_else(|_| Err("it cannot be read".to_owned()))
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
