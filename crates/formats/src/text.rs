//! Text files, plain or `.xz`. A damaged `.xz` gives the text that could be decoded.

use crate::error::{Diagnostic, FormatError};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// A text file as read.
#[derive(Clone, Debug)]
pub struct Text {
    /// The file that was found (with or without `.xz`).
    pub path: PathBuf,
    /// Its contents; bytes that are not UTF-8 are replaced.
    pub text: String,
    /// Damage.
    pub diagnostics: Vec<Diagnostic>,
}

/// Reads `dir/name` or, if that is not there, `dir/name.xz`; `None` if neither is.
pub fn read_text(dir: &Path, name: &str) -> Result<Option<Text>, FormatError> {
    let plain = dir.join(name);
    let packed = dir.join(format!("{name}.xz"));
    let (path, xz) = match (plain.is_file(), packed.is_file()) {
        (true, _) => (plain, false),
        (false, true) => (packed, true),
        (false, false) => return Ok(None),
    };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(&path).map_err(|e| FormatError::io(&path, e))?;
    BufReader::new(file).read_to_end(&mut bytes).map_err(|e| FormatError::io(&path, e))?;
    let mut diagnostics = Vec::new();
    if xz {
        let (out, complaint) = crate::xz::decompress(&bytes);
        if let Some(e) = complaint {
            if out.is_empty() {
                return Err(FormatError::syntax(&path, 0, e, "an .xz file"));
            }
            diagnostics.push(Diagnostic {
                path: path.clone(),
                line: 0,
                text: format!("damaged .xz ({e}); read {} bytes of text", out.len()),
            });
        }
        bytes = out;
    }
    let text = match String::from_utf8(bytes) {
        Ok(s) => s,
        Err(e) => {
            let at = e.utf8_error().valid_up_to();
            diagnostics.push(Diagnostic {
                path: path.clone(),
                line: 1 + e.as_bytes()[..at].iter().filter(|&&b| b == b'\n').count() as u64,
                text: "bytes that are not UTF-8 were replaced".into(),
            });
            String::from_utf8_lossy(e.as_bytes()).into_owned()
        }
    };
    Ok(Some(Text { path, text, diagnostics }))
}

/// As [`read_text`], where the file has to be there.
pub fn need_text(dir: &Path, name: &str) -> Result<Text, FormatError> {
    read_text(dir, name)?
        .ok_or_else(|| FormatError::missing(dir, name, format!("{name} or {name}.xz")))
}
