//! A temporary workspace, and how commands run in it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use process::Spec;
use process::sandbox::{Found, Limits, Profile, Sandbox};
use tempfile::TempDir;
use tokio::io::AsyncReadExt;

/// A workspace next to a directory for the sandbox.
pub(crate) struct Place(
    pub(crate) PathBuf,
    #[expect(dead_code, reason = "removes the folder when it is dropped")] TempDir,
);

impl Place {
    pub(crate) fn new() -> Place {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("work")).unwrap();
        Place(directory.path().canonicalize().unwrap(), directory)
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.0.join("work")
    }

    pub(crate) fn sandbox(&self) -> Sandbox {
        Sandbox::new(env!("CARGO_BIN_EXE_escape").into(), self.0.join("scratch"))
    }

    pub(crate) fn copy(&self, program: &str) -> PathBuf {
        let copy = self.0.join(Path::new(program).file_name().unwrap());
        std::fs::copy(program, &copy).unwrap();
        copy
    }

    pub(crate) fn profile(&self, limits: Limits) -> Profile {
        Profile { limits, ..Profile::writing_to(vec![self.work()]) }
    }
}

pub(crate) fn shell(cwd: &Path, script: &str) -> Spec {
    let mut spec = Spec::new("/bin/sh", cwd).args(["-c", script]).env("PATH", "/usr/bin:/bin");
    spec.clear_env = true;
    spec.merge_stderr = true;
    spec
}

/// Runs a script to its end; returns its output and its exit code.
pub(crate) async fn run_with(
    sandbox: &Sandbox,
    found: &Found,
    spec: &Spec,
    profile: &Profile,
) -> (String, Option<i32>) {
    let mut child = sandbox.spawn(spec, profile, found).unwrap();
    let mut pipe = child.stdout.take().unwrap();
    let mut said = Vec::new();
    let both = async { tokio::join!(pipe.read_to_end(&mut said), child.wait()) };
    let (read, ended) = tokio::time::timeout(Duration::from_secs(100), both).await.unwrap();
    read.unwrap();
    (String::from_utf8_lossy(&said).into_owned(), ended.unwrap().code())
}

pub(crate) async fn run_at(
    place: &Place,
    sandbox: &Sandbox,
    found: &Found,
    limits: Limits,
    script: &str,
) -> (String, Option<i32>) {
    run_with(sandbox, found, &shell(&place.work(), script), &place.profile(limits)).await
}
