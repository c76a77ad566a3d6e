//! Writes archives that are the same for the same files: tar, gzip, ar and zip without times, owners or chance.
//!
//! `gzip` compresses: a library inside an unoptimised xtask would take minutes.

use anyhow::{Context, Result, ensure};

use crate::program;

/// A file in an archive.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    /// The path, relative, with `/` between its parts.
    pub(crate) path: String,
    /// Whether it can be executed.
    pub(crate) is_program: bool,
    /// The content.
    pub(crate) bytes: Vec<u8>,
}

impl Entry {
    /// An ordinary file.
    pub(crate) fn file(path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Entry {
        Entry { path: path.into(), is_program: false, bytes: bytes.into() }
    }

    /// A file that can be executed.
    pub(crate) fn program(path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Entry {
        Entry { is_program: true, ..Entry::file(path, bytes) }
    }

    fn mode(&self) -> u32 {
        if self.is_program { 0o755 } else { 0o644 }
    }

    /// Moves the file into a directory.
    pub(crate) fn under(&self, directory: &str) -> Entry {
        Entry { path: format!("{directory}{}", self.path), ..self.clone() }
    }
}

/// Writes a tar archive with the directories of the files, in the order of their paths.
pub(crate) fn tar(entries: &[Entry]) -> Result<Vec<u8>> {
    let mut sorted: Vec<&Entry> = entries.iter().collect();
    sorted.sort_by(|a, b| a.path.cmp(&b.path));
    let mut out = Vec::new();
    let mut directories = std::collections::BTreeSet::new();
    for entry in sorted {
        for (at, _) in entry.path.match_indices('/') {
            let directory = &entry.path[..=at];
            if directory != "./" && directories.insert(directory.to_owned()) {
                out.extend(header(directory, 0o755, 0, b'5')?);
            }
        }
        out.extend(header(&entry.path, entry.mode(), entry.bytes.len(), b'0')?);
        out.extend(&entry.bytes);
        out.resize(out.len().next_multiple_of(512), 0);
    }
    out.resize(out.len() + 1024, 0);
    Ok(out)
}

/// A header of the format `ustar`.
fn header(path: &str, mode: u32, size: usize, kind: u8) -> Result<[u8; 512]> {
    ensure!(path.len() <= 100, "the path {path} is too long for an archive");
    let mut block = [0_u8; 512];
    let mut put =
        |at: usize, text: &str| block[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, path);
    put(100, &format!("{mode:07o}"));
    put(108, "0000000");
    put(116, "0000000");
    put(124, &format!("{size:011o}"));
    put(136, "00000000000");
    put(148, "        ");
    put(257, "ustar\u{0}00");
    put(265, "root");
    put(297, "root");
    block[156] = kind;
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Ok(block)
}

/// Compresses with gzip, without name and time.
pub(crate) fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    program::filter(&["gzip", "--no-name", "--best", "--stdout"], bytes)
}

/// What is inside a gzip file: the compressed bytes and their CRC-32. The format has ten bytes before and eight after them.
fn deflate(bytes: &[u8]) -> Result<(Vec<u8>, u32)> {
    let packed = gzip(bytes)?;
    let end = packed.len().checked_sub(8).context("gzip printed too little")?;
    ensure!(packed.starts_with(&[0x1f, 0x8b, 8, 0]), "gzip printed another header");
    let sum: [u8; 4] = packed[end..end + 4].try_into()?;
    Ok((packed[10..end].to_vec(), u32::from_le_bytes(sum)))
}

/// Writes an ar archive, as Debian packages are.
pub(crate) fn ar(members: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut out = b"!<arch>\n".to_vec();
    for (name, bytes) in members {
        let size = bytes.len();
        out.extend(
            format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, 0, 100_644).bytes(),
        );
        out.extend(bytes);
        if size % 2 == 1 {
            out.push(b'\n');
        }
    }
    out
}

/// The first day that the format knows: 1980-01-01.
const ZIP_DAY: u16 = 0x21;

/// Writes a zip archive. The order of the files stays.
pub(crate) fn zip(entries: &[Entry]) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut directory = Vec::new();
    for entry in entries {
        let (packed, sum) = deflate(&entry.bytes)?;
        let offset = u32::try_from(out.len()).context("the archive is too large")?;
        let size = u32::try_from(entry.bytes.len()).context("a file is too large")?;
        let name = u16::try_from(entry.path.len())?;
        let mut common = Vec::new();
        // Version 2.0, names in UTF-8, deflated.
        for number in [20_u16, 0x800, 8, 0, ZIP_DAY] {
            common.extend(number.to_le_bytes());
        }
        for number in [sum, u32::try_from(packed.len())?, size] {
            common.extend(number.to_le_bytes());
        }
        common.extend(name.to_le_bytes());
        common.extend([0, 0]);
        out.extend(b"PK\x03\x04");
        out.extend(&common);
        out.extend(entry.path.bytes());
        out.extend(packed);
        // Made on Unix, so that the mode is read.
        directory.extend(b"PK\x01\x02\x14\x03");
        directory.extend(&common);
        directory.extend([0; 6]);
        directory.extend(((0o100_000 | entry.mode()) << 16).to_le_bytes());
        directory.extend(offset.to_le_bytes());
        directory.extend(entry.path.bytes());
    }
    let (at, count) = (u32::try_from(out.len())?, u16::try_from(entries.len())?);
    let size = u32::try_from(directory.len())?;
    out.extend(directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend(count.to_le_bytes());
    out.extend(count.to_le_bytes());
    out.extend(size.to_le_bytes());
    out.extend(at.to_le_bytes());
    out.extend([0, 0]);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_of_files_does_not_change_a_tar() {
        let (a, b) = (Entry::file("x/a", "1"), Entry::program("x/b", "2"));
        let one = tar(&[a.clone(), b.clone()]).unwrap();
        assert_eq!(one, tar(&[b, a]).unwrap());
        assert_eq!(gzip(&one).unwrap(), gzip(&one).unwrap());
        // A directory, two files of one block each, two empty blocks at the end.
        assert_eq!(one.len(), 512 * (1 + 2 + 2 + 2));
    }

    #[test]
    fn path_that_does_not_fit_is_refused() {
        assert!(tar(&[Entry::file("a".repeat(101), "")]).is_err());
    }
}
