//! Pages of the kernel's ring buffer.
//!
//! Facts: include/linux/ring_buffer.h and tracefs `events/header_page`, `events/header_event` of
//! Linux. A page begins with a time and the number of its bytes in use; each event has a length
//! and the time since the one before.

use super::bytes::Bytes;

/// Lengths that mean something else.
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
const DELTA_BITS: u32 = 27;
const DELTA_MASK: u32 = (1 << DELTA_BITS) - 1;
/// Flags beside the number of bytes in use.
const MISSED: u64 = 1 << 31;
const MISSED_STORED: u64 = 1 << 30;
/// Bits of a time that a time stamp does not hold.
const STAMP_BITS: u32 = 59;

/// Where things are in a page, from the text of `header_page`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    commit: usize,
    commit_size: usize,
    data: usize,
}

impl Default for Layout {
    /// Of 64-bit kernels.
    fn default() -> Layout {
        Layout { commit: 8, commit_size: 8, data: 16 }
    }
}

impl Layout {
    /// Reads a text such as `field: local_t commit; offset:8; size:8;`.
    pub fn parse(text: &[u8]) -> Option<Layout> {
        let text = String::from_utf8_lossy(text);
        let field = |name: &str| {
            let line =
                text.lines().find(|l| l.split(';').next().is_some_and(|d| d.ends_with(name)))?;
            let part = |key: &str| {
                let value = line.split(';').find_map(|p| p.trim().strip_prefix(key))?;
                value.trim().parse::<usize>().ok()
            };
            Some((part("offset:")?, part("size:")?))
        };
        let (commit, commit_size) = field(" commit")?;
        let (data, _) = field(" data")?;
        let sound = [4, 8].contains(&commit_size) && commit < 256 && data < 256;
        sound.then_some(Layout { commit, commit_size, data })
    }
}

/// What is wrong with a page, and at which of its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Damage {
    pub at: usize,
    pub what: &'static str,
}

/// What a page says beside its events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Page {
    /// Events were lost before it; how many, where that is known.
    pub missed: Option<Option<u64>>,
}

/// Calls `each` with time and data of every event of a page.
pub(super) fn events(
    page: Bytes,
    layout: Layout,
    mut each: impl FnMut(u64, Bytes, usize),
) -> Result<Page, Damage> {
    let damage = |at, what| Damage { at, what };
    let short = damage(0, "a page that is too short for its header");
    let mut time = page.u64(0).ok_or(short)?;
    let commit = page.uint(layout.commit, layout.commit_size).ok_or(short)?;
    let used = (commit & u64::from(DELTA_MASK)) as usize;
    let data = page.from(layout.data).ok_or(short)?;
    let missed = (commit & MISSED != 0).then(|| match commit & MISSED_STORED {
        0 => None,
        _ => data.uint(used, layout.commit_size),
    });
    let Some(events) = data.part(0, used) else {
        return Err(damage(layout.commit, "a page that says it holds more than fits"));
    };
    let mut at = 0;
    while at < used {
        let from = layout.data + at;
        let (length, delta) = header(events, at).ok_or(damage(from, "the header of an event"))?;
        at += 4;
        let cut = damage(from, "an event that is longer than what its page holds");
        let long = u64::from(delta);
        match length {
            PADDING if delta == 0 => break,
            PADDING => {
                time = time.wrapping_add(long);
                at = at.checked_add(events.u32(at).ok_or(cut)? as usize).ok_or(cut)?;
            }
            TIME_EXTEND => {
                let more = u64::from(events.u32(at).ok_or(cut)?) << DELTA_BITS;
                time = time.wrapping_add(more | long);
                at += 4;
            }
            TIME_STAMP => {
                let more = u64::from(events.u32(at).ok_or(cut)?) << DELTA_BITS;
                time = time >> STAMP_BITS << STAMP_BITS | more | long;
                at += 4;
            }
            _ => {
                let (skip, size) = match length {
                    0 => (4, (events.u32(at).ok_or(cut)? as usize).checked_sub(4).ok_or(cut)?),
                    words => (0, words as usize * 4),
                };
                time = time.wrapping_add(long);
                let data = events.part(at + skip, size).ok_or(cut)?;
                each(time, data, from);
                at += skip + size.next_multiple_of(4);
            }
        }
    }
    Ok(Page { missed })
}

