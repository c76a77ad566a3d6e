//! Makes the container image: the program, the C library that it needs, certificates and busybox, as an archive that `docker load`
//! and `podman load` read. No engine is needed to make it.
//!
//! What the program needs comes from packages of this Debian. The same packages and program make the same bytes.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::archive::{Entry, tar};
use super::packages::{Artefact, Content, hex, pretty};
use crate::program;
use crate::temporary::Directory;

const PACKAGES: [&str; 3] = ["busybox-static", "ca-certificates", "libc6"];
/// The loader, and the libraries of the C library that the program or the lookup of names uses.
const LIBRARIES: [&str; 9] = [
    "ld-linux-x86-64.so.2",
    "libc.so.6",
    "libdl.so.2",
    "libm.so.6",
    "libnss_dns.so.2",
    "libnss_files.so.2",
    "libpthread.so.0",
    "libresolv.so.2",
    "librt.so.1",
];
/// The user of the agent.
const PASSWD: &str = "root:x:0:0::/root:/bin/sh\npurlin:x:1000:1000::/state:/bin/sh\n";
const GROUP: &str = "root:x:0:\npurlin:x:1000:\n";
const SWITCH: &str = "passwd: files\ngroup: files\nhosts: files dns\n";

/// Makes the image of a platform, or none where Debian's packages cannot be had.
pub(crate) fn image(content: &Content) -> Result<Option<Artefact>> {
    if !content.platform.emulator.is_empty() || program::answer(&["apt-get", "--version"]).is_none()
    {
        println!("release: no container image for {}", content.platform.target);
        return Ok(None);
    }
    let directory = Directory::new("image")?;
    let base = base(directory.path())?;
    let mut entries = vec![Entry::program("usr/local/bin/purlin", content.program.clone())];
    let documents = "usr/share/doc/purlin/";
    entries.extend(content.licences.iter().map(|entry| entry.under(documents)));
    let archive = archive(&content.version, content.platform.debian, &[base, tar(&entries)?])?;
    Ok(Some(Artefact { name: format!("purlin-{}-image.tar", content.version), bytes: archive }))
}

/// Makes the layer below the program.
fn base(directory: &Path) -> Result<Vec<u8>> {
    let (unpacked, root) = (directory.join("unpacked"), directory.join("root"));
    let text = |path: &Path| path.to_str().map(str::to_owned).context("a path is not UTF-8");
    let (at, unpacked_at) = (text(directory)?, text(&unpacked)?);
    let download = format!("cd '{at}' && apt-get --quiet download {}", PACKAGES.join(" "));
    program::must_succeed(&["sh", "-c", &download])?;
    let unpack = format!("for it in '{at}'/*.deb; do dpkg-deb -x $it '{unpacked_at}'; done");
    program::must_succeed(&["sh", "-c", &unpack])?;
    for name in ["bin", "etc/ssl/certs", "lib64", "lib/x86_64-linux-gnu", "state", "tmp", "work"] {
        std::fs::create_dir_all(root.join(name))?;
    }
    for name in ["state", "tmp", "work"] {
        // Whoever the container runs as may write there.
        std::fs::set_permissions(root.join(name), PermissionsExt::from_mode(0o1777))?;
    }
    let libraries = "lib/x86_64-linux-gnu";
    for name in LIBRARIES {
        let from = [libraries, "usr/lib/x86_64-linux-gnu"].map(|at| unpacked.join(at).join(name));
        let from = from.iter().find(|path| path.exists()).with_context(|| name.to_owned())?;
        std::fs::copy(from, root.join(libraries).join(name))?;
    }
    let loader = LIBRARIES[0];
    symlink(format!("../{libraries}/{loader}"), root.join("lib64").join(loader))?;
    let busybox = root.join("bin/busybox");
    std::fs::copy(unpacked.join("bin/busybox"), &busybox)?;
    for name in program::answer_to(&[&text(&busybox)?, "--list"], "")?.lines() {
        if name != "busybox" {
            symlink("busybox", root.join("bin").join(name))?;
        }
    }
    let certificates = format!("cat '{unpacked_at}'/usr/share/ca-certificates/mozilla/*.crt");
    let certificates = program::answer_to(&["sh", "-c", &certificates], "")?;
    std::fs::write(root.join("etc/ssl/certs/ca-certificates.crt"), certificates + "\n")?;
    for (name, content) in [("passwd", PASSWD), ("group", GROUP), ("nsswitch.conf", SWITCH)] {
        std::fs::write(root.join("etc").join(name), content)?;
    }
    let options = ["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"];
    let rest = ["--format=ustar", "--create", "--file=-", "--directory", &text(&root)?, "."];
    program::filter(&[&["tar"], &options[..], &rest].concat(), b"")
}

