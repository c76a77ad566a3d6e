//! A gzipped tar archive of a few files, in the ustar format.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

/// The length of a block: files are padded to it.
const BLOCK: usize = 512;

/// Writes an archive. The names have at most 100 bytes.
pub(super) fn write<'a>(
    out: impl Write,
    files: impl Iterator<Item = (&'a str, &'a [u8])>,
) -> io::Result<()> {
    let mut out = GzEncoder::new(out, Compression::default());
    for (name, content) in files {
        out.write_all(&header(name, content.len()))?;
        out.write_all(content)?;
        out.write_all(&[0; BLOCK][..content.len().next_multiple_of(BLOCK) - content.len()])?;
    }
    out.write_all(&[0; 2 * BLOCK])?;
    out.finish()?.flush()
}

/// Makes the header of a file: its name, its length in octal, and a checksum.
fn header(name: &str, length: usize) -> [u8; BLOCK] {
    let mut header = [0; BLOCK];
    let mut put =
        |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, &format!("purlin-report/{name}"));
    put(100, "0000600\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{length:011o}\0"));
    put(136, "00000000000\0");
    // The checksum is computed as if it were blank.
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\u{0}00");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}
