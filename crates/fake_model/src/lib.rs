//! A model server for tests: it plays a script over HTTP, in the formats that `providers` speaks.
//!
//! Tests start a [`FakeModel`] and read back the requests it received. `cargo run -p fake_model -- SCRIPT` runs
//! the same server by hand; docs/internals/fake-model.md describes the script. The formats are written from the
//! providers' documentation and share no code with `providers`, so one can reveal mistakes in the other.

mod bedrock;
mod format;
mod script;
mod server;
mod whole;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

pub use bedrock::{ACCESS_KEY, SECRET_KEY};
pub use script::{Answer, Document, Script, Step};
pub use server::{ReceivedRequest, Server};

/// A server on a thread of its own. It serves until it is stopped or the process ends.
#[derive(Debug)]
pub struct FakeModel {
    address: SocketAddr,
    server: Arc<Server>,
}

impl FakeModel {
    /// Starts a server on a free port of the loopback interface.
    ///
    /// # Errors
    /// Names the line of the script that cannot be read, or says why the server cannot listen.
    pub fn start(script: &str) -> Result<FakeModel, String> {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(|err| err.to_string())?;
        FakeModel::start_on(listener, script)
    }

    /// Starts a server on a listener that already exists.
    ///
    /// # Errors
    /// Names the line of the script that cannot be read, or says why the server cannot listen.
    pub fn start_on(listener: TcpListener, script: &str) -> Result<FakeModel, String> {
        let server = Server::new(script::parse(script)?);
        let address = listener.local_addr().map_err(|err| err.to_string())?;
        let serving = Arc::clone(&server);
        std::thread::spawn(move || {
            if let Err(err) = serving.serve(listener) {
                eprintln!("fake_model: {err}");
            }
        });
        Ok(FakeModel { address, server })
    }

    /// Returns the URL without a path.
    #[must_use]
    pub fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the base URL for a provider's configuration.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Ends the server: its connections are closed and its thread ends.
    pub fn stop(&self) {
        self.server.stop();
    }

    /// Returns every request for an answer received so far, in order.
    #[must_use]
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.server.requests()
    }

    /// Returns every other request received so far, in order.
    #[must_use]
    pub fn document_requests(&self) -> Vec<ReceivedRequest> {
        self.server.document_requests()
    }

    /// Returns how often the list of models was requested.
    #[must_use]
    pub fn model_list_requests(&self) -> usize {
        self.server.model_list_requests()
    }
}

/// Reads a script. Answers are separated by lines of `---`; a line `loop` restarts the script after its last answer.
///
/// # Errors
/// Names the line that cannot be read.
pub fn parse(script: &str) -> Result<Script, String> {
    script::parse(script)
}
