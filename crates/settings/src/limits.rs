//! The table of all limits: what `limits` in `purlin.json` may set, the default, and the meaning.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Makes the struct, its defaults and the table from one list.
macro_rules! limits {
    ($($(#[doc = $doc:literal])* $name:ident = $default:literal;)*) => {
        /// The limits in effect. 0 removes a rate or a timeout.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
            /// Every limit: its name, its default, and its meaning.
            pub const TABLE: &'static [(&'static str, u64, &'static str)] =
                &[$((stringify!($name), $default, concat!($($doc),*)),)*];
        }
    };
}

limits! {
    /// Prompts per minute and session; more get error -32003 with `data.retryAfterMs`. 0 for no limit.
    prompts_per_minute = 10;
    /// File reads through the client per minute and session; more wait. 0 for no limit.
    reads_per_minute = 100;
    /// File writes through the client per minute and session; more wait. 0 for no limit.
    writes_per_minute = 50;
    /// Updates per minute and session; above it, adjacent text is merged. 0 for no limit.
    updates_per_minute = 1000;
    /// Error replies per minute to lines without a readable id; more such lines are only counted.
    errors_per_minute = 3000;
    /// Largest `initialize`, in bytes.
    max_initialize_bytes = 10240;
    /// Largest `session/new`, in bytes.
    max_new_session_bytes = 51200;
    /// Largest `session/prompt`, in bytes, without image and audio data.
    max_prompt_bytes = 1048576;
    /// Image and audio data in one `session/prompt`, in bytes of base64.
    max_prompt_data_bytes = 10485760;
    /// Largest `session/update` sent, in bytes; longer text is split, longer tool output truncated.
    max_update_bytes = 102400;
    /// Largest `fs/*` message and largest reply of the client, in bytes.
    max_file_bytes = 10485760;
    /// Largest message of any other method, in bytes.
    max_other_bytes = 1048576;
    /// Sessions open at once.
    max_sessions = 1000;
    /// Seconds of inactivity after which a session is unloaded; its next use loads it again. 0 for never.
    idle_pause_seconds = 7200;
    /// Stored bytes per session; a larger session still loads, but takes no more prompts. 0 for no limit.
    max_history_bytes = 104857600;
    /// Days of inactivity after which a session is refused with error -31901. 0 for never.
    expire_days = 0;
    /// Model requests per turn; then the turn ends with `max_turn_requests`.
    max_requests_per_turn = 100;
    /// Seconds without data from the model before the turn ends with error -32001. Waiting for the user does not count. 0 for never.
    no_progress_seconds = 300;
    /// Seconds the client may leave output unread before running turns are stopped; what they did stays saved. 0 for never.
    unread_seconds = 300;
    /// Timeout for a file read through the client, in seconds; tried twice.
    read_timeout_seconds = 30;
    /// Timeout for a file write through the client, in seconds; tried twice.
    write_timeout_seconds = 60;
    /// Timeout for starting or ending a terminal of the client, in seconds.
    terminal_timeout_seconds = 30;
    /// Seconds a client of the message-reference dialect has to answer a permission request; then it is rejected.
    permission_wait_seconds = 120;
}

impl Limits {
    /// Returns how long a model may send no data.
    #[must_use]
    pub fn no_progress(&self) -> Duration {
        lasting(self.no_progress_seconds)
    }

    /// Returns how long the client may leave output unread.
    #[must_use]
    pub fn unread(&self) -> Duration {
        lasting(self.unread_seconds)
    }
}

/// Returns a time-out; 0 means none.
#[must_use]
pub fn lasting(seconds: u64) -> Duration {
    Duration::from_secs(if seconds == 0 { u64::from(u32::MAX) } else { seconds })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The documentation is generated from the code: `UPDATE_EXPECT=1` updates it.
    // R: W10, W11, W12
    #[test]
    fn documented_table_is_the_one_in_force() {
        let mut text = String::from(
            "# Limits\n\n<!-- Generated from the table of limits; see the test next to it. Do not edit. -->\n\n\
             Set a limit under `limits` in `purlin.json`, or with `PURLIN_LIMITS_NAME`.\n\n\
             | key | default | meaning |\n|---|---|---|\n",
        );
        for (name, default, meaning) in Limits::TABLE {
            text.push_str(&format!("| `{name}` | {default} | {} |\n", meaning.trim()));
        }
        expect_test::expect_file!["../../../docs/guide/limits.md"].assert_eq(&text);
    }
}
