//! The transcripts of `conformance/` as tests: each is played in this process and against the built program.
//!
//! Every `.acp` file in a chapter is a test; there is no list to maintain. The test runner sees each transcript and each
//! way of playing it as a test of its own, such as `transcripts::wire::not_json::in_process`. A transcript that needs
//! files or an exit code is played against the program only.
//!
//! `UPDATE_EXPECT=1` rewrites the lines that the agent sends. Read the diff before you commit it.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests are tests, too, which clippy does not see; a test harness reports on stdout"
)]

mod examples;
mod harness;
mod in_process;
mod play;

use std::process::ExitCode;
use std::rc::Rc;

use harness::Test;

fn main() -> ExitCode {
    let mut tests = vec![
        test("examples::every_example_of_the_documents_is_in_a_transcript", examples::are_covered),
        test("examples::excused_examples_are_in_no_transcript", examples::excuses_are_needed),
        test("play::foreign_agent_is_played_against", || {
            wait(play::foreign_agent_is_played_against());
        }),
    ];
    for name in play::names() {
        let module = format!("transcripts::{}", name.replace('/', "::"));
        let transcript = match play::load(&name) {
            Ok(transcript) => transcript,
            Err(reason) => {
                tests.push(test(&module, move || panic!("{reason}")));
                continue;
            }
        };
        let transcript = Rc::new(transcript);
        if transcript.fits_in_process() {
            let transcript = Rc::clone(&transcript);
            let run = move || wait(transcript.in_process());
            tests.push(test(&format!("{module}::in_process"), run));
        }
        if transcript.is_replayed() {
            let recorded = Rc::clone(&transcript);
            let run = move || wait(recorded.recorded_and_replayed());
            tests.push(test(&format!("{module}::replayed"), run));
        }
        let run = move || wait(transcript.against_the_program());
        tests.push(test(&format!("{module}::against_the_program"), run));
    }
    harness::run(tests)
}

fn test(name: &str, run: impl FnOnce() + 'static) -> Test {
    Test { name: name.to_owned(), run: Box::new(run) }
}

fn wait(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(test);
}