/// Puts layers into an archive with a configuration and both lists: that of the OCI layout, and Docker's own.
fn archive(version: &str, architecture: &str, layers: &[Vec<u8>]) -> Result<Vec<u8>> {
    let digest = |bytes: &[u8]| format!("sha256:{}", hex(bytes));
    let blob = |bytes: &[u8]| format!("blobs/sha256/{}", hex(bytes));
    let sums: Vec<String> = layers.iter().map(|layer| digest(layer)).collect();
    let config = pretty(&json!({
        "architecture": architecture,
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": {
            "User": "1000:1000",
            "Env": ["PATH=/usr/local/bin:/bin", "HOME=/state"],
            "Entrypoint": ["/usr/local/bin/purlin"],
            "Cmd": ["acp"],
            "WorkingDir": "/work",
            "Volumes": { "/state": {} },
            "Labels": { "org.opencontainers.image.title": "Purlin", "org.opencontainers.image.version": version },
        },
        "rootfs": { "type": "layers", "diff_ids": sums },
    }));
    let described = |kind: &str, bytes: &[u8]| json!({ "mediaType": format!("application/vnd.oci.image.{kind}"), "digest": digest(bytes), "size": bytes.len() });
    let list: Vec<_> = layers.iter().map(|layer| described("layer.v1.tar", layer)).collect();
    let manifest = pretty(&json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": described("config.v1+json", &config),
        "layers": list,
    }));
    let name = format!("purlin:{version}");
    let mut entry = described("manifest.v1+json", &manifest);
    entry["annotations"] = json!({ "io.containerd.image.name": format!("docker.io/library/{name}"), "org.opencontainers.image.ref.name": version });
    let index = pretty(&json!({ "schemaVersion": 2, "manifests": [entry] }));
    let blobs: Vec<String> = layers.iter().map(|layer| blob(layer)).collect();
    let docker = pretty(&json!([{ "Config": blob(&config), "RepoTags": [name], "Layers": blobs }]));
    let mut entries = vec![
        Entry::file("oci-layout", "{\"imageLayoutVersion\":\"1.0.0\"}\n"),
        Entry::file("index.json", index),
        Entry::file("manifest.json", docker),
        Entry::file(blob(&config), config),
        Entry::file(blob(&manifest), manifest),
    ];
    entries.extend(layers.iter().map(|layer| Entry::file(blob(layer), layer.clone())));
    tar(&entries)
}

/// Loads the image into Podman, in storage of its own, and talks to the agent in it.
pub(crate) fn check(dist: &Path, version: &str) -> Result<()> {
    let directory = Directory::new("podman")?;
    let at = directory.path().to_str().context("a path is not UTF-8")?;
    let (storage, run) = (format!("{at}/storage"), format!("{at}/run"));
    let image = dist.join(format!("purlin-{version}-image.tar"));
    let image = image.to_str().context("a path is not UTF-8")?;
    let podman = ["podman", "--root", &storage, "--runroot", &run, "--storage-driver", "vfs"];
    let engine = ["--runtime", "runc", "--cgroup-manager", "cgroupfs"];
    let podman = [&podman[..], &engine].concat();
    program::must_succeed(&[&podman[..], &["load", "--input", image]].concat())?;
    let name = format!("purlin:{version}");
    let limits = ["run", "--rm", "--interactive", "--network", "none", "--read-only"];
    // Where the limits of the machine are lower than Podman's defaults.
    let lower = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"];
    let start = [&podman[..], &limits, &lower, &[&name]].concat();
    super::check::greets(&start, version)?;
    let said = program::answer_to(&[&start[..], &["run", "what is this project?"]].concat(), "")?;
    ensure!(said.contains("built-in guide"), "the program in the container says {said}");
    program::must_succeed(&[&podman[..], &["rmi", "--all", "--force"]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_names_its_contents_by_their_sums() {
        let layers = [b"one".to_vec(), b"two".to_vec()];
        let bytes = archive("1.2.3", "amd64", &layers).unwrap();
        assert_eq!(bytes, archive("1.2.3", "amd64", &layers).unwrap());
        let listed = program::filter(&["tar", "--list"], &bytes).unwrap();
        let listed = String::from_utf8(listed).unwrap();
        for layer in &layers {
            assert!(listed.contains(&format!("blobs/sha256/{}", hex(layer))), "{listed}");
        }
        let unpack = ["tar", "--extract", "--to-stdout", "manifest.json"];
        let docker: serde_json::Value =
            serde_json::from_slice(&program::filter(&unpack, &bytes).unwrap()).unwrap();
        let config = docker[0]["Config"].as_str().unwrap();
        assert!(listed.contains(config) && docker[0]["RepoTags"][0] == "purlin:1.2.3");
        let config = program::filter(&["tar", "--extract", "--to-stdout", config], &bytes).unwrap();
        let config: serde_json::Value = serde_json::from_slice(&config).unwrap();
        assert_eq!(config["rootfs"]["diff_ids"][1], format!("sha256:{}", hex(b"two")));
        assert_eq!(config["config"]["User"], "1000:1000");
    }
}
