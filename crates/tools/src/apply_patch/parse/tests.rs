//! Patches as models write them, and what they must not do.

use proptest::prelude::*;

use super::*;

fn patched(body: &str, hunks: &str) -> Result<String, String> {
    let patch = format!("*** Begin Patch\n*** Update File: a\n{hunks}\n*** End Patch");
    match parse(&patch)?.remove(0) {
        Step::Update { hunks, .. } => apply(body, &hunks),
        other => panic!("{other:?}"),
    }
}

#[test]
fn patch_has_every_kind_of_step() {
    let patch = "*** Begin Patch\n*** Add File: new.txt\n+one\n+\n+two\n*** Delete File: old.txt\n\
                 *** Update File: a.rs\n*** Move to: b.rs\n@@ fn a()\n-x\n+y\n*** End of File\n*** End Patch\n";
    let steps = parse(patch).unwrap();
    let content = "one\n\ntwo\n".to_owned();
    assert_eq!(steps[0], Step::Add { path: "new.txt".into(), content });
    assert_eq!(steps[1], Step::Delete { path: "old.txt".into() });
    let Step::Update { path, move_to, hunks } = &steps[2] else { panic!("{steps:?}") };
    assert_eq!((path.as_str(), move_to.as_deref()), ("a.rs", Some("b.rs")));
    assert_eq!(hunks[0].under, ["fn a()"]);
    assert!(hunks[0].is_last);
    let shell = format!("apply_patch <<'EOF'\n{patch}EOF");
    assert_eq!(parse(&shell).unwrap(), steps);
}

#[test]
fn invalid_patch_is_rejected_with_a_reason() {
    let broken = [
        ("", "must begin with"),
        ("--- a\n+++ b\n", "must begin with"),
        ("*** Begin Patch\n*** Add File: a\n+x", "no `*** End Patch`"),
        ("*** Begin Patch\nnonsense\n*** End Patch", "unexpected line `nonsense`"),
        ("*** Begin Patch\n*** Update File: a\n*** End Patch", "changes nothing in a"),
        ("*** Begin Patch\n*** Update File: a\nxyz\n*** End Patch", "must begin with a space"),
    ];
    for (patch, why) in broken {
        let err = parse(patch).unwrap_err();
        assert!(err.contains(why), "{patch}: {err}");
    }
}

#[test]
fn hunks_are_found() {
    assert_eq!(patched("a\nb\nc\n", " a\n-b\n+B\n c"), Ok("a\nB\nc\n".into()));
    assert_eq!(patched("a\nx\nb\nx\n", "@@ b\n-x\n+y"), Ok("a\nx\nb\ny\n".into()));
    assert!(patched("x\ny\nx\n", "-x\n+z").unwrap_err().contains("twice (lines 1 and 3)"));
    assert_eq!(patched("x\ny\nx\n", "-x\n+z\n*** End of File"), Ok("x\ny\nz\n".into()));
    assert_eq!(patched("a\nb\n", "@@ a\n+new"), Ok("a\nnew\nb\n".into()));
    assert_eq!(patched("a\n", "+new"), Ok("a\nnew\n".into()));
    assert_eq!(patched("a\nb\nc\nd\n", "-a\n+A\n@@\n-d\n+D"), Ok("A\nb\nc\nD\n".into()));
    assert!(patched("a\n", "-q\n+z").unwrap_err().contains("not found"));
    assert!(patched("a\n", "@@ q\n-a\n+z").unwrap_err().contains("line `q` not found"));
}

// Fault: F04, F05, F07
#[test]
fn unchanged_lines_keep_every_byte() {
    assert_eq!(patched("a  \r\nb\r\nc\n", " a\n-b\n+B\n c"), Ok("a  \r\nB\r\nc\n".into()));
    assert_eq!(patched("a\nb", "-b\n+c"), Ok("a\nc".into()));
    assert_eq!(patched("a\nb", " b\n+c"), Ok("a\nb\nc".into()));
    assert_eq!(patched("x \u{2013} y\n", "-x - y\n+z"), Ok("z\n".into()));
}

proptest! {
    #[test]
    fn arbitrary_patch_causes_no_panic(patch in "(\\*\\*\\* (Begin Patch|End Patch|Update File: a|Add File: b|End of File)\n|[@+ -]?[ab\r]{0,3}\n){0,20}", body in "[ab \r\n]{0,30}") {
        for step in parse(&patch).unwrap_or_default() {
            if let Step::Update { hunks, .. } = step {
                drop(apply(&body, &hunks));
            }
        }
    }

    #[test]
    fn patch_made_from_two_texts_turns_one_into_the_other(
        lines in prop::collection::vec("[a-z]{1,3}", 1..12), at in 0usize..12, new in prop::collection::vec("[A-Z]{1,3}", 0..4)
    ) {
        let at = at % lines.len();
        let body: String = lines.iter().map(|line| format!("{line}\n")).collect();
        // All lines as context, so that there is only one match.
        let mut hunk = String::new();
        let mut wanted = String::new();
        for (index, line) in lines.iter().enumerate() {
            if index == at {
                hunk.push_str(&format!("-{line}\n"));
                for line in &new {
                    hunk.push_str(&format!("+{line}\n"));
                    wanted.push_str(&format!("{line}\n"));
                }
            } else {
                hunk.push_str(&format!(" {line}\n"));
                wanted.push_str(&format!("{line}\n"));
            }
        }
        prop_assert_eq!(patched(&body, hunk.trim_end_matches('\n')), Ok(wanted));
    }
}
