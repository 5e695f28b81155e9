//! Bytes of one byte order.

/// A part of a file. Whatever is asked for beyond its end is `None`.
#[derive(Clone, Copy)]
pub(super) struct Bytes<'a> {
    pub of: &'a [u8],
    pub big: bool,
}

impl<'a> Bytes<'a> {
    pub fn len(&self) -> usize {
        self.of.len()
    }
    pub fn part(&self, at: usize, length: usize) -> Option<Bytes<'a>> {
        Some(Bytes { of: self.of.get(at..at.checked_add(length)?)?, big: self.big })
    }
    pub fn from(&self, at: usize) -> Option<Bytes<'a>> {
        Some(Bytes { of: self.of.get(at..)?, big: self.big })
    }
    fn word<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        let mut word = *self.of.get(at..)?.first_chunk::<N>()?;
        if self.big {
            word.reverse();
        }
        Some(word)
    }
    pub fn u16(&self, at: usize) -> Option<u16> {
        self.word(at).map(u16::from_le_bytes)
    }
    pub fn u32(&self, at: usize) -> Option<u32> {
        self.word(at).map(u32::from_le_bytes)
    }
    pub fn u64(&self, at: usize) -> Option<u64> {
        self.word(at).map(u64::from_le_bytes)
    }
    /// A number of `size` bytes without a sign.
    pub fn uint(&self, at: usize, size: usize) -> Option<u64> {
        match size {
            1 => self.of.get(at).map(|b| u64::from(*b)),
            2 => self.u16(at).map(u64::from),
            4 => self.u32(at).map(u64::from),
            8 => self.u64(at),
            _ => None,
        }
    }
    /// A size or place that the file states.
    pub fn size(&self, at: usize) -> Option<usize> {
        usize::try_from(self.u64(at)?).ok()
    }
    /// Up to the first 0.
    pub fn string(&self, at: usize, length: usize) -> Option<&'a [u8]> {
        let bytes = self.part(at, length)?.of;
        Some(&bytes[..bytes.iter().position(|&b| b == 0).unwrap_or(length)])
    }
}
