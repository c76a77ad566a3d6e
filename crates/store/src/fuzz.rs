//! Fuzz target: stored records, damaged and with a right checksum.

use crate::record::{Decoded, Encoded};

#[test]
fn fuzz_record() {
    let words = ["{", "}", "\"", "null", "[]", "\"text\":", "-1", "1e400", "\\ud83d", "\\u0000"];
    fuzzing::run("record", &words, |input| {
        for version in [0, 1, u32::MAX] {
            let damaged = Encoded { version, checksum: 1, body: input.to_vec() };
            drop(damaged.decode());
            if let Decoded::Record(record) = Encoded::checked(version, input.to_vec()).decode() {
                // What is read is written the same way.
                let again = record.encode().unwrap().decode();
                assert_eq!(again, Decoded::Record(record));
            }
        }
    });
}
