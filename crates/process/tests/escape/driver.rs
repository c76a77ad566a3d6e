//! Acts as the agent: has secrets, sockets and open files, starts the attempts in the sandbox, and checks their effects.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use process::container::{ContainerOptions, Containers, Engine, Image};
use process::sandbox::{Level, Profile, Sandbox};
use process::{Child, Error, Spec};
use tokio::io::AsyncReadExt;

use crate::system::{say, works};

/// The suffix of a level whose namespaces bubblewrap makes.
const BY_BUBBLEWRAP: &str = "-bubblewrap";

/// Runs all attempts at a level, prints their verdicts and then a line for each thing that changed outside.
pub(crate) fn drive(level: &str, directory: &Path) -> ExitCode {
    match run(level, directory) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            say(&format!("failed\t{why}"));
            ExitCode::FAILURE
        }
    }
}

/// Starts a script at a level, `free` for none, and waits to be killed. Prints `now` just before it starts it.
pub(crate) fn hold(level: &str, directory: &Path, script: &str) -> ExitCode {
    let level = level_of(level).ok();
    let Ok(program) = std::env::current_exe() else { return ExitCode::FAILURE };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return ExitCode::FAILURE };
    runtime.block_on(async {
        let sandbox = Sandbox::new(program, directory.join("scratch"));
        let sandbox = sandbox.at_most(level.unwrap_or(Level::None));
        let found = sandbox.found().await;
        let profile = Profile::writing_to(vec![directory.to_owned()]);
        let mut spec = Spec::new("/bin/sh", directory).args(["-c", script]);
        spec.keep_input = true;
        say("now");
        let started = match level {
            Some(_) => sandbox.spawn(&spec, &profile, &found),
            None => sandbox.spawn_free(&spec),
        };
        let Ok(_child) = started else { return ExitCode::FAILURE };
        std::future::pending().await
    })
}

fn level_of(name: &str) -> Result<Level, &'static str> {
    Level::ALL.into_iter().find(|known| known.to_string() == name).ok_or("unknown level")
}

fn run(level: &str, directory: &Path) -> Result<(), String> {
    let text = |err: std::io::Error| err.to_string();
    let place = Place::make(directory).map_err(text)?;
    let visitors = Arc::new(AtomicUsize::new(0));
    let facts = place.listen(&visitors).map_err(text)?;
    let before = place.snapshot();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(text)?;
    let output = runtime.block_on(attempts(level, &place, &facts))?;
    for line in output.lines().filter(|line| !line.starts_with("E63")) {
        say(line);
    }
    // Longer than a process that was left behind would wait.
    let end = std::time::Instant::now() + Duration::from_secs(3);
    let survivor = place.at("inside/survivor");
    while !survivor.exists() && std::time::Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    let verdict = if survivor.exists() { "open" } else { "no" };
    say(&format!("E63\tleave a process running\t{verdict}"));
    for change in place.snapshot().iter().filter(|now| !before.contains(now)) {
        say(&format!("changed\t{change}"));
    }
    say(&format!("visitors\t{}", visitors.load(Ordering::SeqCst)));
    Ok(())
}

async fn attempts(level: &str, place: &Place, facts: &[String]) -> Result<String, String> {
    if level == "container" {
        return attempts_in_a_container(place, facts).await;
    }
    let program = std::env::current_exe().map_err(|err| err.to_string())?;
    let sandbox = Sandbox::new(program, place.at("scratch"));
    let (sandbox, level) = match level.strip_suffix(BY_BUBBLEWRAP) {
        Some(level) => (sandbox.with_bubblewrap("/usr/bin/bwrap".into()), level_of(level)?),
        None => (sandbox, level_of(level)?),
    };
    let sandbox = sandbox.at_most(level);
    let found = sandbox.found().await;
    if found.level != level {
        return Err(format!("only {} works here: {:?}", found.level, found.missing));
    }
    let profile = profile_of(place);
    let spec = spec_of(place, facts);
    let child = sandbox.spawn(&spec, &profile, &found).map_err(|err| err.to_string())?;
    output_of(child).await
}

