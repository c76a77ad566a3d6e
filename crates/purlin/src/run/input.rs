//! The prompt of a run: its text, stdin, and the files and images that are attached to it.

use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use wire::acp::schema;

/// Longer text is not part of the prompt: the agent gets a link to a file, and reads what it needs.
const MAX_INLINE: usize = 256 * 1024;
/// A longer prompt is a file too: few models could take it at once.
const MAX_PROMPT: usize = 1024 * 1024;
/// Stands for such a prompt.
const LONG_PROMPT: &str = "The request is in the attached file. Read all of it, one range after the other, and do what it says.";
/// The largest image that is sent.
const MAX_IMAGE: u64 = 7 * 1024 * 1024;
/// The default of Purlin's own limit for a prompt, and the space for everything around the text.
const DEFAULT_LIMIT: usize = 1024 * 1024;
/// When to say that stdin is still open.
const PATIENCE: Duration = Duration::from_secs(3);

/// What is sent to the agent.
#[derive(Debug)]
pub(crate) struct Input {
    /// The prompt's text.
    pub(super) text: String,
    attachments: Vec<Attachment>,
    /// The directory that long input was written to; removed at the end.
    spill: Option<tempfile::TempDir>,
}

/// Something that is attached to the prompt.
#[derive(Debug)]
enum Attachment {
    /// Text with its name and address.
    Text { name: String, uri: String, text: String },
    /// A file or directory that the agent reads itself.
    Link { name: String, uri: String },
    /// An image.
    Image { mime: &'static str, data: String, name: String },
}

impl Input {
    /// Reads stdin, the files and the images.
    ///
    /// # Errors
    /// Says what cannot be read, and that there is no prompt.
    pub(super) fn read(
        prompt: Option<String>,
        cwd: &Path,
        files: &[PathBuf],
        images: &[PathBuf],
    ) -> anyhow::Result<Input> {
        let stdin = read_stdin(prompt.as_deref())?;
        let (text, context) = match prompt {
            Some(prompt) if prompt != "-" => (prompt, stdin),
            _ if stdin.len() > MAX_PROMPT => (LONG_PROMPT.to_owned(), stdin),
            _ => (stdin, String::new()),
        };
        ensure!(!text.trim().is_empty(), "the prompt is empty");
        let mut input = Input { text, attachments: Vec::new(), spill: None };
        for file in files {
            let path = std::path::absolute(file)?;
            ensure!(path.exists(), "file not found: {}", file.display());
            input.attach(&path)?;
        }
        for path in mentioned(&input.text, cwd) {
            input.attach(&path)?;
        }
        for image in images {
            input.attachments.push(read_image(image)?);
        }
        if !context.trim().is_empty() {
            input.attach_stdin(context)?;
        }
        Ok(input)
    }

    fn attach(&mut self, path: &Path) -> anyhow::Result<()> {
        let (name, uri) = (path.display().to_string(), file_uri(path));
        let is_short = std::fs::metadata(path)
            .is_ok_and(|data| data.is_file() && data.len() <= MAX_INLINE as u64);
        // What is no text is read by the agent, if it can.
        let text = is_short.then(|| std::fs::read_to_string(path).ok()).flatten();
        self.attachments.push(match text {
            Some(text) => Attachment::Text { name, uri, text },
            None => Attachment::Link { name, uri },
        });
        Ok(())
    }

    /// Attaches what was read from stdin. Long input is written to a file, which the agent reads where it needs to.
    fn attach_stdin(&mut self, text: String) -> anyhow::Result<()> {
        if text.len() <= MAX_INLINE {
            let (name, uri) = ("stdin".to_owned(), "file:///dev/stdin".to_owned());
            self.attachments.push(Attachment::Text { name, uri, text });
            return Ok(());
        }
        let directory =
            tempfile::Builder::new().prefix("purlin-stdin-").tempdir_in(crate::env::temporary())?;
        let path = directory.path().join("stdin.txt");
        std::fs::write(&path, &text).context("cannot store the input from stdin")?;
        let name = format!("stdin, {} bytes", text.len());
        self.attachments.push(Attachment::Link { name, uri: file_uri(&path) });
        self.spill = Some(directory);
        Ok(())
    }

    /// Returns the directory that the agent needs besides its own, if there is one.
    pub(super) fn directory(&self) -> Option<&Path> {
        self.spill.as_ref().map(tempfile::TempDir::path)
    }

    /// Returns Purlin's limit for this prompt, if the default is too small.
    pub(super) fn limit_needed(&self) -> Option<usize> {
        let text = |attachment: &Attachment| match attachment {
            Attachment::Text { text, .. } => text.len(),
            Attachment::Link { .. } | Attachment::Image { .. } => 0,
        };
        let bytes = self.text.len() + self.attachments.iter().map(text).sum::<usize>();
        // In JSON a character may take six times as many bytes.
        let needed = bytes.saturating_mul(6).saturating_add(64 * 1024);
        (needed > DEFAULT_LIMIT).then_some(needed)
    }

