//! Reads rows directly from the pages of a database file, for a file whose trees can no longer be followed.
//!
//! Every page is examined on its own, so a damaged page costs only its own rows. Committed pages of the write-ahead log
//! replace those of the file. The format is described at <https://sqlite.org/fileformat2.html>. Nothing is trusted: every
//! length and offset is checked, and whatever does not fit is skipped.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// The size of pages if the header does not say it.
const DEFAULT_PAGE: usize = 4096;
/// A longer row is taken for damage. The first version of the tables stored whole files.
const MAX_ROW: usize = 64 * 1024 * 1024;

const INDEX_INTERIOR: u8 = 0x02;
const INDEX_LEAF: u8 = 0x0a;
const TABLE_LEAF: u8 = 0x0d;

/// A value of a row.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Null,
    Integer(i64),
    Text(String),
    Blob(Vec<u8>),
}

/// A row, or an entry of an index.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    /// Its row id; `None` for an entry of an index.
    pub(super) id: Option<i64>,
    pub(super) values: Vec<Value>,
}

/// The pages of a database.
pub(super) struct Pages {
    file: File,
    log: Option<File>,
    /// Where the log has the newest committed content of a page.
    in_log: HashMap<u32, u64>,
    size: usize,
    count: u32,
}

impl Pages {
    /// Opens a database and its log. The caller keeps other processes from writing.
    pub(super) fn open(path: &Path, log: &Path) -> io::Result<Pages> {
        let mut file = File::open(path)?;
        let mut header = [0; 18];
        let read = file.read(&mut header)?;
        let size = match usize::from(u16::from_be_bytes([header[16], header[17]])) {
            size if read == header.len() && size.is_power_of_two() && size >= 512 => size,
            _ => DEFAULT_PAGE,
        };
        let count = u32::try_from(file.metadata()?.len() / size as u64).unwrap_or(u32::MAX);
        let mut pages = Pages { file, log: None, in_log: HashMap::new(), size, count };
        if let Ok(log) = File::open(log) {
            let (in_log, count) = committed(&log, size)?;
            pages.in_log = in_log;
            pages.count = count.unwrap_or(pages.count);
            pages.log = Some(log);
        }
        Ok(pages)
    }

    /// Calls `found` for every row of every page but the first one, which has the schema.
    pub(super) fn each_row<E: From<io::Error>>(
        &mut self,
        mut found: impl FnMut(Row) -> Result<(), E>,
    ) -> Result<(), E> {
        for number in 2..=self.count {
            let Some(page) = self.page(number)? else { continue };
            for cell in cells(&page) {
                if let Some(row) = self.row(&page, cell)? {
                    found(row)?;
                }
            }
        }
        Ok(())
    }

    /// Reads a page; `None` if the file does not have all of it.
    fn page(&mut self, number: u32) -> io::Result<Option<Vec<u8>>> {
        let mut page = vec![0; self.size];
        let (file, at) = match (self.in_log.get(&number), &mut self.log) {
            (Some(at), Some(log)) => (log, *at),
            _ => (&mut self.file, u64::from(number - 1) * self.size as u64),
        };
        file.seek(SeekFrom::Start(at))?;
        match file.read_exact(&mut page) {
            Ok(()) => Ok(Some(page)),
            Err(err) if err.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(err) => Err(err),
        }
    }

    fn row(&mut self, page: &[u8], cell: Cell) -> io::Result<Option<Row>> {
        let Some(mut payload) = page.get(cell.payload..cell.payload + cell.local) else {
            return Ok(None);
        };
        let mut whole;
        if cell.local < cell.length {
            whole = payload.to_vec();
            let Some(first) = be32(page, cell.payload + cell.local) else { return Ok(None) };
            if !self.read_overflow(first, cell.length, &mut whole)? {
                return Ok(None);
            }
            payload = &whole;
        }
        Ok(values(payload).map(|values| Row { id: cell.id, values }))
    }

    /// Appends the pages that continue a long row. Returns false if the chain is broken.
    fn read_overflow(&mut self, first: u32, length: usize, row: &mut Vec<u8>) -> io::Result<bool> {
        let mut next = first;
        while row.len() < length {
            if next < 2 || next > self.count {
                return Ok(false);
            }
            let Some(page) = self.page(next)? else { return Ok(false) };
            let take = (length - row.len()).min(self.size - 4);
            row.extend_from_slice(&page[4..4 + take]);
            next = be32(&page, 0).unwrap_or_default();
        }
        Ok(true)
    }
}

/// A cell of a page.
struct Cell {
    id: Option<i64>,
    /// Where its row begins, how long it is, and how much of it is in this page.
    payload: usize,
    length: usize,
    local: usize,
}

/// Lists the cells of a page that can have rows.
fn cells(page: &[u8]) -> Vec<Cell> {
    let kind = page[0];
    let first = match kind {
        TABLE_LEAF | INDEX_LEAF => 8,
        INDEX_INTERIOR => 12,
        _ => return Vec::new(),
    };
    let count = be16(page, 3).unwrap_or_default();
    let place = |index: usize| be16(page, first + 2 * index);
    (0..count).map_while(place).filter_map(|at| cell(page, kind, at)).collect()
}