fn profile_of(place: &Place) -> Profile {
    Profile {
        protected: vec![place.at("inside/.git"), place.at("inside/.agent")],
        hidden: vec![place.at("secret")],
        // The whole tree stays visible: what is hidden could not be attacked.
        private: Vec::new(),
        temporary: None,
        ..Profile::writing_to(vec![place.at("inside")])
    }
}

fn spec_of(place: &Place, facts: &[String]) -> Spec {
    let mut spec = Spec::new(place.at("inside/escape"), place.at("inside"));
    spec.args = std::iter::once("try".into()).chain(facts.iter().map(Into::into)).collect();
    spec.clear_env = true;
    spec.merge_stderr = true;
    spec
}

/// Makes the attempts in a container of the image and the engine that the environment names.
async fn attempts_in_a_container(place: &Place, facts: &[String]) -> Result<String, String> {
    let variable = |name: &str| std::env::vars().find(|(known, _)| known == name).map(|it| it.1);
    let image = variable("IMAGE").ok_or("no image")?;
    let host = variable("DOCKER_HOST").ok_or("no engine")?;
    let environment = [("DOCKER_HOST".into(), host.into())];
    let search = ["/usr/local/bin", "/usr/bin"].map(PathBuf::from);
    let containers = Containers::new(ContainerOptions {
        engines: Engine::find(Some("docker"), &search, &environment),
        images: vec![Image::Named(image)],
        network: None,
        memory: "4g".to_owned(),
        cpus: None,
        processes: 2048,
        user: None,
        environment: BTreeMap::new(),
        mounts: Vec::new(),
        aliases: Vec::new(),
        run_args: Vec::new(),
        after_create: Vec::new(),
        scratch: place.at("scratch"),
    });
    let child = containers.spawn(&spec_of(place, facts), &profile_of(place), &[]).await;
    let output = output_of(child.map_err(|err| err.to_string())?).await;
    // Its end must not be what ends a process that was left behind.
    tokio::time::sleep(Duration::from_secs(3)).await;
    output
}

async fn output_of(mut child: Child) -> Result<String, String> {
    let whole = |err: Error| format!("{err}");
    let mut output = String::new();
    let mut pipe = child.stdout.take().ok_or("no output")?;
    // Concurrently: a process that was left behind may keep the pipe open.
    let both = async {
        let (read, ended) = tokio::join!(pipe.read_to_string(&mut output), child.wait());
        read.map_err(|err| err.to_string()).and(ended.map_err(whole))
    };
    tokio::time::timeout(Duration::from_secs(120), both).await.map_err(|_| "too slow")??;
    Ok(output)
}

/// The directories of the run.
struct Place {
    directory: PathBuf,
    _leaked: Vec<fs::File>,
    facts: Vec<String>,
}

impl Place {
    fn at(&self, path: &str) -> PathBuf {
        self.directory.join(path)
    }

    fn make(directory: &Path) -> std::io::Result<Place> {
        let at = |path: &str| directory.join(path);
        for path in ["inside/.git/hooks", "outside", "secret", "scratch"] {
            fs::create_dir_all(at(path))?;
        }
        for path in ["outside/file", "outside/to-move", "outside/to-remove", "inside/.git/config"] {
            fs::write(at(path), "as it was")?;
        }
        fs::write(at("secret/key"), "sk-very-secret")?;
        fs::write(at("secret/script"), "#!/bin/sh\nexit 0\n")?;
        fs::copy("/bin/true", at("secret/tool"))?;
        fs::copy(std::env::current_exe()?, at("inside/escape"))?;
        for path in ["secret/script", "secret/tool", "inside/escape"] {
            fs::set_permissions(at(path), PermissionsExt::from_mode(0o755))?;
        }
        let leaked_directory = fs::File::open(at("outside"))?;
        let leaked_file = fs::File::options().append(true).open(at("outside/file"))?;
        let leaked = |file: &fs::File| {
            let fd: RawFd = file.as_raw_fd();
            works(libc::SYS_fcntl, &[fd.into(), libc::F_SETFD.into(), 0]);
            fd
        };
        #[expect(clippy::disallowed_methods, reason = "this program has no assembly to ask")]
        let shared = std::env::temp_dir();
        let facts = vec![
            format!("inside={}", at("inside").display()),
            format!("outside={}", at("outside").display()),
            format!("secret={}", at("secret").display()),
            format!("shared={}", shared.display()),
            format!("agent={}", std::process::id()),
            "key=sk-of-the-agent".to_owned(),
            format!("leaked_folder={}", leaked(&leaked_directory)),
            format!("leaked_file={}", leaked(&leaked_file)),
        ];
        std::env::set_current_dir(at("outside"))?;
        Ok(Place {
            directory: directory.to_owned(),
            _leaked: vec![leaked_directory, leaked_file],
            facts,
        })
    }

