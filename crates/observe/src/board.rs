//! The board: what a dashboard shows, added up from the records of all processes that run now. Reads no clock and does no IO.

mod histogram;
mod metrics;

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Value, json};

use self::histogram::Histogram;
use crate::derive::Deriver;
use crate::record::{Direction, MessageRecord, ProcessInfo, Record, SpanRecord};
use crate::row::{Row, read_row};
use crate::sessions::Sessions;

/// The history: an hour of seconds.
const HISTORY: usize = 3600;
/// How many of the last messages and spans are kept for the live sequence.
const MAX_ROWS: usize = 5000;
/// How many methods are counted by name; the others together.
const MAX_METHODS: usize = 60;
/// How many processes are shown; of those that have ended, the oldest are forgotten.
const MAX_PROCESSES: usize = 200;
/// How many sessions are sent to the page: those that were active last.
const MAX_SHOWN: usize = 200;
/// The flows that errors are counted by.
const FLOWS: [&str; 6] = ["connection", "session", "prompt", "tool", "model", "mcp"];
/// The latencies, with the words for them.
const LATENCIES: [&str; 4] = ["round_trip", "first_chunk", "tool", "permission"];

/// What one second had.
#[derive(Debug, Clone, Copy, Default)]
struct Second {
    time: u64,
    received: u32,
    sent: u32,
    errors: u32,
}

/// One process.
#[derive(Debug, Default)]
struct Process {
    info: ProcessInfo,
    sessions: Sessions,
    /// Makes spans from messages, if the process gives none.
    deriver: Option<Deriver>,
    /// When it ended: milliseconds since 1970.
    ended: Option<u64>,
    /// Who started it.
    parent: String,
    memory: u64,
    /// Seconds of CPU time so far, and the part of a core it uses now.
    cpu: f64,
    load: f64,
}

/// A row of the live sequence.
#[derive(Debug)]
struct LiveRow {
    number: u64,
    session: Option<String>,
    shown: Value,
}

/// What a dashboard shows.
#[derive(Debug)]
pub struct Board {
    processes: BTreeMap<u32, Process>,
    methods: BTreeMap<(bool, String), u64>,
    flows: [u64; FLOWS.len()],
    latencies: [Histogram; LATENCIES.len()],
    tokens: (u64, u64),
    cost: f64,
    lost: u64,
    history: VecDeque<Second>,
    rows: VecDeque<LiveRow>,
    next_row: u64,
}

impl Default for Board {
    fn default() -> Board {
        Board {
            processes: BTreeMap::new(),
            methods: BTreeMap::new(),
            flows: [0; FLOWS.len()],
            latencies: std::array::from_fn(|_| Histogram::default()),
            tokens: (0, 0),
            cost: 0.0,
            lost: 0,
            history: VecDeque::new(),
            rows: VecDeque::new(),
            next_row: 1,
        }
    }
}

impl Board {
    /// Takes a record of a process.
    pub fn take(&mut self, pid: u32, record: &Record) {
        match record {
            Record::Process { process, sessions, .. } => {
                let known = self.processes.entry(pid).or_default();
                known.info = (**process).clone();
                known.sessions = Sessions::from_states(sessions.clone());
                // Agents behind a tap have no version that we know, and no spans.
                known.deriver = process.version.is_empty().then(Deriver::live);
                known.ended = None;
                self.forget_old();
                return;
            }
            Record::Message(message) => self.message(message),
            Record::Span(span) => self.span(span),
            Record::Lost { lost, .. } => self.lost += lost,
            Record::Dialect { .. } => {}
        }
        if let Some(process) = self.processes.get_mut(&pid) {
            process.sessions.apply(record);
        }
        if let Record::Message(message) = record {
            self.derive(pid, message);
        }
    }

