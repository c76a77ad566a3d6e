//! Every limit, in one table: what `limits` in `purlin.json` may set, the default, and why it is there.

use std::time::Duration;

use serde::Deserialize;
use wire::SizeLimits;

/// Makes the struct, its defaults and its printable table from one list.
macro_rules! limits {
    ($($(#[doc = $doc:literal])* $name:ident = $default:literal;)*) => {
        /// The limits in force. A rate or a time of 0 lifts it.
        #[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
        #[serde(default)]
        pub struct Limits {
            $($(#[doc = $doc])* pub $name: u64,)*
        }

        impl Default for Limits {
            fn default() -> Limits {
                Limits { $($name: $default,)* }
            }
        }

        impl Limits {
            /// Every limit: its name, its default, and what it is for.
            pub const TABLE: &'static [(&'static str, u64, &'static str)] =
                &[$((stringify!($name), $default, concat!($($doc),*)),)*];
        }
    };
}

limits! {
    /// Prompts a session takes in a minute; more are answered with -32003 and `data.retryAfterMs`.
    prompts_per_minute = 10;
    /// File reads we ask of the client in a minute, for each session; more of them wait.
    reads_per_minute = 100;
    /// File writes we ask of the client in a minute, for each session; more of them wait.
    writes_per_minute = 50;
    /// Updates a session sends in a minute; when they run short, neighbouring text is sent together.
    updates_per_minute = 1000;
    /// Answers to lines without a readable id in a minute; more such lines are only counted.
    errors_per_minute = 3000;
    /// Longest `initialize`, in bytes.
    max_initialize_bytes = 10240;
    /// Longest `session/new`, in bytes.
    max_new_session_bytes = 51200;
    /// Longest `session/prompt`, in bytes, without the data of images and audio.
    max_prompt_bytes = 1048576;
    /// Most data of images and audio in one `session/prompt`, in bytes of base64.
    max_prompt_data_bytes = 10485760;
    /// Longest `session/update` we send, in bytes; longer text is split, longer tool output is cut.
    max_update_bytes = 102400;
    /// Longest `fs/*` message and longest reply of the client, in bytes.
    max_file_bytes = 10485760;
    /// Longest message of any other method, in bytes.
    max_other_bytes = 1048576;
    /// Sessions that may be open at once.
    max_sessions = 1000;
    /// Seconds without use after which a session leaves memory; its next use brings it back. 0 for never.
    idle_pause_seconds = 7200;
    /// Bytes that are kept of one session; then it still loads, and takes no more prompts. 0 for no limit.
    max_history_bytes = 104857600;
    /// Days without use after which a session is refused with -31901. 0 for never.
    expire_days = 0;
    /// Requests to the model in one turn; then the turn ends with `max_turn_requests`.
    max_requests_per_turn = 100;
    /// Seconds a model may send nothing before the turn ends with -32001. Waiting for a person does not count.
    no_progress_seconds = 300;
    /// Seconds the client may leave our output unread before running turns are stopped; they are kept.
    unread_seconds = 300;
    /// Seconds the client has for a file read, tried twice.
    read_timeout_seconds = 30;
    /// Seconds the client has for a file write, tried twice.
    write_timeout_seconds = 60;
    /// Seconds the client has for starting or ending a terminal.
    terminal_timeout_seconds = 30;
    /// Seconds a client of the message reference has to answer a question for permission; then the answer is no.
    permission_wait_seconds = 120;
}

impl Limits {
    /// Returns the part that the wire needs.
    #[must_use]
    pub fn sizes(&self) -> SizeLimits {
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        SizeLimits {
            initialize: size(self.max_initialize_bytes),
            new_session: size(self.max_new_session_bytes),
            prompt: size(self.max_prompt_bytes),
            prompt_data: size(self.max_prompt_data_bytes),
            update: size(self.max_update_bytes),
            file: size(self.max_file_bytes),
            other: size(self.max_other_bytes),
        }
    }

    /// Returns how long a model may send nothing.
    #[must_use]
    pub fn no_progress(&self) -> Duration {
        lasting(self.no_progress_seconds)
    }

    /// Returns how long the client may read nothing.
    #[must_use]
    pub fn unread(&self) -> Duration {
        lasting(self.unread_seconds)
    }
}

/// A time-out; 0 stands for one that never comes.
pub(crate) fn lasting(seconds: u64) -> Duration {
    Duration::from_secs(if seconds == 0 { u64::from(u32::MAX) } else { seconds })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The documentation is made from the code: `UPDATE_EXPECT=1` writes it anew.
    // R: W10, W11, W12
    #[test]
    fn the_documented_table_is_the_one_in_force() {
        let mut text = String::from(
            "<!-- Made from crates/purlin/src/limits.rs; see the test beside it. -->\n\n| key in `limits` | default | meaning |\n|---|---|---|\n",
        );
        for (name, default, meaning) in Limits::TABLE {
            text.push_str(&format!("| `{name}` | {default} | {} |\n", meaning.trim()));
        }
        expect_test::expect_file!["../../../docs/guide/limits.md"].assert_eq(&text);
    }
}
