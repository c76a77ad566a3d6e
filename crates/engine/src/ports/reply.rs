//! A reply that is always sent: dropping it without an answer sends an error.

use super::error::Error;

/// The obligation to answer one call.
pub struct Reply<T>(Option<SendAnswer<T>>);

/// What sends the answer.
type SendAnswer<T> = Box<dyn FnOnce(Result<T, Error>) + Send>;

impl<T> Reply<T> {
    /// Makes a reply. `send` must not block.
    pub fn new(send: impl FnOnce(Result<T, Error>) + Send + 'static) -> Reply<T> {
        Reply(Some(Box::new(send)))
    }

    /// Drops the reply without an answer: the caller answers in another way.
    pub fn discard(mut self) {
        self.0 = None;
    }

    /// Sends the answer.
    pub fn send(mut self, answer: Result<T, Error>) {
        if let Some(send) = self.0.take() {
            send(answer);
        }
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        if let Some(send) = self.0.take() {
            send(Err(Error::Broken));
        }
    }
}

impl<T> std::fmt::Debug for Reply<T> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Reply")
    }
}
