//! Pictures, recognised by their first bytes and read from the disk: an editor has only text.

use std::io::Read;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use engine::ports::Output;
use engine::words::{Block, Media, ToolContent};

use crate::error::Error;
use crate::scope::Target;

/// The largest picture. As base64 it is within what one call may send to a model; the provider scales it down.
const MAX_PICTURE: u64 = 7 * 1024 * 1024;
/// How many bytes are needed to recognise a picture.
const HEAD: usize = 12;

/// A picture.
pub(super) struct Picture {
    kind: Kind,
    bytes: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Png,
    Jpeg,
    Gif,
    WebP,
}

impl Kind {
    fn of(head: &[u8]) -> Option<Kind> {
        match head {
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some(Kind::Png),
            [0xff, 0xd8, 0xff, ..] => Some(Kind::Jpeg),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(Kind::Gif),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Kind::WebP),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Kind::Png => "PNG",
            Kind::Jpeg => "JPEG",
            Kind::Gif => "GIF",
            Kind::WebP => "WebP",
        }
    }

    fn mime(self) -> &'static str {
        match self {
            Kind::Png => "image/png",
            Kind::Jpeg => "image/jpeg",
            Kind::Gif => "image/gif",
            Kind::WebP => "image/webp",
        }
    }
}

impl Picture {
    /// Reads a file if it is a picture. Blocks.
    pub(super) fn read(target: &Target, size: u64) -> Result<Option<Picture>, Error> {
        let of = |err| Error::of(target.name(), err);
        let mut file = target.open_file().map_err(of)?;
        let mut bytes = Vec::with_capacity(HEAD);
        (&mut file).take(HEAD as u64).read_to_end(&mut bytes).map_err(of)?;
        let Some(kind) = Kind::of(&bytes) else { return Ok(None) };
        // It may have grown since it was checked, and must not fill the memory.
        file.take(MAX_PICTURE).read_to_end(&mut bytes).map_err(of)?;
        let size = size.max(bytes.len() as u64);
        if size > MAX_PICTURE {
            let name = target.name().to_owned();
            return Err(Error::PictureTooLarge { name, bytes: size, limit: MAX_PICTURE });
        }
        Ok(Some(Picture { kind, bytes }))
    }

    /// Returns what the user and the model see.
    pub(super) fn output(self, target: &Target, model_sees: bool) -> Output {
        let about = format!(
            "{} is a {} picture ({} KB)",
            target.name(),
            self.kind.name(),
            self.bytes.len().div_ceil(1024)
        );
        if !model_sees {
            let text = format!(
                "{about}. This model does not accept images, so you cannot see it. Say so, and ask the user to describe it \
                 or to choose a model that accepts images"
            );
            let content = Some(vec![ToolContent::Block(Block::Text(text.clone()))]);
            return Output { text, content, raw: None };
        }
        let data = STANDARD.encode(&self.bytes);
        let picture = Block::Image(Media { data, mime: self.kind.mime().to_owned() });
        let text = format!("{about}; it is shown below the results");
        Output { text, content: Some(vec![ToolContent::Block(picture)]), raw: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_recognised_by_their_first_bytes() {
        for (head, kind) in [
            (&b"\x89PNG\r\n\x1a\n\0\0\0\r"[..], Kind::Png),
            (b"\xff\xd8\xff\xe0", Kind::Jpeg),
            (b"GIF89a", Kind::Gif),
            (b"RIFF\x10\0\0\0WEBPVP8 ", Kind::WebP),
        ] {
            assert_eq!(Kind::of(head), Some(kind));
        }
        for head in [&b""[..], b"GIF is a format", b"RIFF....WAVE", b"\x89PNG", b"\xff\xd8"] {
            assert_eq!(Kind::of(head), None);
        }
    }
}
