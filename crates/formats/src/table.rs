//! A table of integers addressed by column name, with one column of words (the event).
//!
//! Trailing cells may be left away (rows of an event that has nothing to say there). Lines that do
//! not fit (a needed cell missing, a cell that is no number, a last line that was cut) are left
//! out, each with a diagnostic; a table without its header or a needed column is an error.

use crate::error::{Diagnostic, FormatError};
use crate::text::Text;

/// Cells that are empty.
pub const EMPTY: i64 = i64::MIN;
const MOST_DIAGNOSTICS: usize = 20;
/// More words than there are kinds of events; what has more has something else in that column.
const MOST_WORDS: usize = 300;

/// Position of a column in a [`Table`]; a column that the file does not have reads as [`EMPTY`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Column(usize);

/// Rows of integers.
#[derive(Clone, Debug, Default)]
pub struct Table {
    names: Vec<String>,
    words: Vec<String>,
    cells: Vec<i64>,
    lines: Vec<u64>,
    word_of_row: Vec<u16>,
}

impl Table {
    /// Reads `t`. `word` names the column that holds a word; it and all of `needed` must exist.
    /// A row with less than `least` in one of these columns is left out; an empty cell is 0 there.
    pub fn parse(
        t: &Text,
        word: &str,
        needed: &[&str],
        least: &[(&str, i64)],
        diagnostics: &mut Vec<Diagnostic>,
    ) -> Result<Table, FormatError> {
        let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(t.text.as_bytes());
        let header = reader
            .headers()
            .map_err(|e| FormatError::syntax(&t.path, 1, e.to_string(), "a line of column names"))?
            .clone();
        let names: Vec<String> = header.iter().map(|s| s.trim().to_owned()).collect();
        for n in needed.iter().chain([&word]) {
            if !names.iter().any(|x| x == n) {
                let found = format!("columns {}", names.join(","));
                return Err(FormatError::syntax(&t.path, 1, found, format!("a column {n}")));
            }
        }
        let word_at = names.iter().position(|x| x == word).unwrap_or(0);
        let at = |n: &&str| names.iter().position(|x| x == n);
        let narrowest = needed.iter().filter_map(at).max().unwrap_or(0).max(word_at) + 1;
        let bounds: Vec<_> = least.iter().filter_map(|(n, v)| Some((at(n)?, *v))).collect();
        let lines = 1 + t.text.lines().count() as u64;
        let cut = (!t.text.ends_with('\n')).then_some(lines - 1);
        let mut table = Table { names, ..Table::default() };
        let mut left_out = 0;
        let mut record = csv::StringRecord::new();
        loop {
            match reader.read_record(&mut record) {
                Ok(false) => break,
                Ok(true) => {}
                Err(e) => {
                    note(diagnostics, t, 0, format!("cannot read on: {e}"), &mut left_out);
                    break;
                }
            }
            let line = record.position().map_or(0, |p| p.line());
            if Some(line) == cut {
                let text = "the line has no end (the file was cut); left out".to_owned();
                note(diagnostics, t, line, text, &mut left_out);
            } else if let Err(text) = table.push(&record, word_at, narrowest, &bounds, line) {
                note(diagnostics, t, line, text, &mut left_out);
            } else if table.words.len() > MOST_WORDS {
                let found = format!("more than {MOST_WORDS} words as {word}");
                return Err(FormatError::syntax(&t.path, line, found, "names of events"));
            }
        }
        if left_out > MOST_DIAGNOSTICS {
            diagnostics.push(Diagnostic {
                path: t.path.clone(),
                line: 0,
                text: format!("{left_out} lines left out in all"),
            });
        }
        Ok(table)
    }

