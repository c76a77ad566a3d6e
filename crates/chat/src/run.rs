//! Runs the client on a terminal: keys and the agent's events go to `app`, its frames to the screen.

use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use process::{Spec, TerminalSize};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep_until};

use crate::app::{App, AppOptions, Command, Event};
use crate::color::ColorLevel;
use crate::files;
use crate::image::ImageProtocol;
use crate::keymap::KeyMap;
use crate::keys::{Input, KeyParser};
use crate::plain::Plain;
use crate::screen::Screen;
use crate::talk::{AgentAddress, Talk, TalkOptions};
use crate::tty::{ASK_ATTRIBUTES, ASK_BACKGROUND, ASK_SIZE, Tty};

/// The shortest time between two frames.
const FRAME: Duration = Duration::from_millis(16);

/// How long to wait for what may follow an ESC.
const ESCAPE: Duration = Duration::from_millis(50);

/// A new size is used once it has not changed for so long: a terminal that is still being resized moves what is on it.
const SETTLED: Duration = Duration::from_millis(80);

/// How long to wait for a terminal to report its size.
const REPORTED: Duration = Duration::from_millis(500);

/// How often something that moves is drawn.
const MOVING: Duration = Duration::from_millis(120);

/// A larger file of past prompts is not read.
const MAX_HISTORY: u64 = 4 * 1024 * 1024;

/// What the client needs from the program around it.
#[derive(Debug)]
pub struct ChatOptions {
    /// How to reach the agent.
    pub talk: TalkOptions,
    /// Which colours to use.
    pub level: ColorLevel,
    /// Where past prompts of this project are stored.
    pub history: Option<PathBuf>,
    /// The user's editor, a command line.
    pub editor: Option<String>,
    /// Where files for the editor are created.
    pub temporary: PathBuf,
    /// The session to load.
    pub session: Option<String>,
    /// Lines are typed and printed, and nothing moves: for screen readers, and for terminals without a cursor.
    pub is_linear: bool,
    /// The input has the keys of vi.
    pub has_vi_keys: bool,
    /// How images are shown, as far as the environment says.
    pub images: ImageProtocol,
    /// Which key does what.
    pub key_map: KeyMap,
    /// What to say at the start, such as mistakes in the configuration.
    pub notices: Vec<String>,
}

/// Runs until the user quits or the terminal is closed.
///
/// # Errors
/// Fails if stdin and stdout are not a terminal.
pub async fn run(mut options: ChatOptions) -> io::Result<ExitCode> {
    let tty = if options.is_linear { Tty::plain()? } else { Tty::open()? };
    let (columns, rows) = tty.size();
    let history = options.history.as_ref();
    let history =
        history.and_then(|file| tree::read_linked(file, MAX_HISTORY).ok()).unwrap_or_default();
    let app = App::new(AppOptions {
        columns,
        rows,
        cwd: options.talk.cwd.clone(),
        branch: files::branch(&options.talk.cwd),
        history: String::from_utf8_lossy(&history).into_owned(),
        session: options.session.clone(),
        is_linear: options.is_linear,
        has_vi_keys: options.has_vi_keys,
        images: options.images,
        key_map: std::mem::take(&mut options.key_map),
        notices: std::mem::take(&mut options.notices),
    });
    let cells = |count: usize| u16::try_from(count).unwrap_or(u16::MAX);
    options.talk.terminal = TerminalSize { columns: cells(columns), rows: cells(rows) };
    let talk = Talk::new(options.talk.clone());
    if options.is_linear {
        return Plain::new(options, tty, app, talk).run().await;
    }
    let screen = Screen::new(options.level, columns, rows);
    let started = Instant::now();
    let client = Client {
        options,
        tty,
        app,
        screen,
        talk,
        keys: KeyParser::default(),
        started,
        resizing: Resizing::No,
        kernel_size: (columns, rows),
        reports_size: true,
        is_over: false,
    };
    client.run().await
}

struct Client {
    options: ChatOptions,
    tty: Tty,
    app: App,
    screen: Screen,
    talk: Talk,
    keys: KeyParser,
    started: Instant,
    resizing: Resizing,
    /// The last size that the kernel reported.
    kernel_size: (usize, usize),
    /// Whether the terminal reports its size. One that did not is not asked again.
    reports_size: bool,
    is_over: bool,
}

/// Nothing is drawn while the size is uncertain.
///
/// The kernel's size is not enough: a terminal such as tmux has moved its content long before it passes on its size, and
/// passes on sizes that it no longer has. A live area measured with such a size would erase lines above it. So the terminal
/// itself is asked.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Resizing {
    No,
    /// Until the size has settled.
    Settling(Instant),
    /// Until the terminal has reported its size.
    Asked(Instant),
}

impl Resizing {
    fn until(self) -> Option<Instant> {
        match self {
            Resizing::No => None,
            Resizing::Settling(until) | Resizing::Asked(until) => Some(until),
        }
    }
}

/// Why the loop woke up.
enum Wake {
    Bytes(io::Result<usize>),
    Escape,
    Talk(Event),
    Frame,
    Moving,
    Resizing,
    Resized,
    Terminated,
}

