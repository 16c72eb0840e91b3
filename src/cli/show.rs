//! Figures and tables for people.

use std::time::Duration;

use bytesize::ByteSize;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};

/// `1234567` as `1,234,567`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A rate without fractions: `1,234`.
pub fn rate(per_second: f64) -> String {
    if per_second.is_finite() && per_second >= 0.0 { count(per_second.round() as u64) } else { "-".to_owned() }
}

/// `1536` as `1.5 KiB`.
pub fn bytes(n: u64) -> String {
    ByteSize::b(n).display().iec().to_string()
}

/// Microseconds as `850 us`, `1.23 ms` or `1.20 s`.
pub fn micros(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} us"),
        1_000..1_000_000 => format!("{:.2} ms", us as f64 / 1e3),
        _ => format!("{:.2} s", us as f64 / 1e6),
    }
}

/// Elapsed time, three figures or so.
pub fn elapsed(time: Duration) -> String {
    micros(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}

/// Whole seconds as `2h 3m 4s`.
pub fn uptime(seconds: u64) -> String {
    humantime::format_duration(Duration::from_secs(seconds)).to_string()
}

/// A value or a dash.
pub fn optional(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |v| v.to_string())
}

/// What came from outside, fit for a terminal: control characters are escaped, so that stored text cannot
/// move the cursor or change colours.
pub fn plain(text: &str) -> String {
    if !text.chars().any(char::is_control) {
        return text.to_owned();
    }
    text.chars().fold(String::with_capacity(text.len() + 8), |mut out, c| {
        if c.is_control() {
            out.extend(c.escape_default())
        } else {
            out.push(c)
        }
        out
    })
}

/// A terminal narrower than this says so by mistake (0 columns, often), and tables are not fitted into it.
const MIN_WIDTH: u16 = 40;

/// An empty table with these headings; a heading that starts with `>` makes its column right-aligned.
pub fn table(headings: &[&str]) -> Table {
    table_of(headings.iter().map(|heading| match heading.strip_prefix('>') {
        Some(text) => (text, CellAlignment::Right),
        None => (*heading, CellAlignment::Left),
    }))
}

/// An empty table with these headings, each with the alignment of its column.
pub fn table_of<T: Into<Cell>>(headings: impl IntoIterator<Item = (T, CellAlignment)>) -> Table {
    let mut table = fitted(presets::UTF8_FULL_CONDENSED);
    let (cells, alignments): (Vec<Cell>, Vec<CellAlignment>) =
        headings.into_iter().map(|(heading, alignment)| (heading.into(), alignment)).unzip();
    table.set_header(cells);
    for (column, alignment) in table.column_iter_mut().zip(alignments) {
        column.set_cell_alignment(alignment);
    }
    table
}

/// A table of names and values, without headings.
pub fn facts<'a>(rows: impl IntoIterator<Item = (&'a str, String)>) -> Table {
    let mut table = fitted(presets::NOTHING);
    for (name, value) in rows {
        table.add_row([Cell::new(name), Cell::new(plain(&value))]);
    }
    table
}

/// A table that wraps its cells where the terminal is too narrow; as wide as it needs where there is no terminal.
fn fitted(preset: &str) -> Table {
    let mut table = Table::new();
    table.load_preset(preset);
    if table.width().is_some_and(|width| width >= MIN_WIDTH) {
        table.set_content_arrangement(ContentArrangement::Dynamic);
    }
    table
}
