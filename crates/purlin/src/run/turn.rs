//! One turn of a run, from the prompt to its answer.

use std::path::Path;
use std::pin::pin;

use client::host::{allow_once, reject};
use client::{Caller, Connection, PermissionQuestion};
use engine::commands;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};
use wire::acp::schema;

use super::ask::Asker;
use super::output::{Output, ReaderGone};
use super::render::Renderer;
use super::report::{Ended, Report, amount};
use super::rules::Rules;
use super::spinner::TICK;

/// A turn and everything it changes.
pub(super) struct Turn<'a> {
    pub(super) connection: &'a mut Connection,
    pub(super) caller: Caller,
    pub(super) session: schema::SessionId,
    pub(super) output: &'a mut Output,
    pub(super) report: &'a mut Report,
    pub(super) renderer: Renderer,
    pub(super) rules: &'a Rules,
    pub(super) cwd: &'a Path,
    pub(super) max_cost: Option<f64>,
    pub(super) is_own: bool,
    /// The answer is followed by something else, so its next part is a paragraph of its own.
    pub(super) needs_gap: bool,
    /// Why the turn was stopped here.
    pub(super) stopped: Option<Stopped>,
}

/// Why a turn was stopped by its client.
pub(super) enum Stopped {
    Interrupted,
    Limit(String),
}

/// Why the turn woke up.
pub(super) enum Wake {
    Interrupt,
    Update(Option<client::Update>),
    Question(Box<PermissionQuestion>),
    Answer(Option<String>),
    Withdrawn,
    Tick,
    Reply(Result<schema::PromptResponse, client::Error>),
}

