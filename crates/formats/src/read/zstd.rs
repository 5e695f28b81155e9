//! zstd, a block at a time: memory is bounded by the window of the stream, whatever it unpacks to.

use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Bytes a stream may refer back to: what `zstd --ultra` uses at most.
const WINDOW_MAX: u64 = 128 << 20;
/// No recording shrinks to less than a part in this, once it is longer than [`FREE`].
const RATIO: u64 = 1000;
const FREE: u64 = 64 << 20;
/// The frame header at its longest.
const HEADER_MAX: usize = 18;
/// A last block with nothing in it.
const END: [u8; 3] = [1, 0, 0];

/// Unpacks what comes in pieces.
pub(super) struct Unpacker {
    decoder: FrameDecoder,
    begun: bool,
    /// What is not a whole block yet.
    pending: Vec<u8>,
    /// Bytes that came and that were handed over.
    packed: u64,
    given: u64,
}

impl Default for Unpacker {
    fn default() -> Unpacker {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(WINDOW_MAX);
        Unpacker { decoder, begun: false, pending: vec![], packed: 0, given: 0 }
    }
}

impl Unpacker {
    /// True if nothing came yet.
    pub fn is_new(&self) -> bool {
        !self.begun && self.pending.is_empty()
    }

    /// Takes in a piece, and hands over what can be unpacked. The last of it may be held back until
    /// more comes or [`Unpacker::finish`]. An error is final.
    pub fn push(&mut self, piece: &[u8], mut out: impl FnMut(&[u8])) -> Result<(), String> {
        self.packed += piece.len() as u64;
        self.pending.extend_from_slice(piece);
        let mut pending = std::mem::take(&mut self.pending);
        let used = self.blocks(&pending, &mut out)?;
        pending.drain(..used);
        self.pending = pending;
        Ok(())
    }

    /// Hands over what was held back.
    pub fn finish(&mut self, mut out: impl FnMut(&[u8])) -> Result<(), String> {
        if self.begun {
            let rest = std::mem::take(&mut self.pending).len();
            // With room for the checksum, which is not compared.
            let end: Vec<u8> = END.into_iter().chain([0; 4]).collect();
            self.blocks(&end, &mut out)?;
            if rest > 0 {
                return Err(format!("{rest} bytes are no whole block"));
            }
        }
        Ok(())
    }

    /// Unpacks whole blocks and says how many bytes they were.
    fn blocks(&mut self, bytes: &[u8], out: &mut impl FnMut(&[u8])) -> Result<usize, String> {
        let mut rest = bytes;
        loop {
            if !self.begun {
                if rest.is_empty() || rest.len() < HEADER_MAX && !self.whole_header(rest) {
                    break;
                }
                self.decoder.init(&mut rest).map_err(|e| e.to_string())?;
                self.begun = true;
            }
            let Some(&[a, b, c]) = rest.first_chunk::<3>() else { break };
            let header = u32::from_le_bytes([a, b, c, 0]);
            let (last, kind, size) = (header & 1 == 1, header >> 1 & 3, (header >> 3) as usize);
            let stored = if kind == 1 { 1 } else { size };
            let sum = if last { 4 } else { 0 };
            if rest.len() < 3 + stored {
                break;
            }
            // The checksum behind the last block may be there or not.
            let mut block = rest[3 + stored..].len().min(sum);
            block += 3 + stored;
            let mut source = &rest[..block];
            self.decoder
                .decode_blocks(&mut source, BlockDecodingStrategy::UptoBlocks(1))
                .map_err(|e| e.to_string())?;
            rest = &rest[block - source.len()..];
            if let Some(unpacked) = self.decoder.collect() {
                self.given += unpacked.len() as u64;
                out(&unpacked);
            }
            if self.given > FREE && self.given / RATIO > self.packed {
                return Err(format!("it unpacks to more than {RATIO} times its size"));
            }
            self.begun = !self.decoder.is_finished();
        }
        Ok(bytes.len() - rest.len())
    }

    /// True if `bytes` hold the whole header of a frame.
    fn whole_header(&self, bytes: &[u8]) -> bool {
        let Some(&descriptor) = bytes.get(4) else { return false };
        let single = descriptor >> 5 & 1 == 1;
        let window = usize::from(!single);
        let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
        let size = match descriptor >> 6 {
            0 => usize::from(single),
            n => 1 << n,
        };
        bytes.len() >= 5 + window + dictionary + size
    }
}

/// Unpacks a whole frame that should unpack to `size` bytes.
pub(super) fn unpack(frame: &[u8], size: usize) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let mut unpacker = Unpacker::default();
    let mut put = |bytes: &[u8]| {
        out.extend_from_slice(&bytes[..bytes.len().min(size - out.len())]);
    };
    unpacker.push(frame, &mut put)?;
    unpacker.finish(&mut put)?;
    match out.len() {
        n if n == size => Ok(out),
        n => Err(format!("{n} bytes instead of {size}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    #[test]
    fn pieces_of_any_size_give_the_whole() {
        let text: Vec<u8> = (0..90_000u32).flat_map(|i| format!("{i},").into_bytes()).collect();
        let packed = compress_to_vec(text.as_slice(), CompressionLevel::Fastest);
        for size in [1, 7, 4_000, packed.len()] {
            let mut unpacker = Unpacker::default();
            let mut out = vec![];
            for piece in packed.chunks(size) {
                unpacker.push(piece, |b| out.extend_from_slice(b)).unwrap();
            }
            unpacker.finish(|b| out.extend_from_slice(b)).unwrap();
            assert!(out == text, "pieces of {size}");
        }
        assert!(unpack(&packed, text.len()).unwrap() == text);
        assert!(unpack(&packed, text.len() + 1).is_err());
        assert!(unpack(&packed[..packed.len() - 1], text.len()).is_err());
    }

    #[test]
    fn zeros_without_end_are_refused() {
        let packed = compress_to_vec(vec![0u8; 100 << 20].as_slice(), CompressionLevel::Fastest);
        let mut given = 0;
        let error = Unpacker::default().push(&packed, |b| given += b.len()).unwrap_err();
        assert!(given < 70 << 20 && error.contains("1000 times"), "{given} {error}");
    }

    #[test]
    fn a_stream_that_does_not_end_gives_what_is_there() {
        let text: Vec<u8> = (0..90_000u32).flat_map(|i| format!("{i},").into_bytes()).collect();
        let packed = compress_to_vec(text.as_slice(), CompressionLevel::Fastest);
        let mut unpacker = Unpacker::default();
        let mut out = vec![];
        unpacker.push(&packed[..packed.len() * 2 / 3], |b| out.extend_from_slice(b)).unwrap();
        let _ = unpacker.finish(|b| out.extend_from_slice(b));
        assert!(text.starts_with(&out) && out.len() > 200_000, "{}", out.len());
    }
}