/// Length field and time of the event at `at`. The fields of the word follow the byte order.
fn header(b: Bytes, at: usize) -> Option<(u32, u32)> {
    let word = b.u32(at)?;
    Some(match b.big {
        false => (word & 31, word >> 5),
        true => (word >> DELTA_BITS, word & DELTA_MASK),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(words: &[u32], commit: u64, big: bool) -> Vec<u8> {
        let ends = |n: u64, size: usize| match big {
            true => n.to_be_bytes()[8 - size..].to_vec(),
            false => n.to_le_bytes()[..size].to_vec(),
        };
        let mut out = [ends(1 << 60 | 1_000, 8), ends(commit, 8)].concat();
        words.iter().for_each(|w| out.extend(ends((*w).into(), 4)));
        out.resize(256, 0);
        out
    }

    /// One event of each kind; times checked by hand.
    #[test]
    fn every_kind_of_event() {
        let words = |big: bool| {
            let w = |length: u32, delta: u32| match big {
                true => length << 27 | delta,
                false => delta << 5 | length,
            };
            vec![
                w(1, 5),
                7, // 4 bytes, 5 ns on
                w(TIME_EXTEND, 3),
                2, // 2 << 27 | 3 ns on
                w(0, 1),
                4 + 6,
                8,
                9, // 6 bytes in two words
                w(PADDING, 1),
                8,
                0, // stepped over
                w(TIME_STAMP, 1),
                1 << 3, // 1 << 30 | 1, with the top bits of the page
                w(2, 0),
                10,
                11, // 8 bytes
                w(PADDING, 0),
                0xffff_ffff, // the end
            ]
        };
        for big in [false, true] {
            let words = words(big);
            let bytes = page(&words, (4 * words.len() as u64) | MISSED, big);
            let mut found = vec![];
            let said = events(Bytes { of: &bytes, big }, Layout::default(), |time, data, _| {
                found.push((time, data.len(), data.u32(0).unwrap()));
            });
            assert_eq!(said, Ok(Page { missed: Some(None) }));
            let base = 1 << 60 | 1_000;
            let far = base + 5 + (2 << 27 | 3) + 1;
            let stamp = (1 << 60 | 1 << 30) + 1;
            assert_eq!(found, [(base + 5, 4, 7), (far, 6, 8), (stamp, 8, 10)], "big: {big}");
        }
    }

    #[test]
    fn damage_has_a_place() {
        let read = |words: &[u32], commit| {
            let bytes = page(words, commit, false);
            events(Bytes { of: &bytes, big: false }, Layout::default(), |_, _, _| {})
        };
        assert_eq!(read(&[], 241).unwrap_err().at, 8);
        assert_eq!(read(&[1, 0, 20], 12).unwrap_err().at, 24);
        assert_eq!(read(&[0, 2, 0], 12).unwrap_err().at, 16);
        assert_eq!(read(&[0, 0xffff_ffff, 0], 12).unwrap_err().at, 16);
        let text = [
            "field: u64 timestamp;\toffset:0;\tsize:8;",
            "field: local_t commit;\toffset:8;\tsize:4;",
            "field: int overwrite;\toffset:8;\tsize:1;",
            "field: char data;\toffset:12;\tsize:9;",
        ];
        let text = text.join("\n").into_bytes();
        let layout = Layout { commit: 8, commit_size: 4, data: 12 };
        assert_eq!(Layout::parse(&text), Some(layout));
    }
}
