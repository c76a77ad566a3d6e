//! A reply that is always given: if whoever holds it fails, dropping it answers for them.

use crate::ports::error::Error;

/// The obligation to answer one call.
pub struct Reply<T>(Option<Give<T>>);

/// What is done with the answer.
type Give<T> = Box<dyn FnOnce(Result<T, Error>) + Send>;

impl<T> Reply<T> {
    /// Makes a reply from what is to be done with the answer. `send` must not block.
    pub fn new(send: impl FnOnce(Result<T, Error>) + Send + 'static) -> Reply<T> {
        Reply(Some(Box::new(send)))
    }

    /// Gives the answer.
    pub fn send(mut self, answer: Result<T, Error>) {
        if let Some(send) = self.0.take() {
            send(answer);
        }
    }

    /// Gives up the obligation: the call is answered otherwise.
    pub fn forget(mut self) {
        self.0 = None;
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
