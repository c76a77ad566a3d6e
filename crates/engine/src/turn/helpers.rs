//! Helpers: the agents that a turn can give a task to. Two that every session has, and those defined for it.
//!
//! `task` is the tool that starts one, `child` runs it in a mode made from the helper.

use std::sync::Arc;

use crate::ports::Helper;
use crate::words::{Agent, BUILT_IN_HELPERS, Mode, Restrictions, Role};

/// How many requests a helper may make if its definition does not say.
pub(crate) const MAX_REQUESTS: usize = 50;

/// Appended to the instructions of every helper.
const ROLE: &str = "\
You work on one task for another agent. It sees only your last message. Make decisions yourself where you can, and say \
what you decided; ask the user only what nobody else can decide. End with the result: what you found or changed and \
where, and what is left to do.";

const GENERAL: &str = "\
Do the whole task and nothing beyond it.";

const EXPLORE: &str = "\
You look something up and change nothing. Search broadly first, with several searches at once, then read what matters.
Give locations as `path:line`.";

/// Returns the helpers of a session with these agents. An agent with the name of a built-in helper replaces it.
pub(crate) fn all(agents: &[Arc<Agent>]) -> Vec<Helper> {
    let defined = agents.iter().filter(|agent| agent.role.is_helper());
    let defined = defined.map(|agent| Helper { agent: Arc::clone(agent), may_change: true });
    let mut helpers: Vec<Helper> = defined.collect();
    for own in [
        built_in(
            BUILT_IN_HELPERS[0],
            "Works on a task of several steps on its own, with the same tools and permissions as you",
            GENERAL,
            true,
        ),
        built_in(
            BUILT_IN_HELPERS[1],
            "Looks things up in the project and on the web; changes nothing",
            EXPLORE,
            false,
        ),
    ] {
        if helpers.iter().all(|helper| helper.agent.name != own.agent.name) {
            helpers.push(own);
        }
    }
    helpers
}

fn built_in(name: &str, description: &str, prompt: &str, may_change: bool) -> Helper {
    let agent = Agent {
        name: name.to_owned(),
        description: description.to_owned(),
        role: Role::Helper,
        prompt: Some(prompt.to_owned()),
        model: None,
        restrictions: Restrictions::default(),
        max_requests: None,
    };
    Helper { agent: Arc::new(agent), may_change }
}

/// Returns the mode that a helper works in, for a turn in the mode `parent`. It may never do more than that mode allows.
pub(crate) fn mode(helper: &Helper, parent: &Mode) -> Mode {
    let mut mode = Mode::of_helper(&helper.agent, helper.may_change && parent.may_change());
    mode.instructions = format!("{}\n\n{ROLE}", mode.instructions).into();
    mode
}

/// Returns how many requests a helper may make.
pub(crate) fn max_requests(helper: &Helper) -> usize {
    helper.agent.max_requests.unwrap_or(MAX_REQUESTS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::{MODES, ToolKind};

    #[test]
    fn helper_may_change_things_only_if_its_turn_may() {
        let helpers = all(&[]);
        let may_edit = |name: &str, above: &Mode| {
            let helper = helpers.iter().find(|helper| helper.agent.name == name).unwrap();
            mode(helper, above).permits(ToolKind::Edit, &[])
        };
        let [build, _, plan, ask] = &MODES;
        assert!(may_edit("general", build));
        assert!(!may_edit("general", plan));
        assert!(!may_edit("general", ask));
        assert!(!may_edit("explore", build));
    }

    #[test]
    fn defined_agent_replaces_the_built_in_one() {
        let described = Arc::new(Agent {
            description: "Mine".to_owned(),
            ..(*built_in("explore", "", "", true).agent).clone()
        });
        let mode = Arc::new(Agent { role: Role::Mode, ..(*described).clone() });
        let names = |agents: &[Arc<Agent>]| -> Vec<String> {
            all(agents).iter().map(|helper| helper.agent.description.clone()).collect()
        };
        assert_eq!(names(&[described])[0], "Mine");
        assert!(!names(&[mode]).contains(&"Mine".to_owned()));
    }
}