    fn push(
        &mut self,
        r: &csv::StringRecord,
        word_at: usize,
        narrowest: usize,
        bounds: &[(usize, i64)],
        line: u64,
    ) -> Result<(), String> {
        let width = self.names.len();
        if r.len() < narrowest || r.len() > width {
            let n = r.len();
            return Err(format!("{n} cells; expected {narrowest} to {width}; line left out"));
        }
        let start = self.cells.len();
        for (i, cell) in r.iter().enumerate() {
            let v = if i == word_at || cell.is_empty() { Some(EMPTY) } else { number(cell) };
            let Some(v) = v else {
                self.cells.truncate(start);
                let name = &self.names[i];
                return Err(format!("{name} is \"{cell}\"; expected a number; line left out"));
            };
            self.cells.push(v);
        }
        self.cells.resize(start + width, EMPTY);
        let value = |i: usize| Some(self.cells[start + i]).filter(|&v| v != EMPTY).unwrap_or(0);
        let outside = |(i, v): &&(usize, i64)| value(*i) < *v;
        if let Some(&(i, least)) = bounds.iter().find(outside) {
            self.cells.truncate(start);
            let (name, cell) = (&self.names[i], r.get(i).unwrap_or(""));
            return Err(format!("{name} is \"{cell}\"; expected {least} or more; line left out"));
        }
        let w = r.get(word_at).unwrap_or("");
        let w = match self.words.iter().position(|x| x == w) {
            Some(i) => i,
            None => {
                self.words.push(w.to_owned());
                self.words.len() - 1
            }
        };
        self.word_of_row.push(w as u16);
        self.lines.push(line);
        Ok(())
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.lines.len()
    }
    /// True if there is no row.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
    /// The file has a column of this name.
    pub fn has(&self, name: &str) -> bool {
        self.names.iter().any(|n| n == name)
    }
    /// The column of this name (or one that is always empty).
    pub fn column(&self, name: &str) -> Column {
        Column(self.names.iter().position(|n| n == name).unwrap_or(usize::MAX))
    }
    /// The cell, or [`EMPTY`].
    pub fn get(&self, row: usize, c: Column) -> i64 {
        if c.0 == usize::MAX { EMPTY } else { self.cells[row * self.names.len() + c.0] }
    }
    /// The word of a row.
    pub fn word(&self, row: usize) -> &str {
        &self.words[self.word_of_row[row] as usize]
    }
    /// Each word with the line that has it first and the number of rows that have it.
    pub fn words(&self) -> impl Iterator<Item = (&str, u64, usize)> {
        let mut of = vec![(0, 0); self.words.len()];
        for (&w, &line) in self.word_of_row.iter().zip(&self.lines) {
            let (first, rows) = &mut of[usize::from(w)];
            *rows += 1;
            *first = if *rows == 1 { line } else { *first };
        }
        self.words.iter().zip(of).map(|(w, (first, rows))| (&w[..], first, rows))
    }
    /// The line in the file, from 1.
    pub fn line(&self, row: usize) -> u64 {
        self.lines[row]
    }
}

/// Signed 64 bits; values above (`unsigned long` in the kernel) keep their bit pattern.
fn number(cell: &str) -> Option<i64> {
    let cell = cell.trim();
    cell.parse::<i64>().ok().or_else(|| cell.parse::<u64>().ok().map(|u| u as i64))
}

fn note(d: &mut Vec<Diagnostic>, t: &Text, line: u64, text: String, left_out: &mut usize) {
    *left_out += 1;
    if *left_out <= MOST_DIAGNOSTICS {
        d.push(Diagnostic { path: t.path.clone(), line, text });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(s: &str) -> Text {
        Text { path: "x.csv".into(), text: s.into(), diagnostics: vec![] }
    }

    #[test]
    fn damaged_lines_are_left_out_and_named() {
        let t = text("t,event,v\n1,switch,18446744073709551615\n2\n3,wakeup,x\n4,wakeup\n5,wak");
        let mut d = vec![];
        let table = Table::parse(&t, "event", &["t"], &[], &mut d).unwrap();
        assert_eq!(table.len(), 2);
        assert_eq!(table.get(0, table.column("v")), -1);
        assert_eq!(table.get(1, table.column("v")), EMPTY);
        assert_eq!(table.get(1, table.column("absent")), EMPTY);
        assert_eq!((table.word(1), table.line(1)), ("wakeup", 5));
        let said: Vec<String> = d.iter().map(|d| d.to_string()).collect();
        assert_eq!(
            said,
            [
                "x.csv:3: 1 cells; expected 2 to 3; line left out",
                "x.csv:4: v is \"x\"; expected a number; line left out",
                "x.csv:6: the line has no end (the file was cut); left out"
            ]
        );
    }

    #[test]
    fn a_missing_column_is_an_error() {
        let e = Table::parse(&text("a,event\n"), "event", &["t"], &[], &mut vec![]).unwrap_err();
        assert_eq!(e.to_string(), "x.csv:1: found columns a,event; expected a column t");
    }

    /// They had numbers of 16 bits, and each was looked for among all before.
    #[test]
    fn a_column_of_ever_new_words_is_refused() {
        let rows: String = (0..=MOST_WORDS).map(|i| format!("{i},w{i}\n")).collect();
        let all = text(&("t,event\n".to_owned() + &rows));
        let e = Table::parse(&all, "event", &["t"], &[], &mut vec![]).unwrap_err();
        let said = "x.csv:302: found more than 300 words as event; expected names of events";
        assert_eq!(e.to_string(), said);
    }

    #[test]
    fn what_is_below_its_least_value_is_left_out() {
        let t = text("t,event,n\n0,switch,1\n1,switch,-1\n1,switch,0\n,switch,0\n7,switch\n");
        let mut d = vec![];
        let table = Table::parse(&t, "event", &["t"], &[("t", 1), ("n", 0)], &mut d).unwrap();
        assert_eq!((table.len(), table.line(0), table.line(1)), (2, 4, 6));
        assert_eq!(table.words().collect::<Vec<_>>(), [("switch", 4, 2)]);
        let said: Vec<String> = d.iter().map(|d| d.to_string()).collect();
        assert_eq!(
            said,
            [
                "x.csv:2: t is \"0\"; expected 1 or more; line left out",
                "x.csv:3: n is \"-1\"; expected 0 or more; line left out",
                "x.csv:5: t is \"\"; expected 1 or more; line left out"
            ]
        );
    }
}
