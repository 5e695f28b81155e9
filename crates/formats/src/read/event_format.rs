//! The kernel's own description of an event: the text of tracefs `events/*/*/format`. Offsets and
//! state letters differ from kernel to kernel, so they are always taken from here.

/// One field of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// As the kernel names it.
    pub name: String,
    /// Byte offset in the record.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
    /// The field holds offset and length of a string elsewhere in the record.
    pub data_loc: bool,
    /// The same, the offset counted from the end of the field.
    pub rel_loc: bool,
}

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFormat {
    /// As in `sched_switch`.
    pub name: String,
    /// What `common_type` holds.
    pub id: u32,
    /// In order of the text.
    pub fields: Vec<Field>,
    /// How the kernel prints it.
    pub print_fmt: String,
}

impl EventFormat {
    /// Reads a `format` file; `None` if it has no name or no id.
    pub fn parse(text: &str) -> Option<EventFormat> {
        let mut format = EventFormat::default();
        let mut id = None;
        for line in text.lines().map(str::trim) {
            if let Some(name) = line.strip_prefix("name:") {
                format.name = name.trim().to_owned();
            } else if let Some(number) = line.strip_prefix("ID:") {
                id = number.trim().parse().ok();
            } else if let Some(print) = line.strip_prefix("print fmt:") {
                format.print_fmt = print.trim().to_owned();
            } else if line.starts_with("field:") {
                format.fields.extend(field(line));
            }
        }
        format.id = id?;
        (!format.name.is_empty()).then_some(format)
    }
    /// A field by name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|f| f.name == name)
    }
    /// The bits that the kernel prints with one of `letters`, as in `{ 0x10, "X" }`.
    pub fn flag_bits(&self, letters: &str) -> u64 {
        let flags = self.flags().filter(|(_, l)| letters.contains(*l));
        flags.fold(0, |all, (bits, _)| all | bits)
    }
    /// All bits that are printed with a letter.
    pub fn all_flag_bits(&self) -> u64 {
        self.flags().fold(0, |all, (bits, _)| all | bits)
    }
    fn flags(&self) -> impl Iterator<Item = (u64, &str)> {
        self.print_fmt.split('{').skip(1).filter_map(|part| {
            let (bits, letter) = part.split('}').next()?.split_once(',')?;
            let bits = match bits.trim().strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16),
                // As kernels before 4.14 print them.
                None => bits.trim().parse(),
            };
            Some((bits.ok()?, letter.trim().trim_matches('"')))
        })
    }
}

/// One `field:…; offset:…; size:…;` line.
fn field(line: &str) -> Option<Field> {
    let part = |key: &str| line.split(';').find_map(|p| p.trim().strip_prefix(key));
    let declared = part("field:")?.trim();
    let bare = declared.split('[').next()?.trim();
    // `__data_loc char[] comm`: the name comes after the brackets.
    let data_loc = declared.starts_with("__data_loc");
    let rel_loc = declared.starts_with("__rel_loc");
    let name = if data_loc || rel_loc { declared } else { bare }.rsplit([' ', '*']).next()?;
    Some(Field {
        name: name.to_owned(),
        offset: part("offset:")?.trim().parse().ok()?,
        size: part("size:")?.trim().parse().ok()?,
        data_loc,
        rel_loc,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_located_strings_and_state_letters() {
        let text = "name: sched_switch\nID: 316\nformat:\n\tfield:unsigned short common_type;\t\
            offset:0;\tsize:2;\tsigned:0;\n\n\tfield:char prev_comm[16];\toffset:8;\tsize:16;\n\
            \tfield:__data_loc char[] why;\toffset:24;\tsize:4;\n\
            print fmt: \"%s\", __print_flags(REC->s, \"|\", { 0x0001, \"S\" }, { 0x0010, \"X\" }, \
            { 0x0020, \"Z\" })";
        let f = EventFormat::parse(text).unwrap();
        assert_eq!((f.name.as_str(), f.id, f.fields.len()), ("sched_switch", 316, 3));
        assert_eq!(f.field("prev_comm").map(|f| (f.offset, f.size)), Some((8, 16)));
        assert!(f.field("why").is_some_and(|f| f.data_loc && f.offset == 24));
        assert_eq!((f.flag_bits("XZ"), f.all_flag_bits()), (0x30, 0x31));
        assert_eq!(EventFormat::parse("name: x\nfield:;offset:;size:"), None);
        let old = EventFormat::parse("name: x\nID: 1\nprint fmt: { 16, \"Z\" }, { 32, \"X\" }");
        assert_eq!(old.unwrap().flag_bits("XZ"), 48);
    }
}
