//! Prepares the images of a request: resizes them to what providers accept, or replaces them by a note.
//!
//! Only the request changes, not the conversation. `scale` handles a single image.

mod scale;

use std::sync::{Arc, Mutex, PoisonError, Weak};

use engine::ports::Request;
use engine::words::{Block, Contents, Media, Message, Prompt, visible};
use tokio::sync::Semaphore;
use tokio::task;

/// The type of the documents that formats have their own part for.
pub(crate) const PDF: &str = "application/pdf";

/// What the model reads in place of an image.
const IMAGE_NOTE: &str =
    "(The user sent an image here. This model does not accept images, so you cannot see it.)";

/// Replaces the images of a request by a note. Returns whether the last message is a prompt with an image.
pub(crate) fn replace_all(request: &mut Request) -> bool {
    let mut is_new = false;
    for message in &mut request.messages {
        let Message::User(prompt) = &**message else { continue };
        is_new = prompt.blocks.iter().any(is_image);
        if is_new {
            let blocks = prompt.blocks.iter().map(|block| match block {
                block if is_image(block) => Block::Text(IMAGE_NOTE.to_owned()),
                block => block.clone(),
            });
            *message = Arc::new(Message::User(Prompt::from(blocks.collect::<Vec<Block>>())));
        }
    }
    // The user was already notified about earlier messages.
    is_new && matches!(request.messages.last().map(|last| &**last), Some(Message::User(_)))
}

/// Returns whether a request has images.
pub(crate) fn has_any(request: &Request) -> bool {
    request.messages.iter().any(|message| has_image(message))
}

fn has_image(message: &Message) -> bool {
    match message {
        Message::User(prompt) => prompt.blocks.iter().any(is_image),
        Message::Agent { .. } | Message::ToolResult { .. } => false,
    }
}

/// A cache of prepared messages: a conversation is sent many times, but its images are decoded once. The lock is never
/// held across an await.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fitted(Arc<Mutex<Vec<PreparedMessage>>>);

/// A message with images, and the prepared message.
type PreparedMessage = (Weak<Message>, Arc<Message>);

impl Fitted {
    /// Resizes the images of a request to what providers accept. Returns problems with new images, for the user.
    pub(crate) async fn fit(&self, request: &mut Request) -> Vec<String> {
        let mut problems = Vec::new();
        for message in &mut request.messages {
            if !has_image(message) {
                continue;
            }
            let sent = match self.find(message) {
                Some(sent) => sent,
                None => {
                    let sent = fit_message(message, &mut problems).await;
                    self.store(message, &sent);
                    sent
                }
            };
            *message = sent;
        }
        problems
    }

    fn find(&self, message: &Arc<Message>) -> Option<Arc<Message>> {
        let cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let same = cache.iter().find(|(original, _)| original.as_ptr() == Arc::as_ptr(message));
        same.map(|(_, sent)| Arc::clone(sent))
    }

    /// Caches the prepared message as long as the conversation has the original.
    fn store(&self, message: &Arc<Message>, sent: &Arc<Message>) {
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cache.retain(|(original, _)| original.strong_count() > 0);
        cache.push((Arc::downgrade(message), Arc::clone(sent)));
    }
}

async fn fit_message(message: &Arc<Message>, problems: &mut Vec<String>) -> Arc<Message> {
    let Message::User(prompt) = &**message else { return Arc::clone(message) };
    let mut blocks = prompt.blocks.clone();
    for block in &mut blocks {
        let Some(image) = image_in(block) else { continue };
        match fit_image(image.clone()).await {
            Ok(smaller) => *block = Block::Image(smaller.unwrap_or(image)),
            Err(why) => {
                problems.push(format!("An image was not sent to the model: {why}"));
                *block = Block::Text(format!(
                    "(The user sent an image here that you cannot see: {why}. Say so if it matters.)"
                ));
            }
        }
    }
    match blocks == prompt.blocks {
        true => Arc::clone(message),
        false => Arc::new(Message::User(Prompt::from(blocks))),
    }
}

/// One image is decoded at a time, so that memory use is bounded however many sessions send images.
static DECODING: Semaphore = Semaphore::const_new(1);

async fn fit_image(image: Media) -> Result<Option<Media>, String> {
    let turn = DECODING.acquire().await;
    let work = task::spawn_blocking(move || {
        let fitted = scale::fit(&image);
        // Held until the work ends, even if no caller waits for it any more.
        drop(turn);
        fitted
    });
    work.await.unwrap_or_else(|_| Err("it cannot be decoded".to_owned()))
}

fn is_image(block: &Block) -> bool {
    match block {
        Block::Image(_) => true,
        Block::Resource { mime: Some(mime), contents: Contents::Blob(_), .. } => {
            mime.starts_with("image/")
        }
        _ => false,
    }
}

/// Returns the image of a block: a picture, or a resource that contains one.
fn image_in(block: &Block) -> Option<Media> {
    match block {
        Block::Image(media) => Some(media.clone()),
        Block::Resource { mime: Some(mime), contents: Contents::Blob(data), .. } => {
            is_image(block).then(|| Media { data: data.clone(), mime: mime.clone() })
        }
        _ => None,
    }
}

/// Says which files of the last prompt no model gets: it reads their names and sizes.
pub(crate) fn unsent_files(request: &Request) -> Option<String> {
    let Message::User(prompt) = &**request.messages.last()? else { return None };
    let unsent = prompt.blocks.iter().filter_map(|block| match block {
        Block::Resource { uri, mime, contents: Contents::Blob(_) } if !is_image(block) => {
            let mime = mime.as_deref().unwrap_or("unknown data");
            (mime != PDF).then(|| format!("{} ({})", visible(uri), visible(mime)))
        }
        _ => None,
    });
    let names = unsent.collect::<Vec<String>>().join(", ");
    (!names.is_empty())
        .then(|| format!("Not sent to the model, which gets only the name and the size: {names}"))
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
            traceparent: None,
        }
    }

    #[test]
    fn images_are_replaced_and_only_a_new_one_is_reported() {
        let media = Media { data: "AAAA".to_owned(), mime: "image/png".to_owned() };
        let shown =
            Message::User(Prompt::from(vec![Block::Text("Look.".into()), Block::Image(media)]));
        let answer = Message::Agent { thoughts: Vec::new(), text: "Hm.".into(), calls: Vec::new() };
        let plain = Message::User(Prompt::from(vec![Block::Text("And?".into())]));
        let mut fresh = request(vec![shown.clone()]);
        assert!(replace_all(&mut fresh));
        let Message::User(prompt) = &*fresh.messages[0] else { panic!("the user answer it") };
        assert_eq!(prompt.text(), format!("Look.\n{IMAGE_NOTE}"));
        assert!(!replace_all(&mut request(vec![shown.clone(), answer])));
        assert!(!replace_all(&mut request(vec![shown, plain])));
    }
}