impl Client {
    async fn run(mut self) -> io::Result<ExitCode> {
        let mut resized = signal(SignalKind::window_change())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hangup = signal(SignalKind::hangup())?;
        if self.options.level != ColorLevel::None {
            self.tty.write(ASK_BACKGROUND)?;
            if self.options.images == ImageProtocol::None {
                self.tty.write(ASK_ATTRIBUTES)?;
            }
        }
        self.commands().await?;
        self.draw()?;
        let mut buffer = [0; 4096];
        let mut drawn = Instant::now();
        let mut is_dirty = false;
        while !self.is_over {
            let escape = self.keys.is_waiting().then(|| Instant::now() + ESCAPE);
            let moving = self.app.is_moving().then(|| drawn + MOVING);
            let frame = is_dirty.then(|| drawn + FRAME);
            let wake = tokio::select! {
                biased;
                _ = terminate.recv() => Wake::Terminated,
                _ = hangup.recv() => Wake::Terminated,
                _ = resized.recv() => Wake::Resizing,
                () = at(self.resizing.until()) => Wake::Resized,
                read = self.tty.read(&mut buffer) => Wake::Bytes(read),
                () = at(frame) => Wake::Frame,
                event = self.talk.next() => Wake::Talk(event),
                () = at(escape) => Wake::Escape,
                () = at(moving) => Wake::Moving,
            };
            match wake {
                // The terminal is gone, or somebody wants us to go.
                Wake::Terminated | Wake::Bytes(Ok(0) | Err(_)) => break,
                Wake::Bytes(Ok(count)) => {
                    for input in self.keys.push(&buffer[..count]) {
                        self.input(input)?;
                    }
                }
                Wake::Escape => {
                    if let Some(input) = self.keys.flush() {
                        self.handle(Event::Input(input));
                    }
                }
                Wake::Resizing => self.resizing = Resizing::Settling(Instant::now() + SETTLED),
                Wake::Resized => self.settled()?,
                Wake::Frame => {}
                Wake::Moving => self.handle(Event::Tick),
                Wake::Talk(event) => {
                    self.handle(event);
                    is_dirty = true;
                    self.commands().await?;
                    if drawn.elapsed() < FRAME {
                        continue;
                    }
                }
            }
            self.commands().await?;
            // Otherwise drawn when the terminal has its new size.
            if self.is_settled() {
                self.draw()?;
                is_dirty = false;
            }
            drawn = Instant::now();
        }
        self.end().await
    }

    fn handle(&mut self, event: Event) {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.app.handle(event, now);
    }

    fn draw(&mut self) -> io::Result<()> {
        let lines = self.app.take_lines();
        let live = self.app.live();
        let frame = self.screen.frame(&lines, &live);
        if frame.is_empty() { Ok(()) } else { self.tty.write(&frame) }
    }

    /// Returns whether a frame can be drawn. A new size may be known before its signal arrives.
    fn is_settled(&mut self) -> bool {
        let size = self.tty.size();
        if self.resizing == Resizing::No && size != self.kernel_size {
            self.resizing = Resizing::Settling(Instant::now() + SETTLED);
        }
        self.kernel_size = size;
        self.resizing == Resizing::No
    }

    fn input(&mut self, input: Input) -> io::Result<()> {
        match (&input, self.resizing) {
            (Input::Position(rows, columns), Resizing::Asked(_)) => self.resize(*columns, *rows),
            _ => {
                self.handle(Event::Input(input));
                Ok(())
            }
        }
    }

    /// The size has settled, or the terminal has not reported it.
    fn settled(&mut self) -> io::Result<()> {
        if matches!(self.resizing, Resizing::Settling(_)) && self.reports_size {
            self.resizing = Resizing::Asked(Instant::now() + REPORTED);
            return self.tty.write(ASK_SIZE);
        }
        self.reports_size = false;
        let (columns, rows) = self.tty.size();
        self.resize(columns, rows)
    }

    fn resize(&mut self, columns: usize, rows: usize) -> io::Result<()> {
        self.resizing = Resizing::No;
        let bytes = self.screen.resize(columns, rows);
        self.tty.write(&bytes)?;
        self.handle(Event::Resize(columns, rows));
        Ok(())
    }

    async fn commands(&mut self) -> io::Result<()> {
        loop {
            let commands = self.app.take_commands();
            if commands.is_empty() {
                return Ok(());
            }
            for command in commands {
                match command {
                    Command::Quit => self.is_over = true,
                    Command::SaveHistory(text) => save_history(&self.options, &text),
                    Command::Suspend => self.suspend()?,
                    Command::Clear => {
                        self.screen.leave();
                        self.tty.write("\u{1b}[H\u{1b}[2J")?;
                        self.draw()?;
                    }
                    Command::Bell(text) => self.bell(&text)?,
                    Command::Title(text) => {
                        let text = crate::clean::one_line(&text);
                        self.tty.write(&format!("\u{1b}]0;{text}\u{7}"))?;
                    }
                    Command::Edit(text) => self.edit(&text).await?,
                    Command::Login(args, env) => self.log_in(args, env).await?,
                    command => self.talk.run(command),
                }
            }
        }
    }

