//! The question to the user: what it names, and what the answer "always" would store.

use super::policy::{AnswerScope, Asked, Judgement};
use crate::words::{
    Access, Answer, Block, Choice, Decision, PermissionKey, Question, ToolCall, ToolContent,
    code_span, describe, inert, one_line, visible,
};

/// What a command can get beyond the sandbox: the key, and its name in a question.
const EXTRA_PERMISSIONS: [(PermissionKey, &str); 3] = [
    (PermissionKey::Network, "the network"),
    (PermissionKey::Git, "changes of .git"),
    (PermissionKey::Unsandboxed, "no sandbox"),
];

/// An access as the user reads it: what it is, and which extra permissions come with it.
type Line = (String, String);

/// Describes keys with their subjects or patterns. A command and its extra permissions make one line.
fn lines(all: &[(&PermissionKey, &str)]) -> Vec<Line> {
    let mut lines = Vec::new();
    for (key, subject) in all {
        let has = |key: &PermissionKey| all.contains(&(key, subject));
        let is_extra = EXTRA_PERMISSIONS.iter().any(|(extra, _)| extra == *key);
        if is_extra && has(&PermissionKey::RunCommand) {
            continue;
        }
        let extra = EXTRA_PERMISSIONS
            .iter()
            .filter(|(extra, _)| **key == PermissionKey::RunCommand && has(extra));
        let extra: Vec<&str> = extra.map(|(_, name)| *name).collect();
        let line = (describe(key, subject), extra.join(" and "));
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

/// A longer rule does not fit on a button, so "always" is not offered.
const LONGEST_RULE: usize = 300;

impl AnswerScope {
    fn words(self) -> &'static str {
        match self {
            AnswerScope::Project => "in this project",
            AnswerScope::Session => "in this session",
        }
    }
}

/// Writes the question about a call that was judged. `scope` says where the answer "always" applies.
#[must_use]
pub fn about(mut call: ToolCall, judgement: &Judgement, scope: AnswerScope) -> Question {
    let asked: Vec<Access> = judgement.asked.iter().map(|asked| asked.access.clone()).collect();
    let is_shown =
        |access: &Access| access.is_shown || names(&call.title, &visible(&access.subject));
    let hidden = asked.iter().filter(|access| !is_shown(access));
    let hidden: Vec<(&PermissionKey, &str)> =
        hidden.map(|access| (&access.key, access.subject.as_str())).collect();
    if !hidden.is_empty() {
        let mut text = "Needs permission for:".to_owned();
        for (line, extra) in lines(&hidden) {
            text.push_str(&format!("\n- {line}"));
            if !extra.is_empty() {
                text.push_str(&format!(" with {extra}"));
            }
        }
        call.content.push(ToolContent::Block(Block::Text(text)));
    }
    let why = judgement.why.as_deref().map(one_line);
    let more = [notes(&asked), reasons(&judgement.asked), why];
    let more = more.into_iter().flatten().map(|text| ToolContent::Block(Block::Text(text)));
    call.content.extend(more);
    let choices = choices(judgement, &asked, scope);
    Question { call, choices }
}

/// Returns what the user can answer.
fn choices(judgement: &Judgement, asked: &[Access], scope: AnswerScope) -> Vec<Choice> {
    let choice = |answer, id: &'static str, name| Choice { answer, id: id.into(), name };
    let mut choices = vec![choice(Answer::AllowOnce, "once", "Allow once".to_owned())];
    // An answer that would not be followed is not offered.
    let is_fixed =
        judgement.why.is_some() || judgement.asked.iter().any(|asked| asked.floor.is_some());
    let always = always_words(asked).filter(|_| !is_fixed);
    let can_destroy = asked.iter().any(|access| access.can_destroy);
    if let Some([allowed, _]) = always.as_ref().filter(|_| !can_destroy) {
        if scope == AnswerScope::Project {
            let name = format!("Allow {allowed} in this session");
            choices.push(choice(Answer::AllowSession, "session", name));
        }
        let name = format!("Always allow {allowed} {}", scope.words());
        choices.push(choice(Answer::AllowAlways, "always", name));
    }
    if judgement.only_reads {
        let reading = describe(&PermissionKey::RunReadingCommand, "*");
        let name = format!("Always allow {reading} {}", scope.words());
        choices.push(choice(Answer::AllowReading, "reading", name));
    }
    choices.push(choice(Answer::RejectOnce, "reject", "Reject".to_owned()));
    if let Some([_, rejected]) = always {
        let name = format!("Always reject {rejected} {}", scope.words());
        choices.push(choice(Answer::RejectAlways, "never", name));
    }
    choices
}

/// Says which rules ask for what is otherwise allowed, and what is asked for in any case.
fn reasons(asked: &[Asked]) -> Option<String> {
    let mut lines: Vec<String> = Vec::new();
    for Asked { access, by, floor } in asked {
        let line = match (floor, by) {
            (Some(why), _) => one_line(why),
            (None, Some(rule)) if access.default == Decision::Allow => {
                format!("Asked because of the rule {}", code_span(&one_line(&rule.to_string())))
            }
            (None, _) => continue,
        };
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// How many notes a question shows.
const MAX_NOTES: usize = 10;

/// Joins the notes, each on a line of its own, without duplicates.
fn notes(asked: &[Access]) -> Option<String> {
    let mut lines: Vec<String> = Vec::new();
    for note in asked.iter().flat_map(|access| &access.notes) {
        let line = inert(&one_line(note));
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    let more = lines.len().saturating_sub(MAX_NOTES);
    lines.truncate(MAX_NOTES);
    if more > 0 {
        lines.push(format!("… and {more} more"));
    }
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// Tells whether a title names exactly this subject. `./etc/passwd` does not name `/etc/passwd`.
fn names(title: &str, subject: &str) -> bool {
    let ends = |character: char| character.is_whitespace() || "'\"`;|&()<>=,".contains(character);
    !subject.is_empty()
        && title.match_indices(subject).any(|(at, _)| {
            let before = title[..at].chars().next_back();
            let behind = title[at + subject.len()..].chars().next();
            before.is_none_or(ends) && behind.is_none_or(ends)
        })
}

/// Describes what "always allow" and "always reject" would store; `None` if the answer cannot be stored or is too long to
/// read. A rejected command is rejected with and without extra permissions.
#[must_use]
pub fn always_words(asked: &[Access]) -> Option<[String; 2]> {
    let stored = asked.iter().map(|access| Some((&access.key, access.always.as_deref()?)));
    let lines = lines(&stored.collect::<Option<Vec<_>>>()?);
    let rejected: Vec<&str> = lines.iter().map(|(line, _)| line.as_str()).collect();
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for (line, extra) in &lines {
        match groups.iter_mut().find(|group| group.0 == extra) {
            Some((_, group)) => group.push(line),
            None => groups.push((extra, vec![line])),
        }
    }
    let group_words = |(extra, group): &(&str, Vec<&str>)| match (*extra, group.join(" and ")) {
        ("", names) => names,
        (extra, names) if group.len() == 1 => format!("{names} with {extra}"),
        (extra, names) => format!("{names}, each with {extra},"),
    };
    let allowed = groups.iter().map(group_words).collect::<Vec<_>>().join(" and ");
    let is_readable = !allowed.is_empty() && allowed.len() <= LONGEST_RULE;
    is_readable.then(|| [allowed, rejected.join(" and ")])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::words::{ToolCallId, ToolKind, ToolStatus};

    fn question(title: &str, asked: &[Access]) -> Question {
        let call = ToolCall {
            id: ToolCallId::new("t"),
            name: "bash".to_owned(),
            title: title.to_owned(),
            kind: ToolKind::Execute,
            status: ToolStatus::Pending,
            content: Vec::new(),
            locations: Vec::new(),
            raw_input: json!({}),
        };
        about(call, &judged(asked), AnswerScope::Project)
    }

    fn judged(asked: &[Access]) -> Judgement {
        let asked =
            asked.iter().map(|access| Asked { access: access.clone(), by: None, floor: None });
        let asked = asked.collect();
        Judgement { decision: Decision::Ask, asked, refused: None, only_reads: false, why: None }
    }

    fn names(question: &Question) -> Vec<&str> {
        question.choices.iter().map(|choice| choice.name.as_str()).collect()
    }

    // R: T2
    #[test]
    fn question_names_the_rule_that_always_would_store() {
        let test = Access {
            always: Some("cargo test *".to_owned()),
            ..Access::ask(PermissionKey::RunCommand, "cargo test")
        };
        let asked = question("cargo test", &[test]);
        assert_eq!(
            names(&asked),
            [
                "Allow once",
                "Allow `cargo test *` in this session",
                "Always allow `cargo test *` in this project",
                "Reject",
                "Always reject `cargo test *` in this project"
            ]
        );
        assert_eq!(asked.answer("session"), Answer::AllowSession);
        assert!(asked.call.content.is_empty());
        assert_eq!(asked.answer("always"), Answer::AllowAlways);
        assert_eq!(asked.answer("root"), Answer::Cancelled);
    }

    // R: T2
    #[test]
    fn extra_permission_is_named_with_its_command() {
        let of = |key: PermissionKey, subject: &str, always: &str| Access {
            always: Some(always.to_owned()),
            ..Access::ask(key, subject)
        };
        let always = |asked: &[Access]| always_words(asked).unwrap()[0].clone();
        let (bash, git) = ("git commit -m x", "git commit *");
        let commit = [of(PermissionKey::RunCommand, bash, git), of(PermissionKey::Git, bash, git)];
        assert_eq!(always(&commit), "`git commit *` with changes of .git");
        assert_eq!(always_words(&commit).unwrap()[1], "`git commit *`");
        assert_eq!(always(&commit[1..]), "changes of .git: `git commit *`");
        let asked = question("git  commit  -m x", &commit);
        let text = "Needs permission for:\n- `git commit -m x` with changes of .git";
        assert_eq!(asked.call.content, [ToolContent::Block(Block::Text(text.to_owned()))]);
        assert!(question(bash, &commit).call.content.is_empty());
        let make = |key: PermissionKey| Access::ask(key, "make");
        let all = [
            make(PermissionKey::RunCommand),
            make(PermissionKey::Network),
            make(PermissionKey::Unsandboxed),
        ];
        assert_eq!(always(&all), "`make` with the network and no sandbox");
        let add = |key: PermissionKey| of(key, "git add .", "git add *");
        let edit = Access::ask(PermissionKey::Edit, "log");
        let [commit, to_git] = commit;
        let chain = [add(PermissionKey::RunCommand), commit, edit, add(PermissionKey::Git), to_git];
        assert_eq!(
            always(&chain),
            "`git add *` and `git commit *`, each with changes of .git, and edits of `log`"
        );
    }

    #[test]
    fn always_is_not_offered_for_what_cannot_be_stored() {
        let once = Access { always: None, ..Access::ask(PermissionKey::RunCommand, "x $(y)") };
        let asked = question("x $(y)", &[once, Access::ask(PermissionKey::RunCommand, "z")]);
        assert_eq!(names(&asked), ["Allow once", "Reject"]);
        assert_eq!(asked.answer("always"), Answer::Cancelled);
        let long = Access::ask(PermissionKey::RunCommand, "y".repeat(LONGEST_RULE));
        assert_eq!(names(&question("y", &[long])), ["Allow once", "Reject"]);
    }

    // R: T2
    #[test]
    fn what_can_destroy_is_allowed_once_only() {
        let remove = Access::ask(PermissionKey::RunCommand, "rm -rf /");
        let asked = question("rm -rf /", &[Access { can_destroy: true, ..remove }]);
        assert_eq!(
            names(&asked),
            ["Allow once", "Reject", "Always reject `rm -rf /` in this project"]
        );
        assert_eq!(asked.answer("always"), Answer::Cancelled);
    }

    // R: T2
    #[test]
    fn mcp_question_names_server_and_tool() {
        let key = PermissionKey::mcp("a_b_c_1f2e3d4c", "a", "b_c");
        let asked = question("a · b_c", &[Access::ask(key, "a_b_c_1f2e3d4c 0123456789abcdef")]);
        let text = "Needs permission for:\n- the tool `b_c` of the MCP server `a`";
        assert_eq!(asked.call.content, [ToolContent::Block(Block::Text(text.to_owned()))]);
        assert!(names(&asked).iter().all(|name| !name.contains("1f2e3d4c")), "{asked:?}");
    }

    #[test]
    fn subject_missing_from_the_title_is_listed() {
        let asked =
            question("cp a b\u{202e}", &[Access::ask(PermissionKey::Edit, "/etc/\u{202e}passwd")]);
        let text = "Needs permission for:\n- edits of `/etc/\\u{202e}passwd`";
        assert_eq!(asked.call.content, [ToolContent::Block(Block::Text(text.to_owned()))]);
    }

    #[test]
    fn notes_are_listed_once_and_capped() {
        let of = |key: PermissionKey, notes: &[&str]| Access {
            notes: notes.iter().map(|note| (*note).to_owned()).collect(),
            ..Access::ask(key, "cp a b")
        };
        let note = |asked: &[Access]| match question("cp a b", asked).call.content.pop() {
            Some(ToolContent::Block(Block::Text(text))) => text,
            other => panic!("{other:?}"),
        };
        let asked = [
            of(PermissionKey::RunCommand, &["`b` is /x\n\u{202e}"]),
            of(PermissionKey::Network, &["`b` is /x\n\u{202e}"]),
        ];
        assert_eq!(note(&asked), "`b` is /x\\n\\u{202e}");
        let many: Vec<String> = (0..12).map(|number| format!("`{number}` is /x")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let text = note(&[of(PermissionKey::RunCommand, &many)]);
        assert_eq!((text.lines().count(), text.lines().last()), (11, Some("… and 2 more")));
    }

    #[test]
    fn subject_that_only_looks_like_part_of_the_title_is_listed() {
        let passwd = [Access::ask(PermissionKey::ExternalDirectory, "/etc/passwd")];
        for title in
            ["cat ./etc/passwd", "cat a/etc/passwd", "cat /etc/passwd-", "cat /etc/passwd/x"]
        {
            assert_eq!(question(title, &passwd).call.content.len(), 1, "{title}");
        }
        for title in
            ["cat /etc/passwd", "cat '/etc/passwd'; ls", "cat</etc/passwd", "Read /etc/passwd"]
        {
            assert!(question(title, &passwd).call.content.is_empty(), "{title}");
        }
    }
}
