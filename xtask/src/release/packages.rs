//! Turns the program and its files into packages: tarball, Debian, npm, Python, and the entry for the ACP registry.
//!
//! Pure: the same input makes the same bytes. `release` gathers the input and writes the output; `check` installs it.

use anyhow::Result;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::archive::{Entry, ar, gzip, tar, zip};

/// One sentence about the program, for catalogues.
const SUMMARY: &str = "A coding agent for editors that speak the Agent Client Protocol";
const LICENCE: &str = "MIT OR Apache-2.0";
/// The newest glibc that the program may need.
pub(crate) const GLIBC: &str = "2.28";
/// The name `purlin` belongs to another project there.
const PYPI_NAME: &str = "purlin_agent";

/// Everything that packages contain.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) version: String,
    pub(crate) repository: String,
    pub(crate) platform: &'static Platform,
    /// The program.
    pub(crate) program: Vec<u8>,
    /// Manual pages, completions and documents, by their path below `/usr`.
    pub(crate) shared: Vec<Entry>,
    /// The licences of the program and of what it contains, by file name.
    pub(crate) licences: Vec<Entry>,
    pub(crate) readme: String,
    pub(crate) launcher: String,
    pub(crate) icon: String,
}

/// Names of one platform in the various worlds.
#[derive(Debug, PartialEq)]
pub(crate) struct Platform {
    pub(crate) target: &'static str,
    pub(crate) debian: &'static str,
    pub(crate) npm: &'static str,
    npm_cpu: &'static str,
    python: &'static str,
    registry: &'static str,
    /// What starts its programs on this machine; nothing if it is the machine's own platform.
    pub(crate) emulator: &'static [&'static str],
}

/// The platforms that packages are made for. The first is that of the machine.
pub(crate) static PLATFORMS: [Platform; 2] = [
    Platform {
        target: "x86_64-unknown-linux-gnu",
        debian: "amd64",
        npm: "linux-x64",
        npm_cpu: "x64",
        python: "x86_64",
        registry: "linux-x86_64",
        emulator: &[],
    },
    Platform {
        target: "aarch64-unknown-linux-gnu",
        debian: "arm64",
        npm: "linux-arm64",
        npm_cpu: "arm64",
        python: "aarch64",
        registry: "linux-aarch64",
        // Where Debian's C library for aarch64 is.
        emulator: &["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"],
    },
];

/// A file for `target/dist`.
#[derive(Debug, PartialEq)]
pub(crate) struct Artefact {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

impl Content {
    /// Makes the packages of this platform. The tarball is the first.
    pub(crate) fn packages(&self) -> Result<Vec<Artefact>> {
        Ok(vec![self.tarball()?, self.deb()?, self.npm_platform()?, self.wheel()?])
    }

    fn name(&self) -> String {
        format!("purlin-{}-{}", self.version, self.platform.target)
    }

    fn program_at(&self, path: &str) -> Entry {
        Entry::program(path, self.program.clone())
    }

    fn tarball(&self) -> Result<Artefact> {
        let directory = format!("{}/", self.name());
        let mut entries = vec![self.program_at("bin/purlin")];
        entries.extend(self.shared.iter().cloned());
        entries.extend(self.licences.iter().cloned());
        let entries: Vec<Entry> = entries.iter().map(|entry| entry.under(&directory)).collect();
        Ok(Artefact { name: format!("{}.tar.gz", self.name()), bytes: gzip(&tar(&entries)?)? })
    }

    fn deb(&self) -> Result<Artefact> {
        let mut entries = vec![self.program_at("./usr/bin/purlin")];
        entries.extend(self.shared.iter().map(|entry| entry.under("./usr/")));
        let documents = "./usr/share/doc/purlin/";
        entries.extend(self.licences.iter().map(|entry| entry.under(documents)));
        let size: usize = entries.iter().map(|entry| entry.bytes.len().div_ceil(1024)).sum();
        let Content { version, repository, .. } = self;
        let architecture = self.platform.debian;
        let control = format!(
            "Package: purlin\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: The Purlin maintainers <maintainers@purlin.example>\nInstalled-Size: {size}\nDepends: libc6 (>= {GLIBC})\nRecommends: git, bubblewrap, ca-certificates\nSection: devel\nPriority: optional\nHomepage: {repository}\nDescription: {SUMMARY}\n An editor starts it and talks to it over stdin and stdout. It works with any model,\n asks before it changes anything, and runs commands in a sandbox.\n"
        );
        let control = gzip(&tar(&[Entry::file("./control", control)])?)?;
        let data = gzip(&tar(&entries)?)?;
        let bytes = ar(&[
            ("debian-binary", b"2.0\n".to_vec()),
            ("control.tar.gz", control),
            ("data.tar.gz", data),
        ]);
        Ok(Artefact { name: format!("purlin_{version}_{architecture}.deb"), bytes })
    }

    fn npm_manifest(&self, name: &str, extra: Value) -> Entry {
        let mut manifest = json!({
            "name": name,
            "version": self.version,
            "description": SUMMARY,
            "license": LICENCE,
            "repository": { "type": "git", "url": format!("git+{}.git", self.repository) },
        });
        for (key, value) in extra.as_object().into_iter().flatten() {
            manifest[key] = value.clone();
        }
        Entry::file("package/package.json", pretty(&manifest))
    }