    /// The bell, and a notification for terminals that have them.
    fn bell(&mut self, text: &str) -> io::Result<()> {
        let text = crate::clean::one_line(text);
        let text: String = text.chars().take(120).collect();
        self.tty.write(&format!("\u{1b}]9;{text}\u{7}\u{7}"))
    }

    /// Gives the terminal back, runs something on it, and takes it again.
    fn release(&mut self) -> io::Result<()> {
        let bytes = self.screen.leave();
        self.tty.write(&bytes)?;
        self.tty.restore()
    }

    fn take_back(&mut self) -> io::Result<()> {
        self.tty.enter()?;
        let (columns, rows) = self.tty.size();
        self.screen = Screen::new(self.options.level, columns, rows);
        self.handle(Event::Resize(columns, rows));
        self.draw()
    }

    fn suspend(&mut self) -> io::Result<()> {
        self.release()?;
        let stop = rustix::process::Signal::TSTP;
        if let Err(err) = rustix::process::kill_current_process_group(stop) {
            tracing::debug!(%err, "cannot suspend");
        }
        self.take_back()
    }

    async fn edit(&mut self, text: &str) -> io::Result<()> {
        let Some(editor) = self.options.editor.clone() else {
            self.handle(Event::Notice("Set EDITOR to the command of your editor.".to_owned()));
            return Ok(());
        };
        let file = self.options.temporary.join(format!("prompt-{}.md", std::process::id()));
        std::fs::write(&file, text)?;
        self.release()?;
        // The variable may hold arguments, which a shell splits.
        let spec = Spec::new("sh", &self.options.talk.cwd).args([
            "-c".into(),
            format!("{editor} \"$1\"").into(),
            "sh".into(),
            file.clone().into_os_string(),
        ]);
        let ended = process::run_on_terminal(&spec).await;
        self.take_back()?;
        let written = std::fs::read_to_string(&file);
        std::fs::remove_file(&file).ok();
        match (ended, written) {
            (Ok(status), Ok(text)) if status.success() => self.handle(Event::Edited(text)),
            (Ok(_), _) => {
                self.handle(Event::Notice("The editor failed; the input is unchanged.".to_owned()))
            }
            (Err(err), _) => self.handle(Event::Notice(format!("Cannot start the editor: {err}"))),
        }
        Ok(())
    }

    /// Runs the agent's own log-in on the terminal, then opens a session.
    async fn log_in(&mut self, args: Vec<String>, env: Vec<(String, String)>) -> io::Result<()> {
        let spec = match login_spec(&self.options.talk, args, env) {
            Ok(spec) => spec,
            Err(text) => {
                self.handle(Event::Notice(text));
                return Ok(());
            }
        };
        self.release()?;
        let ended = process::run_on_terminal(&spec).await;
        self.take_back()?;
        match ended {
            Ok(status) if status.success() => {
                self.talk.run(Command::Open(crate::app::OpenHow::New));
            }
            Ok(status) => self.handle(Event::Notice(format!("Logging in failed ({status})."))),
            Err(err) => self.handle(Event::Notice(format!("Cannot log in: {err}"))),
        }
        Ok(())
    }

    async fn end(mut self) -> io::Result<ExitCode> {
        if let Some(history) = self.app.history_with_draft() {
            save_history(&self.options, &history);
        }
        let bytes = self.screen.leave();
        // The terminal may be gone.
        let written = self.tty.write(&bytes).and_then(|()| self.tty.restore());
        drop(self.tty);
        self.talk.end().await;
        written.map(|()| ExitCode::SUCCESS)
    }
}

/// Stores the past prompts. They may hold what nobody else should read.
pub(crate) fn save_history(options: &ChatOptions, text: &str) {
    let Some(file) = &options.history else { return };
    let write = || {
        file.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options.open(file)?.write_all(text.as_bytes())
    };
    let saved = write();
    if let Err(err) = saved {
        tracing::warn!(%err, file = %file.display(), "cannot store past prompts");
    }
}

/// Returns the agent's own program, as a method to log in starts it: with more arguments and variables.
///
/// # Errors
/// Says why it cannot be started here.
pub(crate) fn login_spec(
    options: &TalkOptions,
    args: Vec<String>,
    env: Vec<(String, String)>,
) -> Result<Spec, String> {
    let AgentAddress::Program(words) = &options.agent else {
        return Err("Log in on the server: this method runs the agent's own program.".to_owned());
    };
    let Some((program, own_args)) = words.split_first() else {
        return Err("No agent to start.".to_owned());
    };
    let spec = Spec::new(program, &options.cwd).args(own_args).args(args);
    Ok(env.into_iter().fold(spec, |spec, (name, value)| spec.env(name, value)))
}

pub(crate) async fn at(time: Option<Instant>) {
    match time {
        Some(time) => pin!(sleep_until(time)).await,
        None => std::future::pending().await,
    }
}
