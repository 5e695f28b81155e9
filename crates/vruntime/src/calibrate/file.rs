//! The machine file that `calibrate` writes: the machine in full, but of the cost table only what
//! is this machine's own; the rest is inherited.

use std::fmt::Write;
use toml::{Table, Value};
use vruntime_machine::{Arch, MachineSpec};

/// The file's text. `own` names the costs that are not the table's; `head` is its first comment.
pub fn text(spec: &MachineSpec, own: &[&str], head: &str) -> Result<String, toml::ser::Error> {
    let mut table = Table::try_from(spec)?;
    let inherit = if spec.arch == Arch::Powerpc { "power10" } else { "x86-server" };
    table.insert("inherit".into(), inherit.into());
    let costs = table.remove("costs");
    let topology = table.remove("topology");
    let idle = table.remove("idle");
    let mut out = String::new();
    for line in head.lines() {
        push(&mut out, format_args!("# {line}"));
    }
    for key in ["schema", "name", "description", "inherit"] {
        if let Some(value) = table.remove(key) {
            push(&mut out, format_args!("{key} = {value}"));
        }
    }
    for (key, value) in &table {
        key_value(&mut out, key, value);
    }
    if let Some(Value::Table(costs)) = costs {
        costs_text(&mut out, &costs, own);
    }
    for (form, value) in topology.iter().filter_map(Value::as_table).flatten() {
        push(&mut out, format_args!("\n[topology.{form}]"));
        value.as_table().into_iter().flatten().for_each(|(k, v)| key_value(&mut out, k, v));
    }
    for state in idle.iter().filter_map(Value::as_array).flatten() {
        push(&mut out, format_args!("\n[[idle]]"));
        state.as_table().into_iter().flatten().for_each(|(k, v)| key_value(&mut out, k, v));
    }
    Ok(out)
}

/// The own costs: first those without distance, then a table for each that has one.
fn costs_text(out: &mut String, costs: &Table, own: &[&str]) {
    push(out, format_args!("\n[costs]"));
    let is_cost = |value: &Value| value.get("mid").is_some();
    for (name, value) in costs.iter().filter(|(_, value)| is_cost(value)) {
        if own.contains(&name.as_str()) {
            key_value(out, name, value);
        }
    }
    for (name, classes) in costs.iter().filter(|(_, value)| !is_cost(value)) {
        let known = |class: &str| own.contains(&format!("{name}.{class}").as_str());
        let classes = classes.as_table().into_iter().flatten();
        let mut classes = classes.filter(|(class, _)| known(class)).peekable();
        if classes.peek().is_some() {
            push(out, format_args!("\n[costs.{name}]"));
        }
        classes.for_each(|(class, value)| key_value(out, class, value));
    }
}

/// One line, or for an array of tables one line for each.
fn key_value(out: &mut String, key: &str, value: &Value) {
    match value {
        Value::Array(items) if items.first().is_some_and(Value::is_table) => {
            push(out, format_args!("{key} = ["));
            items.iter().for_each(|item| push(out, format_args!("    {item},")));
            push(out, format_args!("]"));
        }
        _ => push(out, format_args!("{key} = {value}")),
    }
}

fn push(out: &mut String, line: std::fmt::Arguments) {
    writeln!(out, "{line}").expect("a string grows");
}

#[cfg(test)]
mod tests {
    use super::*;
    use vruntime_formats::machine_file::{builtin_machine, load_machine_str};

    #[test]
    fn what_is_written_reads_back() {
        let mut spec = builtin_machine("milan-2s").unwrap();
        spec.costs.ttwu.mid += 1;
        spec.costs.line_transfer.llc.mid += 1;
        let text = text(&spec, &["ttwu", "line_transfer.llc"], "a\nb").unwrap();
        assert!(text.starts_with("# a\n# b\nschema = "), "{text}");
        let back = load_machine_str(&text, "test").unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!(back.costs.ttwu, spec.costs.ttwu);
        assert_eq!(back.costs.line_transfer.llc, spec.costs.line_transfer.llc);
        assert_eq!((back.topology, back.idle), (spec.topology, spec.idle));
    }
}