    /// Takes the spans that a message of an agent without spans begins and ends, and what it reports about its session.
    fn derive(&mut self, pid: u32, message: &MessageRecord) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let Some(deriver) = &mut process.deriver else { return };
        let ended = deriver.take(&read_row(message));
        let spans: Vec<SpanRecord> = deriver.take_begun().into_iter().chain(ended).collect();
        process.sessions.report(message);
        for span in &spans {
            process.sessions.apply(&Record::Span(Box::new(span.clone())));
        }
        // Its calls are messages, which are counted and shown already.
        let is_seen = |span: &&SpanRecord| matches!(span.kind.as_str(), "turn" | "tool");
        spans.iter().filter(is_seen).for_each(|span| self.span(span));
    }

    /// Notes that a process has ended.
    pub fn ended(&mut self, pid: u32, now: u64) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.ended = Some(now);
            process.load = 0.0;
        }
    }

    /// Returns the processes that have not ended.
    #[must_use]
    pub fn running(&self) -> Vec<u32> {
        self.processes.iter().filter(|(_, one)| one.ended.is_none()).map(|(pid, _)| *pid).collect()
    }

    /// Notes what a process uses: bytes of memory, and seconds of CPU time since its start. `seconds` have passed since the
    /// last time.
    pub fn measured(&mut self, pid: u32, parent: &str, memory: u64, cpu: f64, seconds: f64) {
        if let Some(process) = self.processes.get_mut(&pid) {
            if process.cpu > 0.0 && seconds > 0.0 {
                process.load = ((cpu - process.cpu) / seconds).max(0.0);
            }
            (process.memory, process.cpu) = (memory, cpu);
            parent.clone_into(&mut process.parent);
        }
    }

    /// Begins another second, so that silence is seen.
    pub fn tick(&mut self, now: u64) {
        self.second(now);
    }

    fn forget_old(&mut self) {
        while self.processes.len() > MAX_PROCESSES {
            let ended = self.processes.iter().filter_map(|(pid, one)| Some((one.ended?, *pid)));
            let Some((_, pid)) = ended.min() else { return };
            self.processes.remove(&pid);
        }
    }

    fn second(&mut self, time: u64) -> &mut Second {
        let time = time / 1000;
        let first = Second { time, ..Second::default() };
        if self.history.is_empty() {
            self.history.push_back(first);
        }
        let last = self.history.back().map_or(time, |second| second.time);
        // After a pause of the machine only the last hour matters.
        for time in (last + 1).max((time + 1).saturating_sub(HISTORY as u64))..=time {
            self.history.push_back(Second { time, ..Second::default() });
        }
        while self.history.len() > HISTORY {
            self.history.pop_front();
        }
        // A record that comes late belongs to its own second, if that is still there.
        let at = self.history.iter().rposition(|second| second.time <= time).unwrap_or(0);
        &mut self.history[at]
    }

    fn message(&mut self, message: &MessageRecord) {
        let row = read_row(message);
        let is_out = message.direction == Direction::Out;
        let second = self.second(message.time);
        let lines = u32::try_from(message.count).unwrap_or(u32::MAX);
        match is_out {
            true => second.sent += lines,
            false => second.received += lines,
        }
        // The call of a reply may have come before anybody looked.
        let nameless = if row.is_reply { "reply" } else { "invalid" };
        let method = message.method.as_deref().unwrap_or(nameless);
        let kind = row.update.as_deref().filter(|_| method == "session/update");
        let name: String =
            kind.map_or_else(|| method.to_owned(), |kind| format!("{method} {kind}"));
        let mut key = (is_out, name.chars().take(80).collect::<String>());
        if !self.methods.contains_key(&key) && self.methods.len() >= MAX_METHODS {
            key.1 = "other".to_owned();
        }
        *self.methods.entry(key).or_default() += message.count;
        if row.error.is_some() {
            self.error(flow_of(method), message.time);
        }
        if let Some(took) = row.duration_ms.filter(|_| method != "session/prompt") {
            let asks = method == "session/request_permission";
            self.latencies[if asks { 3 } else { 0 }].add(took);
        }
        self.row(message.session.clone(), message_shown(&row, message.count));
    }

    fn span(&mut self, span: &SpanRecord) {
        let Some(took) = span.duration_ms else {
            return;
        };
        let end = crate::record::millis(span.time + took);
        match span.kind.as_str() {
            "model" => {
                if let Some(first) = span.first_byte_ms {
                    self.latencies[1].add(first);
                }
                self.tokens.0 += span.tokens_in + span.cache_read + span.cache_write;
                self.tokens.1 += span.tokens_out;
                self.cost += span.cost.unwrap_or_default();
            }
            "tool" => self.latencies[2].add(took),
            // Only derived ones have it: their requests are not seen.
            "turn" => span.first_byte_ms.into_iter().for_each(|first| self.latencies[1].add(first)),
            _ => {}
        }
        if span.error.is_some() {
            // A turn that failed is an error on the wire, too, and counted there.
            match span.kind.as_str() {
                "tool" => self.error("tool", end),
                "model" => self.error("model", end),
                "mcp" => self.error("mcp", end),
                _ => {}
            }
        }
        if !matches!(span.kind.as_str(), "sync" | "run") {
            let shown = json!({ "time": span.time, "span": span.kind, "text": span.name, "took": took, "error": span.error });
            self.row(span.session.clone(), shown);
        }
    }

    fn error(&mut self, flow: &str, time: u64) {
        if let Some(at) = FLOWS.iter().position(|known| *known == flow) {
            self.flows[at] += 1;
        }
        self.second(time).errors += 1;
    }

    fn row(&mut self, session: Option<String>, shown: Value) {
        if self.rows.len() == MAX_ROWS {
            self.rows.pop_front();
        }
        self.rows.push_back(LiveRow { number: self.next_row, session, shown });
        self.next_row += 1;
    }

    /// Returns the rows of a session's live sequence after a number, and the number of the last.
    #[must_use]
    pub fn rows(&self, session: &str, after: u64) -> Value {
        let of = |row: &&LiveRow| row.number > after && row.session.as_deref() == Some(session);
        let rows: Vec<&Value> = self.rows.iter().filter(of).map(|row| &row.shown).collect();
        json!({ "last": self.next_row - 1, "rows": rows })
    }

    /// Returns everything that the page shows.
    #[must_use]
    pub fn state(&self, now: u64) -> Value {
        let processes: Vec<Value> = self.processes.iter().map(|(pid, one)| json!({
            "pid": pid, "program": one.info.program, "version": one.info.version, "cwd": one.info.cwd, "started": one.info.started,
            "ended": one.ended, "parent": one.parent, "memory": one.memory, "load": one.load, "sessions": one.sessions.states().count(),
        })).collect();
        let mut sessions: Vec<(&crate::sessions::SessionState, u32, &Process)> = self
            .processes
            .iter()
            .flat_map(|(pid, one)| one.sessions.states().map(move |state| (state, *pid, one)))
            .collect();
        let total = sessions.len();
        let running = sessions
            .iter()
            .filter(|(state, _, one)| state.turn_since.is_some() && one.ended.is_none())
            .count();
        sessions.sort_by(|a, b| b.0.active.total_cmp(&a.0.active));
        let sessions: Vec<Value> = sessions
            .iter()
            .take(MAX_SHOWN)
            .map(|(state, pid, process)| {
                let mut shown = serde_json::to_value(state).unwrap_or_default();
                shown["pid"] = json!(pid);
                shown["gone"] = json!(process.ended.is_some());
                shown["memory"] = json!(process.memory);
                shown
            })
            .collect();
        let methods: Vec<Value> = self
            .methods
            .iter()
            .map(|((is_out, name), count)| json!([is_out, name, count]))
            .collect();
        let errors: Vec<Value> =
            FLOWS.iter().zip(self.flows).map(|(flow, count)| json!([flow, count])).collect();
        let latencies: Vec<Value> = LATENCIES
            .iter()
            .zip(&self.latencies)
            .map(|(name, histogram)| histogram.shown(name))
            .collect();
        json!({
            "now": now, "processes": processes, "sessions": sessions, "session_count": total, "running": running,
            "methods": methods, "errors": errors, "latencies": latencies,
            "tokens_in": self.tokens.0, "tokens_out": self.tokens.1, "cost": self.cost, "lost": self.lost,
            "minute": self.minute(now), "hour": self.hour(now),
        })
    }

    /// Returns the last minute, second by second: received, sent, errors.
    fn minute(&self, now: u64) -> Vec<[u32; 3]> {
        let now = now / 1000;
        let mut minute = vec![[0; 3]; 60];
        for second in self.history.iter().rev().take(62) {
            let ago = now.saturating_sub(second.time);
            // The second that has just begun is not over.
            if let Some(at) = 60_u64.checked_sub(ago).filter(|at| *at < 60) {
                minute[usize::try_from(at).unwrap_or(0)] =
                    [second.received, second.sent, second.errors];
            }
        }
        minute
    }

    /// Returns the last hour in steps of ten seconds: messages per second received and sent, errors.
    fn hour(&self, now: u64) -> Vec<[f64; 3]> {
        let now = now / 10_000;
        let mut hour = vec![[0.0; 3]; 360];
        for second in &self.history {
            let ago = now.saturating_sub(second.time / 10);
            let Some(at) = 359_u64.checked_sub(ago) else { continue };
            let step = &mut hour[usize::try_from(at).unwrap_or(0)];
            step[0] += f64::from(second.received) / 10.0;
            step[1] += f64::from(second.sent) / 10.0;
            step[2] += f64::from(second.errors);
        }
        hour
    }

    /// Returns the numbers in Prometheus' format.
    #[must_use]
    pub fn metrics(&self) -> String {
        metrics::prometheus(self)
    }

    /// Returns the numbers as OTLP, for a collector's `/v1/metrics`. Times are in milliseconds since 1970.
    #[must_use]
    pub fn otlp_metrics(&self, version: &str, started: u64, now: u64) -> Value {
        metrics::otlp(self, version, started, now)
    }
}

