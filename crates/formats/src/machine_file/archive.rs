//! Tar archives, and files compressed with gzip, bzip2 or xz.

use super::wrong;
use crate::error::FileError;
use std::io::{self, Read};
use std::path::Path;

/// No machine's file comes near, decompressed.
const MAX_MIB: u64 = 64;
/// What was expected of a damaged file.
const WHOLE: &str = "a whole one";
/// A file in sysfs is a page.
const MAX_FILE: u64 = 64 << 10;

/// What `file` holds, decompressed if it is compressed; an error if it is larger than any such
/// file, as a device may be.
pub(super) fn read(path: &Path, file: impl Read) -> Result<Vec<u8>, FileError> {
    let failed = |source| FileError::read(path, source);
    let packed = bounded(path, file, failed)?;
    let damaged = |kind: &'static str| {
        move |e| wrong(path, None, format!("{kind} data that cannot be unpacked ({e})"), WHOLE)
    };
    if packed.starts_with(b"\x1f\x8b") {
        bounded(path, flate2::read::MultiGzDecoder::new(&packed[..]), damaged("gzip"))
    } else if packed.starts_with(b"BZh") {
        bounded(path, bzip2::read::MultiBzDecoder::new(&packed[..]), damaged("bzip2"))
    } else if packed.starts_with(b"\xfd7zXZ\0") {
        bounded(path, crate::xz::reader(&packed[..]), damaged("xz"))
    } else {
        Ok(packed)
    }
}

fn bounded(
    path: &Path,
    from: impl Read,
    failed: impl Fn(io::Error) -> FileError,
) -> Result<Vec<u8>, FileError> {
    let mut out = Vec::new();
    let read = from.take((MAX_MIB << 20) + 1).read_to_end(&mut out).map_err(failed)?;
    if read as u64 > MAX_MIB << 20 {
        return Err(wrong(path, None, format!("more than {MAX_MIB} MiB"), "a machine"));
    }
    Ok(out)
}

/// True if `bytes` are a tar archive.
pub(super) fn is_tar(bytes: &[u8]) -> bool {
    bytes.get(257..262) == Some(b"ustar")
}

/// The names and texts of the files in a tar archive that `wanted` names.
pub(super) fn unpack(
    path: &Path,
    bytes: &[u8],
    wanted: impl Fn(&str) -> bool,
) -> Result<Vec<(String, String)>, FileError> {
    let failed = |e: io::Error| {
        wrong(path, None, format!("a tar archive that cannot be read to its end ({e})"), WHOLE)
    };
    let mut archive = tar::Archive::new(bytes);
    let mut found = Vec::new();
    for entry in archive.entries().map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        if !entry.header().entry_type().is_file() || !wanted(&name) {
            continue;
        }
        let mut text = Vec::new();
        // tar stores a sysfs file as long as it pretends to be, filled with zeros.
        entry.take(MAX_FILE).read_to_end(&mut text).map_err(failed)?;
        let text = String::from_utf8_lossy(&text);
        found.push((name, text.trim_end_matches('\0').to_string()));
    }
    Ok(found)
}
