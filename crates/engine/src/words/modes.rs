//! Modes. A mode restricts tools in the engine, not only by its prompt.

use std::borrow::Cow;
use std::sync::Arc;

use super::access::{Access, Decision};
use super::agents::{Agent, BUILT_IN_HELPERS, Restrictions};
use super::ids::ModeId;
use super::tool_call::ToolKind;

/// A mode.
#[derive(Debug, Clone, PartialEq)]
pub struct Mode {
    /// Its id.
    pub id: Cow<'static, str>,
    /// Its name for the user.
    pub name: Cow<'static, str>,
    /// What it is for.
    pub description: Cow<'static, str>,
    /// Other ids that clients use for it.
    aliases: &'static [&'static str],
    /// Whether it allows tools that change things.
    may_change: bool,
    /// Whether edits need no question where nothing else speaks against them.
    accepts_edits: bool,
    /// What it adds to the system prompt, which is the same in all modes.
    pub instructions: Cow<'static, str>,
    /// The agent that it was made from, which restricts it.
    pub agent: Option<Arc<Agent>>,
}

/// The built-in modes, the default first. A session may have more: `Settings::modes`.
pub static MODES: [Mode; 4] = [
    Mode {
        id: Cow::Borrowed("build"),
        name: Cow::Borrowed("Build"),
        description: Cow::Borrowed("Reads, edits and runs; asks before it changes anything"),
        aliases: &["development", "code"],
        may_change: true,
        accepts_edits: false,
        instructions: Cow::Borrowed(""),
        agent: None,
    },
    Mode {
        id: Cow::Borrowed("accept_edits"),
        name: Cow::Borrowed("Accept Edits"),
        description: Cow::Borrowed(
            "Edits files of the project without asking; asks before it runs anything",
        ),
        aliases: &["acceptEdits", "accept-edits", "auto_edit"],
        may_change: true,
        accepts_edits: true,
        instructions: Cow::Borrowed(""),
        agent: None,
    },
    Mode {
        id: Cow::Borrowed("plan"),
        name: Cow::Borrowed("Plan"),
        description: Cow::Borrowed("Reads and plans; changes nothing"),
        aliases: &["architect"],
        may_change: false,
        accepts_edits: false,
        instructions: Cow::Borrowed(PLAN),
        agent: None,
    },
    Mode {
        id: Cow::Borrowed("ask"),
        name: Cow::Borrowed("Ask"),
        description: Cow::Borrowed("Answers questions; changes nothing"),
        aliases: &["conversation"],
        may_change: false,
        accepts_edits: false,
        instructions: Cow::Borrowed(ASK),
        agent: None,
    },
];

const PLAN: &str = "\
You are in plan mode: you change nothing, and tools that would are refused.
- Read what is relevant until you know how the code works. Do not guess what you can look up.
- Answer with a plan: what to change, in which files, in which order, how to check it, and what could go wrong.
- Name the decisions that the user has to make, each with your recommendation.
- When the plan is complete, call `exit_plan` if you have it; otherwise say that `/mode build` carries it out.";

const ASK: &str = "\
You are in ask mode: you answer questions and change nothing. Tools that would are refused.
- Look things up before you answer, and say where you found them as `path:line`.
- Say what you know, what you conclude, and what you do not know. Be brief; give details when asked.";