impl Turn<'_> {
    /// Sends the prompt and shows what comes until it is answered.
    pub(super) async fn run(
        mut self,
        blocks: Vec<schema::ContentBlock>,
        prompt: &str,
        mut asked: mpsc::Receiver<PermissionQuestion>,
    ) -> anyhow::Result<Ended> {
        let request = schema::PromptRequest::new(self.session.clone(), blocks);
        let caller = self.caller.clone();
        let mut reply = pin!(caller.prompt(request));
        let mut interrupt = pin!(tokio::signal::ctrl_c());
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let has_spinner = self.output.has_spinner();
        let mut asker = Asker::default();
        let mut is_listening = true;
        loop {
            let is_free = !asker.is_busy();
            let wake = tokio::select! {
                // Updates before questions and the reply, so that they are shown in order.
                biased;
                _ = &mut interrupt => Wake::Interrupt,
                update = self.connection.next_update(), if is_listening => Wake::Update(update),
                Some(question) = asked.recv(), if is_free => Wake::Question(Box::new(question)),
                event = asker.next(), if !is_free => event,
                reply = &mut reply => Wake::Reply(reply),
                _ = ticks.tick(), if has_spinner && is_free => Wake::Tick,
            };
            let shown = match wake {
                Wake::Interrupt if matches!(self.stopped, Some(Stopped::Interrupted)) => {
                    return Ok(Ended::Interrupted);
                }
                Wake::Interrupt => {
                    interrupt.set(tokio::signal::ctrl_c());
                    self.output.aside("Cancelling. Press Ctrl-C again to kill the agent.");
                    self.stop(&mut asker, Stopped::Interrupted).await?;
                    Ok(())
                }
                Wake::Update(Some(update)) => self.take_update(&update, &mut asker).await?,
                Wake::Update(None) => {
                    is_listening = false;
                    Ok(())
                }
                Wake::Question(question) => {
                    self.question(*question, &mut asker);
                    Ok(())
                }
                Wake::Answer(line) => {
                    if let Some(call) = asker.answer(line, self.output) {
                        self.report.add_rejected(&self.renderer.call_with(call));
                    }
                    Ok(())
                }
                Wake::Withdrawn => {
                    asker.withdraw();
                    self.output.aside("The agent withdrew the question.");
                    Ok(())
                }
                Wake::Tick => {
                    self.output.tick(self.renderer.activity());
                    Ok(())
                }
                Wake::Reply(reply) => return self.finish(prompt, reply),
            };
            if let Err(ReaderGone) = shown {
                return Ok(Ended::ReaderGone);
            }
        }
    }

    /// Shows an update, and stops the turn if it reports that a limit is reached.
    async fn take_update(
        &mut self,
        update: &client::Update,
        asker: &mut Asker,
    ) -> anyhow::Result<Result<(), ReaderGone>> {
        let shown = self.show(update);
        asker.remind(self.output);
        if let Some(why) = self.limit_reached(update) {
            self.output.message(&format!("purlin: {why}"));
            self.stop(asker, Stopped::Limit(why)).await?;
        }
        Ok(shown)
    }

    /// Asks the agent to end the turn. Open questions are answered as cancelled, as the protocol requires.
    async fn stop(&mut self, asker: &mut Asker, why: Stopped) -> anyhow::Result<()> {
        asker.withdraw();
        self.output.set_mid_line(false);
        self.stopped = Some(why);
        Ok(self.caller.cancel(&self.session).await?)
    }

    /// Answers a question by the rules, or asks the user.
    fn question(&mut self, question: PermissionQuestion, asker: &mut Asker) {
        if self.stopped.is_some() {
            return drop(question);
        }
        let call = self.renderer.call_with(question.request.tool_call.clone());
        // Our own agent knows the rules itself.
        let judged = match self.is_own {
            true => self.rules.allows_all().then_some(true),
            false => self.rules.judge(&call, self.cwd),
        };
        let outcome = match judged {
            Some(true) => allow_once(&question.request),
            Some(false) => {
                self.report.add_rejected(&call);
                self.output.aside(&format!("Rejected by --deny: {}", call.title));
                reject(&question.request)
            }
            None => {
                self.renderer.has_shown_diffs(&call);
                if asker.ask(question, &call, self.is_own, self.output) {
                    self.report.add_rejected(&call);
                }
                return;
            }
        };
        // Fails only if the agent withdrew the question meanwhile.
        question.answer.send(outcome).ok();
    }

    /// Shows what came before the reply and returns how the turn ended.
    fn finish(
        mut self,
        prompt: &str,
        reply: Result<schema::PromptResponse, client::Error>,
    ) -> anyhow::Result<Ended> {
        while let Some(update) = self.connection.ready_update() {
            if let Err(ReaderGone) = self.show(&update) {
                return Ok(Ended::ReaderGone);
            }
        }
        let reply = reply?;
        self.report.set_usage(reply.usage);
        // We know only of our own agent how it refuses a command.
        let is_command = self.is_own && prompt.starts_with('/');
        Ok(match self.stopped {
            Some(Stopped::Interrupted) => Ended::Interrupted,
            Some(Stopped::Limit(why)) => Ended::Limit(why),
            None if is_command && commands::is_refusal(prompt, self.report.text()) => {
                Ended::CommandRefused
            }
            None => Ended::Stopped(reply.stop_reason),
        })
    }

    /// Shows an update. Unknown updates are skipped: a newer agent may send some.
    fn show(&mut self, update: &client::Update) -> Result<(), ReaderGone> {
        self.output.raw_update(update)?;
        let mut update = match update.read() {
            Ok(notification) => notification.update,
            Err(err) => {
                tracing::debug!(%err, "an update is not shown");
                return Ok(());
            }
        };
        match &mut update {
            schema::SessionUpdate::AgentMessageChunk(chunk) => {
                if let schema::ContentBlock::Text(text) = &mut chunk.content {
                    if std::mem::take(&mut self.needs_gap) {
                        text.text.insert_str(0, gap_after(self.report.text()));
                    }
                    self.report.add_text(&text.text);
                }
            }
            schema::SessionUpdate::ToolCall(_) => self.needs_gap = !self.report.text().is_empty(),
            schema::SessionUpdate::UsageUpdate(usage) => {
                if let Some(cost) = usage.cost.clone() {
                    self.report.set_cost(cost);
                }
            }
            _ => {}
        }
        let items = self.renderer.render(update);
        for call in self.renderer.take_ended() {
            self.report.add_call(&call);
        }
        self.output.show(items)
    }

    /// Returns why the turn must stop, if an update says that it has cost too much, or that the cost is unknown.
    fn limit_reached(&self, update: &client::Update) -> Option<String> {
        let limit = self.max_cost.filter(|_| self.stopped.is_none())?;
        let schema::SessionUpdate::UsageUpdate(usage) = update.read().ok()?.update else {
            return None;
        };
        match usage.cost {
            Some(cost) if cost.amount >= limit => Some(format!(
                "stopped: the session has cost {} {}, and `--max-cost` is {limit}",
                amount(cost.amount),
                cost.currency
            )),
            Some(_) => None,
            None => Some(
                "stopped: the agent reports no cost for this model, so `--max-cost` cannot be kept. Run it without"
                    .to_owned(),
            ),
        }
    }
}

/// Returns what separates the next part of an answer from this one.
fn gap_after(text: &str) -> &'static str {
    match text {
        "" => "",
        text if text.ends_with("\n\n") => "",
        text if text.ends_with('\n') => "\n",
        _ => "\n\n",
    }
}