    /// Returns the blocks of the prompt, in the form that the agent takes.
    ///
    /// # Errors
    /// Says what the agent does not take.
    pub(super) fn blocks(
        &self,
        offers: &schema::PromptCapabilities,
    ) -> anyhow::Result<Vec<schema::ContentBlock>> {
        let mut blocks = vec![schema::ContentBlock::from(self.text.as_str())];
        for attachment in &self.attachments {
            blocks.push(match attachment {
                Attachment::Image { name, .. } if !offers.image => {
                    bail!("{name}: the agent takes no images")
                }
                Attachment::Image { mime, data, .. } => schema::ContentBlock::Image(
                    schema::ImageContent::new(data.clone(), (*mime).to_owned()),
                ),
                Attachment::Text { uri, text, .. } if offers.embedded_context => {
                    let contents = schema::TextResourceContents::new(text.clone(), uri.clone());
                    let resource = schema::EmbeddedResourceResource::TextResourceContents(contents);
                    schema::ContentBlock::Resource(schema::EmbeddedResource::new(resource))
                }
                Attachment::Text { name, text, .. } => {
                    schema::ContentBlock::from(format!("{name}:\n\n{text}"))
                }
                Attachment::Link { name, uri } => schema::ContentBlock::ResourceLink(
                    schema::ResourceLink::new(name.clone(), uri.clone()),
                ),
            });
        }
        Ok(blocks)
    }
}

/// Reads stdin, unless it is a terminal. `-` reads a terminal, too.
fn read_stdin(prompt: Option<&str>) -> anyhow::Result<String> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() && prompt != Some("-") {
        return Ok(String::new());
    }
    // A script may have left stdin open by mistake.
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    let hint = std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        if is_done.recv_timeout(PATIENCE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            eprintln!("purlin: reading stdin until it ends. Without input, use `< /dev/null`.");
        }
    });
    let mut bytes = Vec::new();
    let read = stdin.lock().read_to_end(&mut bytes);
    drop((done, hint));
    read.context("cannot read stdin")?;
    String::from_utf8(bytes).map_err(|_| anyhow::anyhow!("stdin is not UTF-8 text"))
}

/// Returns the files that the text mentions as `@PATH`. Words that name no file are just text.
fn mentioned(text: &str, cwd: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for word in text.split_whitespace() {
        let Some(name) = word.trim_start_matches(['(', '"', '\'', '`']).strip_prefix('@') else {
            continue;
        };
        // A sentence may end behind the name.
        let shorter = name.trim_end_matches(['.', ',', ';', ':', '!', '?', ')', '"', '\'', '`']);
        let paths = [name, shorter].into_iter().filter(|name| !name.is_empty());
        let path = paths.map(|name| cwd.join(name)).find(|path| path.exists());
        found.extend(path.filter(|path| !found.contains(path)));
    }
    found
}

fn read_image(path: &Path) -> anyhow::Result<Attachment> {
    let name = path.display().to_string();
    let data = std::fs::metadata(path).with_context(|| name.clone())?;
    ensure!(data.is_file(), "{name}: not a file");
    ensure!(data.len() <= MAX_IMAGE, "{name}: too large; at most {} MB are sent", MAX_IMAGE >> 20);
    let bytes = std::fs::read(path).with_context(|| name.clone())?;
    let Some(mime) = image_type(&bytes) else {
        bail!("{name}: not a PNG, JPEG, GIF or WebP image");
    };
    Ok(Attachment::Image { mime, data: STANDARD.encode(bytes), name })
}

fn image_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

fn file_uri(path: &Path) -> String {
    wire::acp::file_uri::encode(&path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mentioned_files_are_found_where_they_exist() {
        let directory = tempfile::tempdir_in(crate::env::temporary()).unwrap();
        std::fs::write(directory.path().join("a.txt"), "").unwrap();
        std::fs::create_dir(directory.path().join("src")).unwrap();
        let text = "See @a.txt, (@src) and @a.txt. Mail me@host or @nobody.";
        let names = ["a.txt", "src"].map(|name| directory.path().join(name));
        assert_eq!(mentioned(text, directory.path()), names);
    }

    #[test]
    fn images_are_recognised_by_their_first_bytes() {
        assert_eq!(image_type(b"\x89PNG\r\n"), Some("image/png"));
        assert_eq!(image_type(b"RIFF\0\0\0\0WEBPVP8 "), Some("image/webp"));
        assert_eq!(image_type(b"RIFF\0\0\0\0WAVE"), None);
        assert_eq!(image_type(b""), None);
    }
}