fn cell(page: &[u8], kind: u8, mut at: usize) -> Option<Cell> {
    if kind == INDEX_INTERIOR {
        at += 4;
    }
    let length = usize::try_from(varint(page, &mut at)?).ok()?;
    let id = match kind {
        TABLE_LEAF => Some(varint(page, &mut at)?),
        _ => None,
    };
    if length == 0 || length > MAX_ROW {
        return None;
    }
    let usable = page.len();
    let most = if kind == TABLE_LEAF { usable - 35 } else { (usable - 12) * 64 / 255 - 23 };
    let least = (usable - 12) * 32 / 255 - 23;
    let local = if length <= most {
        length
    } else {
        let rest = least + (length - least) % (usable - 4);
        if rest <= most { rest } else { least }
    };
    Some(Cell { id, payload: at, length, local })
}

/// Decodes a row; `None` if its lengths do not fit.
fn values(row: &[u8]) -> Option<Vec<Value>> {
    let mut at = 0;
    let mut body = usize::try_from(varint(row, &mut at)?).ok()?;
    let end = body;
    let mut values = Vec::new();
    while at < end {
        let kind = varint(row.get(..end)?, &mut at)?;
        let length = match kind {
            0 | 8 | 9 => 0,
            1..=4 => usize::try_from(kind).ok()?,
            5 => 6,
            6 => 8,
            12.. => usize::try_from((kind - 12) / 2).ok()?,
            // Numbers with a point, and kinds that do not exist: no table of ours has them.
            _ => return None,
        };
        let bytes = row.get(body..body.checked_add(length)?)?;
        body += length;
        values.push(match kind {
            0 => Value::Null,
            8 | 9 => Value::Integer(kind - 8),
            1..=6 => Value::Integer(integer(bytes)),
            _ if kind % 2 == 0 => Value::Blob(bytes.to_vec()),
            _ => Value::Text(String::from_utf8(bytes.to_vec()).ok()?),
        });
    }
    (at == end && body == row.len()).then_some(values)
}

fn integer(bytes: &[u8]) -> i64 {
    let negative = bytes.first().is_some_and(|first| first & 0x80 != 0);
    bytes.iter().fold(if negative { -1 } else { 0 }, |value, byte| (value << 8) | i64::from(*byte))
}

/// Reads a number of one to nine bytes and moves behind it.
fn varint(bytes: &[u8], at: &mut usize) -> Option<i64> {
    let mut value: i64 = 0;
    for index in 0..9 {
        let byte = *bytes.get(*at)?;
        *at += 1;
        if index == 8 {
            return Some((value << 8) | i64::from(byte));
        }
        value = (value << 7) | i64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn be16(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..at.checked_add(2)?)?;
    Some(usize::from(u16::from_be_bytes(bytes.try_into().ok()?)))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// Finds the pages that are committed in a log, and how many pages the database has after the last commit.
fn committed(mut log: &File, size: usize) -> io::Result<(HashMap<u32, u64>, Option<u32>)> {
    let (mut found, mut count) = (HashMap::new(), None);
    let mut header = [0; 32];
    log.seek(SeekFrom::Start(0))?;
    if log.read_exact(&mut header).is_err() {
        return Ok((found, count));
    }
    let big_endian = header[3] & 1 == 1;
    let mut sum = checksum((0, 0), &header[..24], big_endian);
    let is_valid = be32(&header, 8).is_some_and(|found| found as usize == size)
        && sum == (be32(&header, 24).unwrap_or(1), be32(&header, 28).unwrap_or(1));
    let mut pending = Vec::new();
    let mut frame = vec![0; 24 + size];
    let mut at = header.len() as u64;
    while is_valid && log.read_exact(&mut frame).is_ok() {
        sum = checksum(checksum(sum, &frame[..8], big_endian), &frame[24..], big_endian);
        let is_whole = frame[8..16] == header[16..24]
            && sum == (be32(&frame, 16).unwrap_or(1), be32(&frame, 20).unwrap_or(1));
        if !is_whole {
            break;
        }
        pending.push((be32(&frame, 0).unwrap_or_default(), at + 24));
        if let Some(pages) = be32(&frame, 4).filter(|pages| *pages > 0) {
            count = Some(pages);
            found.extend(pending.drain(..));
        }
        at += frame.len() as u64;
    }
    Ok((found, count))
}

fn checksum(mut sum: (u32, u32), bytes: &[u8], big_endian: bool) -> (u32, u32) {
    let word = |bytes: &[u8]| {
        let bytes = [bytes[0], bytes[1], bytes[2], bytes[3]];
        if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    };
    for pair in bytes.chunks_exact(8) {
        sum.0 = sum.0.wrapping_add(word(&pair[..4])).wrapping_add(sum.1);
        sum.1 = sum.1.wrapping_add(word(&pair[4..])).wrapping_add(sum.0);
    }
    sum
}
