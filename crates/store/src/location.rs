//! Where sessions are stored: a directory, or a server that several machines share.

use std::path::PathBuf;

use engine::words::Secret;

use crate::durable_objects::DurableObjects;
use crate::files::{create_private_dir, create_private_file, may_write};
use crate::journal::{Backend, Error};
use crate::postgres::{Postgres, Server};
use crate::sqlite::Sqlite;

/// Where sessions are stored.
#[derive(Debug, Clone)]
pub enum Location {
    /// In memory, because there is no data directory.
    Nowhere,
    /// In an SQLite database in this directory.
    Directory(PathBuf),
    /// In a PostgreSQL database, which several machines may share.
    Postgres(Server),
    /// In Durable Objects, at this URL with its token.
    DurableObjects(Secret),
}

impl Location {
    /// Reads where sessions are stored: a URL, or a directory. A URL is checked when it is used.
    #[must_use]
    pub fn parse(text: Secret) -> Location {
        match text.reveal().split_once("://") {
            Some(("http" | "https", _)) => Location::DurableObjects(text),
            Some(_) => Location::Postgres(Server::new(text)),
            // A mistyped address must not become the name of a directory: it may contain a password.
            None if is_like_an_address(text.reveal()) => Location::Postgres(Server::new(text)),
            None => Location::Directory(text.reveal().into()),
        }
    }
}

fn is_like_an_address(text: &str) -> bool {
    let text = text.trim_start().to_ascii_lowercase();
    let has_scheme = ["postgres:", "postgresql:", "http:", "https:"];
    has_scheme.iter().any(|scheme| text.starts_with(scheme)) || text.contains("password=")
}

/// Why there is no directory.
pub(crate) const NO_DIRECTORY: &str = "no data directory: HOME is not set";

/// Checks whether a location can be written, without opening the store.
pub(crate) fn check_writable(location: &Location) -> Result<(), String> {
    let directory = match location {
        Location::Directory(directory) => directory,
        Location::Nowhere => return Err(NO_DIRECTORY.to_owned()),
        // Asking a server would delay the start.
        Location::Postgres(_) | Location::DurableObjects(_) => return Ok(()),
    };
    let with_path = |err: std::io::Error| format!("{}: {err}", directory.display());
    create_private_dir(directory).and_then(|()| may_write(directory)).map_err(with_path)
}

/// Opens a backend without becoming an owner of sessions.
///
/// # Errors
/// Says what is wrong with the location.
pub(crate) fn open_backend(location: &Location) -> Result<Box<dyn Backend>, Error> {
    match location {
        Location::Nowhere => Err(Error::Failed(NO_DIRECTORY.to_owned())),
        Location::Directory(directory) => {
            create_private_dir(directory)?;
            let path = directory.join("sessions.db");
            create_private_file(&path)?;
            Ok(Box::new(Sqlite::open(&path)?))
        }
        Location::Postgres(server) => Ok(Box::new(Postgres::new(server.clone()))),
        Location::DurableObjects(url) => Ok(Box::new(DurableObjects::new(url.clone()))),
    }
}

/// Tries a store with a small question. It blocks, so it must not be called on a thread that runs async tasks.
///
/// # Errors
/// Says why it cannot be used.
pub fn reach(location: &Location) -> Result<(), Error> {
    open_backend(location)?.find("").map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    // R: O1
    #[test]
    fn mistyped_address_is_no_directory() {
        for text in ["postgres:/u:p@h/db", "POSTGRES:u:p@h", "host=h password=p", " https:/:t@h"] {
            let location = Location::parse(Secret::new(text));
            assert!(matches!(location, Location::Postgres(_)), "{text}");
            let why = reach(&location).unwrap_err().to_string();
            assert!(!why.contains("u:p") && !why.contains("=p") && !why.contains(":t"), "{why}");
        }
        for text in ["/srv/purlin", "data", "C:/data", "postgres"] {
            assert!(matches!(Location::parse(Secret::new(text)), Location::Directory(_)), "{text}");
        }
    }
}
