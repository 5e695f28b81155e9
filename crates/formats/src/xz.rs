//! Reading `.xz`, damaged files included.
//!
//! A whole file goes through the decoder. If that fails, the LZMA2 chunks of the first block are
//! walked and the longest run of whole chunks that decodes is taken: what stood before the damage.

use std::io::Cursor;

/// What an `.xz` file holds; with the decoder's complaint if that is not all.
pub fn decompress(bytes: &[u8]) -> (Vec<u8>, Option<String>) {
    let mut out = Vec::new();
    match lzma_rs::xz_decompress(&mut Cursor::new(bytes), &mut out) {
        Ok(()) => (out, None),
        Err(e) => (prefix(bytes).unwrap_or_default(), Some(format!("{e:?}"))),
    }
}

/// The text before the damage.
fn prefix(bytes: &[u8]) -> Option<Vec<u8>> {
    const STREAM_HEADER: usize = 12;
    let block_header = (usize::from(*bytes.get(STREAM_HEADER)?) + 1) * 4;
    let data = bytes.get(STREAM_HEADER + block_header..)?;
    let ends = chunk_ends(data);
    ends.iter().rev().find_map(|&end| {
        let mut whole = data[..end].to_vec();
        whole.push(0); // end of LZMA2
        let mut out = Vec::new();
        lzma_rs::lzma2_decompress(&mut Cursor::new(&whole), &mut out).ok()?;
        Some(out)
    })
}

/// Where each whole LZMA2 chunk of `data` ends.
fn chunk_ends(data: &[u8]) -> Vec<usize> {
    let mut ends = vec![];
    let mut at = 0;
    let size = |i: usize| Some(usize::from(*data.get(i)?) << 8 | usize::from(*data.get(i + 1)?));
    while let Some(&control) = data.get(at) {
        let length = match control {
            0 => break,
            1 | 2 => size(at + 1).map(|n| 3 + n + 1),
            0x80.. => size(at + 3).map(|n| 5 + usize::from(control >= 0xc0) + n + 1),
            _ => None,
        };
        match length {
            Some(n) if at + n <= data.len() => at += n,
            _ => break,
        }
        ends.push(at);
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_damaged_and_foreign_files() {
        let text: Vec<u8> =
            (0..40_000u32).flat_map(|i| format!("{}\n", i * i).into_bytes()).collect();
        let mut packed = Vec::new();
        lzma_rs::xz_compress(&mut Cursor::new(&text), &mut packed).unwrap();
        assert_eq!(decompress(&packed), (text.clone(), None));
        let (part, complaint) = decompress(&packed[..packed.len() / 2]);
        assert!(text.starts_with(&part) && part.len() > 50_000 && complaint.is_some());
        assert_eq!(decompress(b"no xz").0, b"");
        assert_eq!(decompress(b"").0, b"");
    }
}
