//! Properties of the parser: it accepts any text, and finds every command.

use std::path::PathBuf;

use proptest::prelude::*;
use shell::{Need, NeedKind, Verdict, needs};

use crate::commands::{place, plain};

fn needs_of(command: &str) -> Vec<Need> {
    let roots = [PathBuf::from("/w")];
    needs(command, &place(&roots, &[], &plain))
}

/// A word that expands to itself, quoted in some way.
fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{1,6}",
        "[a-z]{1,3}\\\\[;|&$]",
        "'[a-z;|&()$<> ]{0,8}'",
        "\"[a-z;|&()<> ]{0,8}\"",
    ]
}

fn simple() -> impl Strategy<Value = String> {
    ("zz[a-z]{1,5}", prop::collection::vec(word(), 0..4))
        .prop_map(|(name, words)| format!("{name} {}", words.join(" ")).trim_end().to_owned())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn arbitrary_text_has_a_need(text in any::<String>()) {
        prop_assert!(text.trim().is_empty() || !needs_of(&text).is_empty());
    }

    #[test]
    fn arbitrary_shell_syntax_has_a_need(text in "[a-z \\n\\t;|&()<>{}$`'\"\\\\#=!*?\\[\\]~-]{0,60}") {
        prop_assert!(text.trim().is_empty() || !needs_of(&text).is_empty());
    }

    /// Each command has a unique name, so each must be found by it.
    #[test]
    fn no_command_is_missed(
        commands in prop::collection::vec(simple(), 1..8),
        joints in prop::collection::vec(prop::sample::select(vec!["; ", " && ", " || ", " | ", " & ", "\n", ";", "|", "&&"]), 8),
        around in prop::sample::select(vec![("", ""), ("(", ")"), ("{ ", "; }"), ("echo $(", ")"), ("echo \"`", "`\""), ("if true; then ", "; fi"), ("! ", ""), ("cat <(", ")")]),
    ) {
        let mut text = String::new();
        for (index, command) in commands.iter().enumerate() {
            if index > 0 {
                text.push_str(joints[index]);
            }
            text.push_str(command);
        }
        let text = format!("{}{text}{}", around.0, around.1);
        let asked: Vec<Need> = needs_of(&text)
            .into_iter()
            .filter(|need| need.kind == NeedKind::Run && need.default != Verdict::Allow)
            .collect();
        for command in &commands {
            let name = command.split(' ').next().unwrap();
            let is_found = asked.iter().any(|need| need.subject.split(' ').next() == Some(name));
            prop_assert!(is_found, "{name} is missed in {text:?}: {asked:?}");
        }
    }

    /// The normal form is itself a command with the same normal form.
    #[test]
    fn normal_form_is_stable(command in simple()) {
        let first = needs_of(&command)[0].subject.clone();
        prop_assert_eq!(&needs_of(&first)[0].subject, &first);
    }
}

/// The guided fuzzer found the first text. The grammar would take minutes, and longer with each further pipe.
#[test]
fn text_that_takes_the_grammar_too_long_cannot_be_analysed() {
    let found = include_str!("../../../fuzzing/corpus/shell/slow");
    let many_pipes = format!("0 | | {}zzlast\n \"c \"\r", "zza | ".repeat(200));
    for (text, last) in [(found, "zfor"), (&many_pipes, "zzlast")] {
        let needs = needs_of(text);
        let is_given_up = |need: &Need| need.is_opaque && need.why == "it cannot be parsed";
        assert!(needs.iter().any(is_given_up), "{needs:?}");
        assert!(needs.iter().any(|need| need.subject == last), "{needs:?}");
    }
}

#[test]
fn long_text_is_parsed_whole() {
    let piped = format!("{}b", "a -x 'y z' | ".repeat(20));
    let either = format!("{}b", "a -x 'y z' || ".repeat(40));
    let listed = "if a; then b \"$(c d)\"; fi && e > f\n".repeat(280);
    for text in [piped, either, listed] {
        assert!(needs_of(&text).iter().all(|need| need.why != "it cannot be parsed"), "{text}");
    }
}