fn flow_of(method: &str) -> &'static str {
    match method {
        "session/prompt" => "prompt",
        method if method.starts_with("session/") => "session",
        _ => "connection",
    }
}

fn message_shown(row: &Row, count: u64) -> Value {
    json!({
        "time": row.time, "out": row.direction == Direction::Out, "text": row.summary, "reply": row.is_reply,
        "took": row.duration_ms, "error": row.error, "id": row.id, "bytes": row.bytes, "kind": row.update, "count": count,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::Recorder;

    fn message(board: &mut Board, time: u64, direction: Direction, line: &str) {
        for record in Recorder::default().take(time, direction, line.as_bytes()) {
            board.take(1, &record);
        }
    }

    fn hello(board: &mut Board) {
        let process =
            ProcessInfo { pid: 1, program: "purlin".to_owned(), ..ProcessInfo::default() };
        let hello = Record::Process { time: 0, process: Box::new(process), sessions: Vec::new() };
        board.take(1, &hello);
    }

    // R: O3
    #[test]
    fn agent_without_spans_is_seen_by_its_messages() {
        let mut board = Board::default();
        let process = ProcessInfo { pid: 1, program: "other".to_owned(), ..ProcessInfo::default() };
        let hello = Record::Process { time: 0, process: Box::new(process), sessions: Vec::new() };
        board.take(1, &hello);
        let mut recorder = Recorder::default();
        let mut take = |board: &mut Board, time, direction, line: &str| {
            let records = recorder.take(time, direction, line.as_bytes());
            records.iter().for_each(|record| board.take(1, record));
        };
        let update = |update: &str| {
            format!(
                r#"{{"method":"session/update","params":{{"sessionId":"s","update":{update}}}}}"#
            )
        };
        let prompt = r#"{"id":1,"method":"session/prompt","params":{"sessionId":"s"}}"#;
        take(&mut board, 1000, Direction::In, prompt);
        let state = board.state(2000);
        assert_eq!(state["sessions"][0]["turn_since"], 1000.0, "{state}");
        for (time, text) in [
            (
                1005,
                r#"{"sessionUpdate":"tool_call","toolCallId":"t","title":"Edit","status":"pending"}"#,
            ),
            (1035, r#"{"sessionUpdate":"tool_call_update","toolCallId":"t","status":"completed"}"#),
            (
                1040,
                r#"{"sessionUpdate":"usage_update","used":50,"size":200,"cost":{"amount":0.5,"currency":"USD"}}"#,
            ),
        ] {
            take(&mut board, time, Direction::Out, &update(text));
        }
        let reply = r#"{"id":1,"result":{"stopReason":"end_turn","usage":{"inputTokens":40,"outputTokens":7,"totalTokens":47}}}"#;
        take(&mut board, 1050, Direction::Out, reply);
        let state = board.state(2000);
        let session = &state["sessions"][0];
        assert_eq!((&session["turn_since"], &session["turns"]), (&Value::Null, &json!(1)));
        assert_eq!((&session["context"], &session["window"]), (&json!(50), &json!(200)));
        assert_eq!((&session["tokens_in"], &session["tokens_out"]), (&json!(40), &json!(7)));
        assert_eq!(session["cost"], 0.5);
        // Its first chunk came after 5 ms, and its tool took 30.
        let counts: Vec<&Value> =
            state["latencies"].as_array().unwrap().iter().map(|one| &one["count"]).collect();
        assert_eq!(counts, [&json!(0), &json!(1), &json!(1), &json!(0)]);
    }

    // R: O3
    #[test]
    fn rates_errors_and_latencies_are_added_up() {
        let mut board = Board::default();
        hello(&mut board);
        let update = r#"{"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk"}}}"#;
        for time in [60_000, 60_500, 61_000] {
            message(&mut board, time, Direction::Out, update);
        }
        message(&mut board, 61_200, Direction::In, r#"{"id":1,"method":"session/new"}"#);
        message(
            &mut board,
            61_300,
            Direction::Out,
            r#"{"id":1,"error":{"code":-1,"message":"no"}}"#,
        );
        let tool = SpanRecord {
            kind: "tool".to_owned(),
            session: Some("s".to_owned()),
            time: 61_000.0,
            duration_ms: Some(30.0),
            error: Some("not found".to_owned()),
            ..SpanRecord::default()
        };
        board.take(1, &Record::Span(Box::new(tool)));
        board.tick(62_000);
        let state = board.state(62_000);
        let minute = state["minute"].as_array().unwrap();
        assert_eq!((&minute[58], &minute[59]), (&json!([0, 2, 0]), &json!([1, 2, 2])));
        assert_eq!(state["hour"][359], json!([0.1, 0.4, 2.0]));
        assert!(state["methods"].as_array().unwrap().contains(&json!([
            true,
            "session/update agent_message_chunk",
            3
        ])));
        assert!(state["errors"].as_array().unwrap().contains(&json!(["tool", 1])));
        assert_eq!(state["latencies"][2]["count"], 1);
        assert_eq!(state["session_count"], 1);
        assert_eq!(board.rows("s", 0)["rows"].as_array().unwrap().len(), 4);
        let last = board.rows("s", 0)["last"].as_u64().unwrap();
        assert_eq!(board.rows("s", last)["rows"], json!([]));
    }

    // R: O3
    #[test]
    fn process_that_ended_stays_and_is_marked() {
        let mut board = Board::default();
        hello(&mut board);
        assert_eq!(board.running(), [1]);
        board.ended(1, 5);
        assert!(board.running().is_empty());
        assert_eq!(board.state(9)["processes"][0]["ended"], 5);
    }

    // R: O3
    #[test]
    fn memory_is_bounded() {
        let mut board = Board::default();
        hello(&mut board);
        for number in 0..MAX_ROWS + 10 {
            let line =
                format!("{{\"method\":\"m{number}\",\"params\":{{\"sessionId\":\"s{number}\"}}}}");
            message(&mut board, number as u64 * 1000, Direction::In, &line);
        }
        assert_eq!(board.rows.len(), MAX_ROWS);
        assert_eq!(board.history.len(), HISTORY);
        assert!(board.methods.len() <= MAX_METHODS + 1);
        assert_eq!(board.state(0)["sessions"].as_array().unwrap().len(), MAX_SHOWN);
    }
}