    fn npm_platform(&self) -> Result<Artefact> {
        let name = format!("@purlin/{}", self.platform.npm);
        let limits = json!({ "os": ["linux"], "cpu": [self.platform.npm_cpu], "libc": ["glibc"], "preferUnplugged": true });
        let mut entries =
            vec![self.npm_manifest(&name, limits), self.program_at("package/bin/purlin")];
        entries.extend(self.licences.iter().map(|entry| entry.under("package/")));
        let file = format!("npm/purlin-{}-{}.tgz", self.platform.npm, self.version);
        Ok(Artefact { name: file, bytes: gzip(&tar(&entries)?)? })
    }

    /// The package that people name. It is the same for all platforms.
    pub(crate) fn npm_main(&self) -> Result<Artefact> {
        let version = &self.version;
        let platforms: Value = PLATFORMS
            .iter()
            .map(|platform| (format!("@purlin/{}", platform.npm), version.clone().into()))
            .collect::<serde_json::Map<_, _>>()
            .into();
        let extra = json!({
            "bin": { "purlin": "bin/purlin.js" },
            "optionalDependencies": platforms,
            "engines": { "node": ">=18" },
        });
        let mut entries = vec![
            self.npm_manifest("purlin", extra),
            Entry::program("package/bin/purlin.js", self.launcher.clone()),
            Entry::file("package/README.md", self.readme.clone()),
        ];
        let own = self.licences.iter().filter(|entry| entry.path.starts_with("LICENSE"));
        entries.extend(own.map(|entry| entry.under("package/")));
        Ok(Artefact { name: format!("npm/purlin-{version}.tgz"), bytes: gzip(&tar(&entries)?)? })
    }

    fn wheel(&self) -> Result<Artefact> {
        let version = &self.version;
        let tag =
            format!("py3-none-manylinux_{}_{}", GLIBC.replace('.', "_"), self.platform.python);
        let info = format!("{PYPI_NAME}-{version}.dist-info");
        let name = PYPI_NAME.replace('_', "-");
        let metadata = format!(
            "Metadata-Version: 2.4\nName: {name}\nVersion: {version}\nSummary: {SUMMARY}\nLicense-Expression: {LICENCE}\nProject-URL: Repository, {}\nRequires-Python: >=3.8\nDescription-Content-Type: text/markdown\n\n{}",
            self.repository, self.readme
        );
        let wheel = format!(
            "Wheel-Version: 1.0\nGenerator: purlin xtask\nRoot-Is-Purelib: false\nTag: {tag}\n"
        );
        let mut entries = vec![
            self.program_at(&format!("{PYPI_NAME}-{version}.data/scripts/purlin")),
            Entry::file(format!("{info}/METADATA"), metadata),
            Entry::file(format!("{info}/WHEEL"), wheel),
        ];
        entries.extend(self.licences.iter().map(|entry| entry.under(&format!("{info}/licenses/"))));
        let record = format!("{info}/RECORD");
        let mut lines: String = entries
            .iter()
            .map(|entry| {
                let sum = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(&entry.bytes));
                format!("{},sha256={sum},{}\n", entry.path, entry.bytes.len())
            })
            .collect();
        lines.push_str(&format!("{record},,\n"));
        entries.push(Entry::file(record, lines));
        Ok(Artefact { name: format!("{PYPI_NAME}-{version}-{tag}.whl"), bytes: zip(&entries)? })
    }

    /// The program in the entry for the registry of ACP agents, with the tarball that has it.
    pub(crate) fn registry_binary(&self, tarball: &Artefact) -> (String, Value) {
        let Content { version, repository, .. } = self;
        let binary = json!({
            "archive": format!("{repository}/releases/download/v{version}/{}", tarball.name),
            "sha256": hex(&tarball.bytes),
            "cmd": format!("./{}/bin/purlin", self.name()),
            "args": ["acp"],
        });
        (self.platform.registry.to_owned(), binary)
    }

    /// The entry for the registry, with the programs of all platforms.
    pub(crate) fn registry_entry(&self, binaries: Map<String, Value>) -> Vec<Artefact> {
        let Content { version, repository, .. } = self;
        let entry = json!({
            "id": "purlin",
            "name": "Purlin",
            "version": version,
            "description": SUMMARY,
            "repository": repository,
            "authors": ["The Purlin maintainers"],
            "license": LICENCE,
            "license_url": format!("{repository}/blob/v{version}/LICENSE-MIT"),
            "distribution": { "npx": { "package": format!("purlin@{version}"), "args": ["acp"] }, "binary": binaries },
        });
        let file = |name: &str, bytes| Artefact { name: format!("registry/purlin/{name}"), bytes };
        vec![file("agent.json", pretty(&entry)), file("icon.svg", self.icon.clone().into_bytes())]
    }
}

/// Returns the SHA-256 sum, as `sha256sum` prints it.
pub(crate) fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Prints JSON for people.
pub(crate) fn pretty(value: &Value) -> Vec<u8> {
    format!("{value:#}\n").into_bytes()
}
