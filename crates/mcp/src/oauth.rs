//! Logins to remote servers with OAuth. Stored outside, used and renewed here.

use std::sync::Arc;

use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationRequest, AuthorizationSession, CredentialStore,
    StoredCredentials,
};

use crate::clean::clean_line;
use crate::error::Error;
use crate::http::{chain, choose_cryptography, client_for, is_plain_loopback};

/// Where logins are stored: a string with secrets for each, under the name that [`entry`] returns.
pub trait Vault: Send + Sync {
    /// Returns a stored login.
    fn load(&self, entry: &str) -> Option<String>;

    /// Stores a login, or removes it.
    ///
    /// # Errors
    /// Says why it cannot be stored.
    fn save(&self, entry: &str, text: Option<&str>) -> Result<(), String>;
}

/// Returns the name that the login to a server is stored under: its name and its address. Another server with the same
/// name, of a project or an editor, must not get the token.
#[must_use]
pub fn entry(server: &str, url: &str) -> String {
    let Ok(mut place) = reqwest::Url::parse(url) else {
        return server.to_owned();
    };
    // An address without a host has no name and password to take out.
    place.set_username("").ok();
    place.set_password(None).ok();
    place.set_query(None);
    place.set_fragment(None);
    format!("{server} {place}")
}

/// The stored logins.
#[derive(Clone)]
pub struct Login {
    vault: Arc<dyn Vault>,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Login(****)")
    }
}

impl Login {
    /// Uses the logins of a vault.
    #[must_use]
    pub fn new(vault: Arc<dyn Vault>) -> Login {
        Login { vault }
    }

    /// Returns what authorizes requests to a server, if there is a login for it.
    pub(crate) async fn signer(&self, server: &str, url: &str) -> Result<Option<Signer>, Error> {
        if self.vault.load(&entry(server, url)).is_none() {
            return Ok(None);
        }
        let mut manager = self.new_manager(server, url).await?;
        match manager.initialize_from_store().await {
            Ok(true) => Ok(Some(Signer { manager, server: server.to_owned() })),
            Ok(false) => Err(Error::AuthNeeded(server.to_owned())),
            Err(err) => Err(auth_error(server, &err)),
        }
    }

    /// Returns a token for a server, if there is a login for it.
    pub(crate) async fn token(&self, server: &str, url: &str) -> Result<Option<String>, Error> {
        match self.signer(server, url).await? {
            Some(signer) => signer.token().await.map(Some),
            None => Ok(None),
        }
    }

    async fn new_manager(&self, server: &str, url: &str) -> Result<AuthorizationManager, Error> {
        let failed = |err: AuthError| auth_error(server, &err);
        choose_cryptography();
        let mut manager = AuthorizationManager::new(url).await.map_err(failed)?;
        // The manager's own client refuses local addresses; a server on this machine may use them.
        if is_plain_loopback(url) {
            manager.with_client(client_for(url)?).map_err(failed)?;
        }
        let store = Store { vault: Arc::clone(&self.vault), entry: entry(server, url) };
        manager.set_credential_store(store);
        Ok(manager)
    }

    /// Starts a login. The user opens [`Attempt::page`], and is sent to `redirect` afterwards.
    ///
    /// # Errors
    /// Says why the login cannot start.
    pub async fn begin(&self, server: &str, url: &str, redirect: &str) -> Result<Attempt, Error> {
        let mut manager = self.new_manager(server, url).await?;
        let found = manager.resolve_metadata().await.map_err(|err| auth_error(server, &err))?;
        manager.set_metadata(found.metadata);
        let request = AuthorizationRequest::new(redirect)
            .with_client_name("Purlin")
            .with_application_type("native");
        match AuthorizationSession::new(manager, request).await {
            Ok(session) => Ok(Attempt { session, server: server.to_owned() }),
            Err((_, err)) => Err(auth_error(server, &err)),
        }
    }
}

/// Authorizes requests to a server.
pub(crate) struct Signer {
    manager: AuthorizationManager,
    server: String,
}

impl Signer {
    /// Returns the current token. An expired one is renewed.
    pub(crate) async fn token(&self) -> Result<String, Error> {
        self.manager.get_access_token().await.map_err(|err| auth_error(&self.server, &err))
    }
}

/// A login that the user has to finish in a browser.
pub struct Attempt {
    session: AuthorizationSession,
    server: String,
}

impl Attempt {
    /// Returns the page to open.
    #[must_use]
    pub fn page(&self) -> &str {
        self.session.get_authorization_url()
    }

    /// Finishes the login with the address that the browser was redirected to, and stores it.
    ///
    /// # Errors
    /// Says why it failed.
    pub async fn finish(self, callback: &str) -> Result<(), Error> {
        let done = self.session.handle_callback_url(callback).await;
        done.map(|_| ()).map_err(|err| auth_error(&self.server, &err))
    }
}

fn auth_error(server: &str, err: &AuthError) -> Error {
    match err {
        AuthError::AuthorizationRequired | AuthError::TokenRefreshRejected(_) => {
            Error::AuthNeeded(server.to_owned())
        }
        other => Error::Unreachable(format!("login failed: {}", chain(other))),
    }
}

/// The login of one server in the vault.
struct Store {
    vault: Arc<dyn Vault>,
    entry: String,
}

impl Store {
    fn keep(&self, text: Option<&str>) -> Result<(), AuthError> {
        self.vault
            .save(&self.entry, text)
            .map_err(|why| AuthError::InternalError(clean_line(&why, 300)))
    }
}

#[async_trait::async_trait]
impl CredentialStore for Store {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        let text = self.vault.load(&self.entry);
        // An invalid login is ignored; the user logs in again.
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        let text = serde_json::to_string(&credentials)
            .map_err(|_| AuthError::InternalError("the login cannot be saved".to_owned()))?;
        self.keep(Some(&text))
    }

    async fn clear(&self) -> Result<(), AuthError> {
        self.keep(None)
    }
}
