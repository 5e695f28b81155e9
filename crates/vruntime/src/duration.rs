//! Durations on the command line: a decimal number with `ns`, `us`, `ms` or `s`, or `0`.

use vruntime_base::Ns;

/// `500ms`, `1.5s`, `250us`, `80ns`, `0`. Below a nanosecond nothing is left, so `0.5ns` is
/// refused.
pub fn parse(text: &str) -> Result<Ns, String> {
    let wrong = || format!("`{text}`: expected a number with ns, us, ms or s, as in 500ms");
    if text == "0" {
        return Ok(Ns::ZERO);
    }
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
    let (number, unit) = text.split_at(at);
    let unit: u64 = match unit {
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return Err(wrong()),
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let too_long = || format!("`{text}`: longer than 52 days");
    let is_number = !whole.is_empty() && whole.bytes().all(|b| b.is_ascii_digit());
    let whole = whole.parse::<u64>().ok().and_then(|n| n.checked_mul(unit));
    let mut ns = whole.ok_or_else(|| if is_number { too_long() } else { wrong() })?;
    let mut digit = unit;
    for c in part.chars() {
        digit = Some(digit / 10).filter(|d| *d > 0).ok_or_else(wrong)?;
        let value = digit * u64::from(c.to_digit(10).ok_or_else(wrong)?);
        ns = ns.checked_add(value).ok_or_else(wrong)?;
    }
    if ns >= Ns::NEVER.0 {
        return Err(too_long());
    }
    Ok(Ns(ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        assert_eq!(parse("80ns"), Ok(Ns(80)));
        assert_eq!(parse("2us"), Ok(Ns(2_000)));
        assert!(parse("999999999999s").unwrap_err().ends_with("longer than 52 days"));
        assert_eq!(parse("500ms"), Ok(Ns::from_ms(500)));
        assert_eq!(parse("1.25s"), Ok(Ns::from_ms(1_250)));
        assert_eq!(parse("0s"), Ok(Ns::ZERO));
        assert_eq!(parse("0"), Ok(Ns::ZERO));
        for bad in [
            "",
            "5",
            "00",
            "0.0",
            "ms",
            "1m",
            "-1s",
            "1.2.3s",
            "0.5ns",
            "99999999999999s",
            "9e3s",
            "18446744073.7096s",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