    /// Listens on every kind of socket, and returns the facts that the attempts need.
    fn listen(&self, visitors: &Arc<AtomicUsize>) -> std::io::Result<Vec<String>> {
        let tcp = TcpListener::bind("127.0.0.1:0")?;
        let udp = UdpSocket::bind("127.0.0.1:0")?;
        let name = format!("escape-{}", std::process::id());
        let mut facts = self.facts.clone();
        facts.push(format!("tcp={}", tcp.local_addr()?.port()));
        facts.push(format!("udp={}", udp.local_addr()?.port()));
        facts.push(format!("abstract={name}"));
        count_visitors(visitors, move || tcp.accept().map(drop));
        count_visitors(visitors, move || {
            let (_, from) = udp.recv_from(&mut [0; 16])?;
            udp.send_to(b"hello", from).map(drop)
        });
        // A machine may lack IPv6; then there is nothing to reach.
        if let Ok(tcp) = TcpListener::bind("[::1]:0") {
            facts.push(format!("tcp6={}", tcp.local_addr()?.port()));
            count_visitors(visitors, move || tcp.accept().map(drop));
        }
        let hidden = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        let named = UnixListener::bind(self.at("outside/socket"))?;
        let secret = UnixListener::bind(self.at("secret/socket"))?;
        let datagrams = UnixDatagram::bind(self.at("outside/datagrams"))?;
        count_visitors(visitors, move || hidden.accept().map(drop));
        count_visitors(visitors, move || named.accept().map(drop));
        count_visitors(visitors, move || secret.accept().map(drop));
        count_visitors(visitors, move || datagrams.recv(&mut [0; 16]).map(drop));
        Ok(facts)
    }

    /// Describes everything that must not change.
    fn snapshot(&self) -> Vec<String> {
        let mut found = Vec::new();
        for top in ["outside", "secret", "inside/.git", "inside/.agent"] {
            describe(&self.at(top), &mut found);
        }
        // A directory that does not exist must not exist afterwards.
        found.push(format!(".agent {}", self.at("inside/.agent").symlink_metadata().is_ok()));
        found
    }
}

fn count_visitors(
    visitors: &Arc<AtomicUsize>,
    visit: impl Fn() -> std::io::Result<()> + Send + 'static,
) {
    let visitors = Arc::clone(visitors);
    std::thread::spawn(move || {
        while visit().is_ok() {
            visitors.fetch_add(1, Ordering::SeqCst);
        }
    });
}

fn describe(path: &Path, found: &mut Vec<String>) {
    let Ok(about) = path.symlink_metadata() else { return };
    let mut content = String::new();
    if about.is_file()
        && let Ok(mut file) = fs::File::open(path)
    {
        // A changed program shows in its size and times.
        file.read_to_string(&mut content).ok();
    }
    let (mode, owner, size) = (about.mode(), about.uid(), about.size());
    let times = (about.mtime(), about.mtime_nsec(), about.ctime(), about.ctime_nsec());
    found.push(format!("{} {mode:o} {owner} {size} {times:?} {content:?}", path.display()));
    if about.is_dir() {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            describe(&entry.path(), found);
        }
    }
}