impl Mode {
    /// Finds a built-in mode by its id or an alias.
    #[must_use]
    pub fn find(id: &str) -> Option<&'static Mode> {
        MODES.iter().find(|mode| mode.is(id))
    }

    /// Tells whether this is its id or an alias of it.
    #[must_use]
    pub fn is(&self, id: &str) -> bool {
        self.id == id || self.aliases.contains(&id)
    }

    /// Returns the built-in modes and those of agents that the user can choose. An agent with the name of a built-in mode
    /// restricts that mode.
    #[must_use]
    pub fn with(agents: &[Arc<Agent>]) -> Arc<[Mode]> {
        let mut modes = MODES.to_vec();
        for agent in agents.iter().filter(|agent| agent.role.is_mode()) {
            match modes.iter_mut().find(|mode| mode.is(&agent.name)) {
                Some(mode) => mode.describe(agent),
                None => {
                    let mut mode = MODES[0].clone();
                    mode.id = agent.name.clone().into();
                    mode.name = agent.name.clone().into();
                    mode.aliases = &[];
                    mode.describe(agent);
                    modes.push(mode);
                }
            }
        }
        modes.into()
    }

    /// Returns the mode of an agent that works on a task.
    pub(crate) fn of_helper(agent: &Arc<Agent>, may_change: bool) -> Mode {
        let mut mode = MODES[0].clone();
        mode.id = agent.name.clone().into();
        mode.aliases = &[];
        mode.may_change = may_change;
        mode.describe(agent);
        mode
    }

    /// Tells whether the mode allows changes.
    #[must_use]
    pub fn may_change(&self) -> bool {
        self.may_change
    }

    fn describe(&mut self, agent: &Arc<Agent>) {
        if !agent.description.is_empty() {
            self.description = agent.description.clone().into();
        }
        if let Some(prompt) = &agent.prompt {
            self.instructions = prompt.clone().into();
        }
        self.agent = Some(Arc::clone(agent));
    }

    /// Returns the restrictions of its agent.
    #[must_use]
    pub fn restrictions(&self) -> Option<&Restrictions> {
        self.agent.as_ref().map(|agent| &agent.restrictions)
    }

    /// Tells whether the agent of this mode has a tool.
    #[must_use]
    pub fn has_tool(&self, name: &str) -> bool {
        self.restrictions().is_none_or(|restrictions| restrictions.has_tool(name))
    }

    /// Tells whether an agent that works on a task is offered tools of this kind in the mode. A session offers the same tools in
    /// all its modes, so that a change of the mode does not invalidate the provider's cache.
    #[must_use]
    pub fn offers(&self, kind: ToolKind) -> bool {
        if kind == ToolKind::SwitchMode {
            return self.is("plan");
        }
        self.may_change || !kind.changes_things() || kind == ToolKind::Execute
    }

    /// Tells whether the mode allows a call of this kind.
    ///
    /// In a mode without changes, a command may still run if every part of it is known to be read-only. Rules cannot
    /// extend that.
    #[must_use]
    pub fn permits(&self, kind: ToolKind, access: &[Access]) -> bool {
        let looks_only = kind == ToolKind::Execute
            && !access.is_empty()
            && access.iter().all(|access| access.default == Decision::Allow);
        let is_offered = kind != ToolKind::SwitchMode || self.offers(kind);
        is_offered && (self.may_change || !kind.changes_things() || looks_only)
    }

    /// Tells whether tools of this kind edit files without a question, as far as no rule says otherwise.
    #[must_use]
    pub fn accepts(&self, kind: ToolKind) -> bool {
        let is_edit = matches!(kind, ToolKind::Edit | ToolKind::Delete | ToolKind::Move);
        self.accepts_edits && is_edit
    }

    /// Returns the mode's id.
    #[must_use]
    pub fn mode_id(&self) -> ModeId {
        ModeId::new(self.id.as_ref())
    }
}

/// Tells whether this is the name of a built-in mode or helper.
#[must_use]
pub fn is_built_in(name: &str) -> bool {
    Mode::find(name).is_some() || BUILT_IN_HELPERS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::{PermissionKey, Role};

    #[test]
    fn modes_are_found_by_id_and_alias() {
        assert_eq!(Mode::find("architect").map(|mode| &*mode.id), Some("plan"));
        assert_eq!(Mode::find("conversation").map(|mode| &*mode.id), Some("ask"));
        assert_eq!(Mode::find("nonsense"), None);
    }

    #[test]
    fn only_build_and_accept_edits_may_change_things() {
        let may_edit: Vec<&str> = MODES
            .iter()
            .filter(|mode| mode.permits(ToolKind::Edit, &[]))
            .map(|mode| &*mode.id)
            .collect();
        assert_eq!(may_edit, ["build", "accept_edits"]);
        assert!(MODES.iter().all(|mode| mode.permits(ToolKind::Read, &[])));
        let plan = Mode::find("plan").unwrap();
        let look = Access::allow(PermissionKey::RunCommand, "git status");
        assert!(plan.permits(ToolKind::Execute, std::slice::from_ref(&look)));
        assert!(
            !plan.permits(ToolKind::Execute, &[look, Access::ask(PermissionKey::Edit, "/w/a")])
        );
        assert!(!plan.permits(ToolKind::Execute, &[]));
        assert!(!plan.permits(ToolKind::Edit, &[Access::allow(PermissionKey::Edit, "/w/a")]));
    }

    #[test]
    fn agent_becomes_a_mode_or_restricts_one() {
        let agent = |name: &str, role| {
            Arc::new(Agent {
                name: name.to_owned(),
                description: String::new(),
                role,
                prompt: Some("Look closely.".to_owned()),
                model: None,
                restrictions: Restrictions {
                    tools: vec![("bash".to_owned(), false)],
                    rules: Vec::new(),
                },
                max_requests: None,
            })
        };
        let agents =
            [agent("review", Role::Mode), agent("plan", Role::Both), agent("search", Role::Helper)];
        let modes = Mode::with(&agents);
        let ids: Vec<&str> = modes.iter().map(|mode| &*mode.id).collect();
        assert_eq!(ids, ["build", "accept_edits", "plan", "ask", "review"]);
        assert!(modes[0].has_tool("bash"));
        assert!(!modes[2].has_tool("bash"));
        assert!(!modes[2].permits(ToolKind::Edit, &[]));
        assert_eq!(modes[2].description, MODES[2].description);
        assert!(modes[4].permits(ToolKind::Edit, &[]));
        assert!(!modes[4].accepts(ToolKind::Edit));
        assert_eq!(modes[4].instructions, "Look closely.");
        assert!(!modes[4].is("development"));
    }
}
