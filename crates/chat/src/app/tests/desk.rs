//! A person's desk: the client with a terminal emulator.

use expect_test::Expect;
use serde_json::{Value, json};
use wire::acp::schema;

use crate::app::{Agent, App, AppOptions, Command, Event, Opened};
use crate::color::ColorLevel;
use crate::keys::{Input, Key, KeyCode};
use crate::screen::Screen;

pub(super) struct Desk {
    pub(super) app: App,
    screen: Screen,
    terminal: vt100::Parser,
    now: u64,
    is_linear: bool,
    /// The agent is on a server.
    pub(super) is_remote: bool,
    /// Everything that was written.
    pub(super) raw: String,
}

impl Desk {
    /// A client without a connection.
    pub(super) fn closed(columns: u16, rows: u16) -> Desk {
        Desk::with(columns, rows, false)
    }

    fn with(columns: u16, rows: u16, is_linear: bool) -> Desk {
        let app = App::new(AppOptions {
            columns: columns.into(),
            rows: rows.into(),
            cwd: "/project".into(),
            branch: Some("main".to_owned()),
            history: String::new(),
            session: None,
            is_linear,
            has_vi_keys: false,
            images: crate::image::ImageProtocol::None,
            key_map: crate::keymap::KeyMap::default(),
            notices: Vec::new(),
        });
        let screen = Screen::new(ColorLevel::Ansi16, columns.into(), rows.into());
        Desk {
            app,
            screen,
            terminal: vt100::Parser::new(rows, columns, 10_000),
            now: 0,
            is_linear,
            is_remote: false,
            raw: String::new(),
        }
    }

    /// A client with an open session.
    pub(super) fn open(columns: u16, rows: u16) -> Desk {
        let mut desk = Desk::closed(columns, rows);
        desk.connect("s1", false);
        desk.commands();
        desk
    }

    /// A client without a cursor, with an open session.
    pub(super) fn linear() -> Desk {
        let mut desk = Desk::with(60, 24, true);
        desk.connect("s1", false);
        desk.commands();
        desk
    }

    pub(super) fn connect(&mut self, session: &str, is_old: bool) {
        let agent = Agent {
            name: "Agent".to_owned(),
            version: "1.0".to_owned(),
            capabilities: serde_json::from_value(
                json!({ "loadSession": true, "sessionCapabilities": { "list": {} } }),
            )
            .unwrap(),
            auth_methods: serde_json::from_value(json!([{ "id": "key", "name": "API key" }]))
                .unwrap(),
            can_steer: true,
            is_remote: self.is_remote,
        };
        self.event(Event::Connected(Box::new(agent)));
        let modes = json!({ "currentModeId": "build", "availableModes": [{ "id": "build", "name": "Build" }, { "id": "plan", "name": "Plan" }] });
        let opened = Opened {
            id: schema::SessionId::new(session.to_owned()),
            modes: serde_json::from_value(modes).unwrap(),
            options: Vec::new(),
            is_old,
        };
        self.event(Event::Opened(Box::new(opened)));
    }

    pub(super) fn event(&mut self, event: Event) {
        self.app.handle(event, self.now);
        self.draw();
    }

    fn draw(&mut self) {
        if self.is_linear {
            return;
        }
        let lines = self.app.take_lines();
        let live = self.app.live();
        let frame = self.screen.frame(&lines, &live);
        self.terminal.process(frame.as_bytes());
        self.raw.push_str(&frame);
    }

    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// Lets time pass without an event.
    pub(super) fn wait(&mut self, milliseconds: u64) {
        self.now += milliseconds;
    }

    pub(super) fn pass(&mut self, milliseconds: u64) {
        self.now += milliseconds;
        self.event(Event::Tick);
    }

    pub(super) fn key(&mut self, key: Key) {
        self.event(Event::Input(Input::Key(key)));
    }

    pub(super) fn press(&mut self, code: KeyCode) {
        self.key(Key::plain(code));
    }

    pub(super) fn type_text(&mut self, text: &str) {
        text.chars().for_each(|char| self.press(KeyCode::Char(char)));
    }

    /// Types a prompt and sends it.
    pub(super) fn send(&mut self, text: &str) {
        self.type_text(text);
        self.press(KeyCode::Enter);
        self.commands();
    }

    pub(super) fn update(&mut self, update: Value) {
        let notification = json!({ "sessionId": "s1", "update": update });
        self.event(Event::Update(serde_json::from_value(notification).unwrap()));
    }

    pub(super) fn commands(&mut self) -> Vec<Command> {
        self.app.take_commands()
    }

    pub(super) fn check_commands(&mut self, expected: &[&str]) {
        let commands: Vec<String> =
            self.commands().iter().map(|command| format!("{command:?}")).collect();
        let commands: Vec<&String> = commands
            .iter()
            .filter(|command| !command.starts_with("Bell") || expected.contains(&command.as_str()))
            .collect();
        assert_eq!(commands, expected);
    }

    /// Returns the scrollback and the screen.
    pub(super) fn all(&mut self) -> Vec<String> {
        let (rows, columns) = self.terminal.screen().size();
        self.terminal.screen_mut().set_scrollback(usize::MAX);
        let mut back = self.terminal.screen().scrollback();
        let mut lines: Vec<String> = Vec::new();
        while back > 0 {
            self.terminal.screen_mut().set_scrollback(back);
            let count = back.min(rows.into());
            lines.extend(self.terminal.screen().rows(0, columns).take(count));
            back -= count;
        }
        self.terminal.screen_mut().set_scrollback(0);
        lines.extend(self.terminal.screen().rows(0, columns));
        let mut lines: Vec<String> = lines.iter().map(|line| line.trim_end().to_owned()).collect();
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        lines
    }

    pub(super) fn check(&mut self, expected: &Expect) {
        expected.assert_eq(&(self.all().join("\n") + "\n"));
    }

    /// Returns the live area.
    pub(super) fn live_text(&mut self) -> String {
        let lines = self.app.live().lines;
        lines.iter().map(|line| line.text().trim_end().to_owned() + "\n").collect()
    }

    pub(super) fn check_live(&mut self, expected: &Expect) {
        expected.assert_eq(&self.live_text());
    }
}

pub(super) fn chunk(text: &str) -> Value {
    json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": text } })
}

pub(super) fn permission() -> Box<schema::RequestPermissionRequest> {
    let request = json!({ "sessionId": "s1",
        "toolCall": { "toolCallId": "c", "title": "make install > log", "kind": "execute", "rawInput": { "command": "make install > log" } },
        "options": [{ "optionId": "once", "name": "Allow once", "kind": "allow_once" },
            { "optionId": "always", "name": "Always allow `make` in this session", "kind": "allow_always" },
            { "optionId": "no", "name": "Reject", "kind": "reject_once" }] });
    serde_json::from_value(request).unwrap()
}
