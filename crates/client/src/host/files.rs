//! Reads and writes text files for the agent.
//!
//! Paths must be absolute. Error codes tell a missing, a forbidden and a too large file apart.

use std::io;
use std::path::Path;

use serde_json::json;
use wire::acp::schema;
use wire::{Code, RpcError};

/// The longest content that is returned; agents reject longer replies.
const MAX_TEXT_BYTES: u64 = 10 * 1024 * 1024;

/// The largest file of which a part can be read.
const MAX_FILE_BYTES: u64 = 256 * 1024 * 1024;

/// Serves `fs/read_text_file`.
pub(super) async fn read_text_file(
    request: schema::ReadTextFileRequest,
) -> Result<schema::ReadTextFileResponse, RpcError> {
    let path = &request.path;
    check_absolute(path)?;
    let metadata = tokio::fs::metadata(path).await.map_err(|err| io_error(path, &err))?;
    if !metadata.is_file() {
        // Reading a device or a pipe might never end.
        return Err(bad_path(path, "The path is not a file"));
    }
    check_size(metadata.len(), MAX_FILE_BYTES)?;
    let text = tokio::fs::read_to_string(path).await.map_err(|err| io_error(path, &err))?;
    let content = lines_of(&text, request.line, request.limit);
    check_size(content.len() as u64, MAX_TEXT_BYTES)?;
    Ok(schema::ReadTextFileResponse::new(content))
}

/// Serves `fs/write_text_file`. Creates missing directories.
pub(super) async fn write_text_file(
    request: schema::WriteTextFileRequest,
) -> Result<schema::WriteTextFileResponse, RpcError> {
    let path = &request.path;
    check_absolute(path)?;
    if let Some(directory) = path.parent() {
        tokio::fs::create_dir_all(directory).await.map_err(|err| io_error(path, &err))?;
    }
    tokio::fs::write(path, request.content).await.map_err(|err| io_error(path, &err))?;
    Ok(schema::WriteTextFileResponse::new())
}

/// Returns `limit` lines, starting with line number `line`, starting at 1.
fn lines_of(text: &str, line: Option<u32>, limit: Option<u32>) -> String {
    let skipped = line.map_or(0, |line| line.saturating_sub(1) as usize);
    let taken = limit.map_or(usize::MAX, |limit| limit as usize);
    text.split_inclusive('\n').skip(skipped).take(taken).collect()
}

fn check_absolute(path: &Path) -> Result<(), RpcError> {
    if path.is_absolute() {
        return Ok(());
    }
    Err(bad_path(path, "The path must be absolute"))
}

fn check_size(size: u64, limit: u64) -> Result<(), RpcError> {
    if size <= limit {
        return Ok(());
    }
    Err(RpcError::of(Code::FILE_TOO_LARGE).with("limit", json!(limit)))
}

fn bad_path(path: &Path, details: &str) -> RpcError {
    RpcError::of(Code::INVALID_PARAMS).details(details).with("path", json!(path))
}

fn io_error(path: &Path, err: &io::Error) -> RpcError {
    let code = match err.kind() {
        io::ErrorKind::NotFound => Code::FILE_NOT_FOUND,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Code::FILE_DENIED,
        io::ErrorKind::InvalidData => return bad_path(path, "The file is not text"),
        // The path is a directory, or one of its parents is a file.
        io::ErrorKind::IsADirectory
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::AlreadyExists => {
            return bad_path(path, "The path is not a file");
        }
        _ => Code::INTERNAL_ERROR,
    };
    RpcError::of(code).details(err.to_string()).with("path", json!(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::temp_dir;

    async fn read(path: &Path, line: Option<u32>, limit: Option<u32>) -> Result<String, i32> {
        let request = schema::ReadTextFileRequest::new("s", path).line(line).limit(limit);
        match read_text_file(request).await {
            Ok(response) => Ok(response.content),
            Err(error) => Err(error.code.0),
        }
    }

    async fn write(path: &Path, content: &str) -> Result<(), i32> {
        let request = schema::WriteTextFileRequest::new("s", path, content);
        write_text_file(request).await.map(drop).map_err(|error| error.code.0)
    }

    #[tokio::test]
    async fn written_file_is_read_back_whole_or_in_part() {
        let directory = temp_dir().unwrap();
        let path = directory.path().join("new/folder/a.txt");
        write(&path, "one\ntwo\nthree").await.unwrap();
        assert_eq!(read(&path, None, None).await.as_deref(), Ok("one\ntwo\nthree"));
        assert_eq!(read(&path, Some(2), Some(1)).await.as_deref(), Ok("two\n"));
        assert_eq!(read(&path, Some(3), None).await.as_deref(), Ok("three"));
        assert_eq!(read(&path, Some(9), None).await.as_deref(), Ok(""));
    }

    #[tokio::test]
    async fn each_failure_has_its_code() {
        let directory = temp_dir().unwrap();
        let binary = directory.path().join("binary");
        std::fs::write(&binary, [0xff, 0xfe]).unwrap();
        assert_eq!(read(Path::new("a.txt"), None, None).await, Err(-32602));
        assert_eq!(read(&directory.path().join("none"), None, None).await, Err(-31700));
        assert_eq!(read(directory.path(), None, None).await, Err(-32602));
        assert_eq!(read(&binary, None, None).await, Err(-32602));
        assert_eq!(write(Path::new("a.txt"), "").await, Err(-32602));
        assert_eq!(write(directory.path(), "").await, Err(-32602));
        assert_eq!(write(&binary.join("below"), "").await, Err(-32602));
    }
}
