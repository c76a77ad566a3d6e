//! Modes: ways of working. A mode restricts tools here, in the engine, not by words in a prompt.

use crate::permission::{Access, Decision};
use crate::words::{ModeId, ToolKind};

/// A way of working.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mode {
    /// Its id.
    pub id: &'static str,
    /// What people call it.
    pub name: &'static str,
    /// What it is for.
    pub description: &'static str,
    /// Other ids that clients know it by.
    aliases: &'static [&'static str],
    /// Whether tools that change things may be used.
    may_change: bool,
    /// What the model is told.
    pub instructions: &'static str,
}

/// Every mode, the default first.
pub const MODES: [Mode; 3] = [
    Mode {
        id: "build",
        name: "Build",
        description: "Reads, edits and runs; asks before it changes anything",
        aliases: &["development", "code"],
        may_change: true,
        instructions: "You are Purlin, a coding agent inside the user's editor. Do what is asked, with the tools you have.",
    },
    Mode {
        id: "plan",
        name: "Plan",
        description: "Reads and plans; changes nothing",
        aliases: &["architect"],
        may_change: false,
        instructions: "You are Purlin, a coding agent inside the user's editor. Look and plan; change nothing.",
    },
    Mode {
        id: "ask",
        name: "Ask",
        description: "Answers questions; changes nothing",
        aliases: &["conversation"],
        may_change: false,
        instructions: "You are Purlin, a coding agent inside the user's editor. Answer questions; change nothing.",
    },
];

impl Mode {
    /// Finds a mode by its id or an alias.
    #[must_use]
    pub fn find(id: &str) -> Option<&'static Mode> {
        MODES.iter().find(|mode| mode.id == id || mode.aliases.contains(&id))
    }

    /// Tells whether a model is told of tools of this kind in the mode.
    #[must_use]
    pub fn offers(&self, kind: ToolKind) -> bool {
        self.may_change || !kind.changes_things() || kind == ToolKind::Execute
    }

    /// Tells whether a tool of this kind may be used in the mode for what a call needs.
    ///
    /// A mode only narrows. Where nothing may change, a command still may look: one of which every part is known to
    /// read only, whatever rules allow beyond that.
    #[must_use]
    pub fn permits(&self, kind: ToolKind, access: &[Access]) -> bool {
        let looks_only = kind == ToolKind::Execute
            && !access.is_empty()
            && access.iter().all(|access| access.default == Decision::Allow);
        self.may_change || !kind.changes_things() || looks_only
    }

    /// Returns the mode's id.
    #[must_use]
    pub fn mode_id(&self) -> ModeId {
        ModeId::new(self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_found_by_id_and_alias() {
        assert_eq!(Mode::find("architect").map(|mode| mode.id), Some("plan"));
        assert_eq!(Mode::find("conversation").map(|mode| mode.id), Some("ask"));
        assert_eq!(Mode::find("nonsense"), None);
    }

    #[test]
    fn only_build_may_change_things() {
        let may_edit: Vec<&str> = MODES
            .iter()
            .filter(|mode| mode.permits(ToolKind::Edit, &[]))
            .map(|mode| mode.id)
            .collect();
        assert_eq!(may_edit, ["build"]);
        assert!(MODES.iter().all(|mode| mode.permits(ToolKind::Read, &[])));
        let plan = Mode::find("plan").unwrap();
        let look = Access::allow("bash", "git status");
        assert!(plan.permits(ToolKind::Execute, std::slice::from_ref(&look)));
        assert!(!plan.permits(ToolKind::Execute, &[look, Access::ask("edit", "/w/a")]));
        assert!(!plan.permits(ToolKind::Execute, &[]));
        assert!(!plan.permits(ToolKind::Edit, &[Access::allow("edit", "/w/a")]));
    }
}
