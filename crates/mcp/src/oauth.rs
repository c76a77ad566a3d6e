//! OAuth logins to remote servers. The caller stores them; this module uses and refreshes them.

use std::sync::Arc;

use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationRequest, AuthorizationSession, CredentialStore,
    StoredCredentials,
};

use crate::clean::clean_line;
use crate::error::Error;
use crate::http::{chain, client_for, install_crypto_provider, is_plain_loopback};

/// Stores logins: one string with secrets for each, under the key that [`storage_key`] returns.
pub trait Vault: Send + Sync {
    /// Returns a stored login.
    fn load(&self, key: &str) -> Option<String>;

    /// Stores a login, or removes it.
    ///
    /// # Errors
    /// Says why it cannot be stored.
    fn save(&self, key: &str, login: Option<&str>) -> Result<(), String>;
}

/// Returns the key that the login to a server is stored under: its name and its URL. The URL is included so that another
/// server to which a project or an editor gives the same name does not get the token.
#[must_use]
pub fn storage_key(server: &str, url: &str) -> String {
    let Ok(mut url) = reqwest::Url::parse(url) else {
        return server.to_owned();
    };
    // These fail only for a URL without a host, which has no user name and password to remove.
    url.set_username("").ok();
    url.set_password(None).ok();
    url.set_query(None);
    url.set_fragment(None);
    format!("{server} {url}")
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

    /// Returns the signer of requests to a server, if a login to it is stored.
    pub(crate) async fn signer(&self, server: &str, url: &str) -> Result<Option<Signer>, Error> {
        if self.vault.load(&storage_key(server, url)).is_none() {
            return Ok(None);
        }
        let mut manager = self.new_manager(server, url).await?;
        match manager.initialize_from_store().await {
            Ok(true) => Ok(Some(Signer { manager, server: server.to_owned() })),
            Ok(false) => Err(Error::LoginRequired(server.to_owned())),
            Err(err) => Err(auth_error(server, &err)),
        }
    }

    /// Returns a token for a server, if a login to it is stored.
    pub(crate) async fn token(&self, server: &str, url: &str) -> Result<Option<String>, Error> {
        match self.signer(server, url).await? {
            Some(signer) => signer.token().await.map(Some),
            None => Ok(None),
        }
    }

    async fn new_manager(&self, server: &str, url: &str) -> Result<AuthorizationManager, Error> {
        let failed = |err: AuthError| auth_error(server, &err);
        install_crypto_provider();
        let mut manager = AuthorizationManager::new(url).await.map_err(failed)?;
        // The manager's default client refuses private addresses. A loopback server may refer to loopback addresses.
        if is_plain_loopback(url) {
            manager.with_client(client_for(url)?).map_err(failed)?;
        }
        let store = Store { vault: Arc::clone(&self.vault), key: storage_key(server, url) };
        manager.set_credential_store(store);
        Ok(manager)
    }

    /// Starts a login. The user opens [`Attempt::page`] and is then redirected to `redirect`.
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
            Ok(session) if is_web_page(session.get_authorization_url()) => {
                Ok(Attempt { session, server: server.to_owned() })
            }
            // Such an address could start a program on the user's machine.
            Ok(_) => {
                let why = "login failed: the address of the login page is not http or https";
                Err(Error::Unreachable(why.to_owned()))
            }
            Err((_, err)) => Err(auth_error(server, &err)),
        }
    }
}

/// Tells whether a URL can be opened in a browser without starting another program.
fn is_web_page(url: &str) -> bool {
    reqwest::Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https"))
}

/// Supplies the token for requests to a server with a stored login.
pub(crate) struct Signer {
    manager: AuthorizationManager,
    server: String,
}

impl Signer {
    /// Returns a valid token. An expired one is refreshed.
    pub(crate) async fn token(&self) -> Result<String, Error> {
        self.manager.get_access_token().await.map_err(|err| auth_error(&self.server, &err))
    }
}

/// A login that the user completes in a browser.
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

    /// Completes the login with the URL that the browser was redirected to, and stores it.
    ///
    /// # Errors
    /// Says why the login failed.
    pub async fn finish(self, callback: &str) -> Result<(), Error> {
        let done = self.session.handle_callback_url(callback).await;
        done.map(|_| ()).map_err(|err| auth_error(&self.server, &err))
    }
}

fn auth_error(server: &str, err: &AuthError) -> Error {
    match err {
        AuthError::AuthorizationRequired | AuthError::TokenRefreshRejected(_) => {
            Error::LoginRequired(server.to_owned())
        }
        other => Error::Unreachable(format!("login failed: {}", chain(other))),
    }
}

/// The login to one server in the vault.
struct Store {
    vault: Arc<dyn Vault>,
    key: String,
}

impl Store {
    fn store(&self, login: Option<&str>) -> Result<(), AuthError> {
        self.vault
            .save(&self.key, login)
            .map_err(|why| AuthError::InternalError(clean_line(&why, 300)))
    }
}

#[async_trait::async_trait]
impl CredentialStore for Store {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        let text = self.vault.load(&self.key);
        // A login that cannot be parsed is treated as missing, so that the user logs in again.
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        let text = serde_json::to_string(&credentials)
            .map_err(|_| AuthError::InternalError("the login could not be saved".to_owned()))?;
        self.store(Some(&text))
    }

    async fn clear(&self) -> Result<(), AuthError> {
        self.store(None)
    }
}
