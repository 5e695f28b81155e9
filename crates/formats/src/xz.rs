//! Reading `.xz`. What stands before damage is read; one that unpacks to an absurd size is damaged.

use lzma_rust2::XzReader;
use std::io::{self, BufReader, Read};

/// KiB that a file may ask for: twice what `xz -9` does.
const MEMORY_KIB: u32 = 128 << 10;
/// No recording or text shrinks to less than a part in this, once it is longer than [`FREE`].
const RATIO: u64 = 1000;
const FREE: u64 = 64 << 20;
/// Bytes that are unpacked at once: what the decoder has of them when it meets damage is lost.
const PIECE: usize = 1 << 10;

/// What an `.xz` file holds; with the decoder's complaint if that is not all.
pub fn decompress(bytes: &[u8]) -> (Vec<u8>, Option<String>) {
    let mut out = Vec::new();
    let read = reader(bytes).read_to_end(&mut out);
    (out, read.err().map(|e| e.to_string()))
}

/// What an `.xz` file holds. An error comes after what stands before the damage, less [`PIECE`].
pub(crate) fn reader<R: Read>(packed: R) -> impl Read {
    let packed = BufReader::with_capacity(1 << 16, Counted { of: packed, read: 0 });
    Unpacked { xz: XzReader::new_mem_limit(packed, true, MEMORY_KIB), given: 0 }
}

/// Counts what is read through it.
pub(crate) struct Counted<R> {
    pub of: R,
    pub read: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let n = self.of.read(to)?;
        self.read += n as u64;
        Ok(n)
    }
}

struct Unpacked<R: Read> {
    xz: XzReader<BufReader<Counted<R>>>,
    given: u64,
}

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let damaged = |text| io::Error::new(io::ErrorKind::InvalidData, text);
        let piece = to.len().min(PIECE);
        let n = self
            .xz
            .read(&mut to[..piece])
            .map_err(|e| damaged(format!("the .xz is damaged ({e})")))?;
        self.given += n as u64;
        if self.given > FREE && self.given / RATIO > self.xz.inner().get_ref().read {
            return Err(damaged(format!("the .xz unpacks to more than {RATIO} times its size")));
        }
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lzma_rust2::{XzOptions, XzWriter};
    use std::io::Write;

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut out = XzWriter::new(vec![], XzOptions::with_preset(1)).unwrap();
        out.write_all(bytes).unwrap();
        out.finish().unwrap()
    }

    #[test]
    fn whole_damaged_and_foreign_files() {
        let text: Vec<u8> =
            (0..40_000u32).flat_map(|i| format!("{}\n", i * i).into_bytes()).collect();
        let packed = packed(&text);
        assert_eq!(decompress(&packed), (text.clone(), None));
        let (part, complaint) = decompress(&packed[..packed.len() / 2]);
        assert!(text.starts_with(&part) && part.len() > 150_000 && complaint.is_some());
        // The last bytes are the index and a check sum: what they cover is all there.
        let (part, complaint) = decompress(&packed[..packed.len() - 1]);
        assert!(part == text && complaint.is_some());
        for foreign in [&b"no xz"[..], b""] {
            let (part, complaint) = decompress(foreign);
            assert!(part.is_empty() && complaint.is_some());
        }
    }

    #[test]
    fn zeros_without_end_are_refused() {
        let (part, complaint) = decompress(&packed(&vec![0; 100 << 20]));
        assert!(part.len() < 80 << 20);
        assert_eq!(complaint.unwrap(), "the .xz unpacks to more than 1000 times its size");
    }
}
