//! Writes of an agent: each needs permission, as an edit in an editor does.
//!
//! A tool call that the user just allowed and that names the file has that permission already.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use wire::acp::schema;
use wire::{Code, RpcError};

use super::{Permission, decide};

/// How many files are remembered as allowed. More are asked about again.
const MAX_ALLOWED: usize = 256;

/// The files that the user allowed a tool call to change. Shared by the calls of one host; never locked across an await.
#[derive(Debug, Clone, Default)]
pub(super) struct Writes(Arc<Mutex<HashSet<PathBuf>>>);

impl Writes {
    /// Notes that a tool call that names these files was allowed.
    pub(super) fn allow(&self, files: Vec<PathBuf>) {
        let mut allowed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MAX_ALLOWED.saturating_sub(allowed.len());
        allowed.extend(files.into_iter().take(room));
    }

    /// Tells whether a write is allowed. The next one to the same file needs permission again.
    fn take(&self, path: &Path) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(path)
    }
}

/// Returns the files that a tool call names: in its locations, its diffs and its input.
pub(super) fn named_files(request: &schema::RequestPermissionRequest) -> Vec<PathBuf> {
    let fields = &request.tool_call.fields;
    let locations = fields.locations.iter().flatten().map(|location| location.path.clone());
    let diffs = fields.content.iter().flatten().filter_map(|content| match content {
        schema::ToolCallContent::Diff(diff) => Some(diff.path.clone()),
        _ => None,
    });
    let input = fields.raw_input.as_ref().and_then(Value::as_object);
    let paths = input.into_iter().flat_map(|input| input.values()).filter_map(Value::as_str);
    let paths = paths.map(PathBuf::from).filter(|path| path.is_absolute());
    locations.chain(diffs).chain(paths).collect()
}

/// Asks for a write that no tool call was allowed to make.
pub(super) async fn permit(
    request: &schema::WriteTextFileRequest,
    permission: &Permission,
    writes: &Writes,
) -> Result<(), RpcError> {
    if writes.take(&request.path) {
        return Ok(());
    }
    let (_, is_allowed) = decide(permission, question(request).await).await;
    match is_allowed {
        true => Ok(()),
        false => Err(RpcError::of(Code::FILE_DENIED).details("The user rejected the write")),
    }
}

/// Returns the question about a write, which shows the change.
async fn question(request: &schema::WriteTextFileRequest) -> schema::RequestPermissionRequest {
    let path = &request.path;
    let old = tokio::fs::read_to_string(path).await.ok();
    let diff = schema::Diff::new(path.clone(), request.content.clone()).old_text(old);
    let fields = schema::ToolCallUpdateFields::new()
        .kind(schema::ToolKind::Edit)
        .title(format!("Write {}", path.display()))
        .content(vec![schema::ToolCallContent::Diff(diff)])
        .locations(vec![schema::ToolCallLocation::new(path.clone())]);
    let call = schema::ToolCallUpdate::new(format!("write {}", path.display()), fields);
    let option = |id: &str, name: &str, kind| {
        schema::PermissionOption::new(id.to_owned(), name.to_owned(), kind)
    };
    let options = vec![
        option("allow", "Allow", schema::PermissionOptionKind::AllowOnce),
        option("reject", "Reject", schema::PermissionOptionKind::RejectOnce),
    ];
    schema::RequestPermissionRequest::new(request.session_id.clone(), call, options)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    async fn permitted(path: &Path, permission: Permission, writes: &Writes) -> bool {
        let request = schema::WriteTextFileRequest::new("s", path, "new");
        permit(&request, &permission, writes).await.is_ok()
    }

    #[tokio::test]
    async fn write_needs_permission_unless_its_tool_call_has_it() {
        let path = tempfile::env::temp_dir().join("a.txt");
        let writes = Writes::default();
        assert!(!permitted(&path, Permission::Reject, &writes).await);
        let request = serde_json::from_value(json!({
            "sessionId": "s", "toolCall": { "toolCallId": "t", "rawInput": { "file_path": path } }, "options": [],
        }));
        writes.allow(named_files(&request.unwrap()));
        assert!(permitted(&path, Permission::Reject, &writes).await);
        assert!(!permitted(&path, Permission::Reject, &writes).await);
        assert!(permitted(&path, Permission::AllowOnce, &writes).await);
    }
}
