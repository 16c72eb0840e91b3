//! Cuts a body into rows and says which row and line is at fault.

use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, SeqAccess, Visitor};

use crate::ingest::Format;
use crate::ingest::reject::{Fault, Reject, RejectKind};

/// Byte order mark, which some writers put in front of UTF-8. It carries nothing, so it is passed over.
const BOM: char = '\u{feff}';

/// Most characters of the parser's own words, which may repeat a sender's value.
const MAX_PARSER_TEXT: usize = 160;

/// Receives rows one after another.
pub(in crate::ingest) trait RowSink {
    /// Where the sink leaves the reason of a failure.
    fn context(&mut self) -> &mut Context;

    /// Takes one row. After an error no further row follows.
    fn row<'de, D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error>;
}

/// What a failing seed leaves behind: serde's own errors carry nothing but a text.
#[derive(Debug, Default)]
pub(in crate::ingest) struct Context {
    fault: Option<Fault>,
    column: Option<String>,
    /// Bytes that rows and items may still claim.
    budget: usize,
    limit: usize,
}

impl Context {
    pub fn new(budget: usize) -> Self {
        Self { budget, limit: budget, ..Self::default() }
    }

    /// Keeps the reason and gives the error to return.
    pub fn fail<E: de::Error>(&mut self, fault: Fault) -> E {
        self.fault = Some(fault);
        E::custom("refused")
    }

    /// Names the column around the failure, from the inside outwards.
    pub fn within(&mut self, name: &str) {
        self.column = Some(match self.column.take() {
            Some(inner) => format!("{name}.{inner}"),
            None => name.to_owned(),
        });
    }

    /// Accounts for memory that a row or an item takes whatever its text is.
    pub fn charge<E: de::Error>(&mut self, bytes: usize) -> Result<(), E> {
        match self.budget.checked_sub(bytes) {
            Some(left) => {
                self.budget = left;
                Ok(())
            }
            None => {
                let fault = Fault {
                    status: RejectKind::TooLarge,
                    ..Fault::new(
                        "batch_too_large",
                        format!("the rows up to here take more than {} bytes in memory", self.limit),
                        "split the rows over several posts",
                    )
                };
                Err(self.fail(fault))
            }
        }
    }

    fn reject(&mut self, error: &serde_json::Error, row: u64, line: Option<u64>) -> Reject {
        let place = line.map(|l| format!(" (line {l})")).unwrap_or_default();
        let column = self.column.take();
        if let Some(fault) = self.fault.take() {
            return Fault { column, ..fault }.at(row, &place);
        }
        let text = error.to_string();
        let what: String = text.split(" at line ").next().unwrap_or_default().chars().take(MAX_PARSER_TEXT).collect();
        if error.is_data() {
            return Fault { column, ..Fault::mismatch_as_told(what) }.at(row, &place);
        }
        let (line, byte) = (line.unwrap_or(error.line() as u64), error.column());
        let mut reject = Reject::new(
            RejectKind::Invalid,
            "invalid_json",
            format!("row {row}, line {line}, byte {byte}: {what}"),
            "send valid JSON in UTF-8: one object a line as application/x-ndjson, or one array as application/json",
        );
        (reject.row, reject.column) = (Some(row), column);
        reject
    }
}

/// A body of JSON text.
#[derive(Debug, Clone, Copy)]
pub(in crate::ingest) struct Body<'a> {
    text: &'a str,
    lines: bool,
}

impl<'a> Body<'a> {
    /// Checks that the body is UTF-8, once and for all rows.
    pub fn new(format: Format, bytes: &'a [u8]) -> Result<Self, Reject> {
        let text = std::str::from_utf8(bytes).map_err(|e| {
            Reject::new(
                RejectKind::Invalid,
                "invalid_utf8",
                format!("the body is not UTF-8 at byte {}", e.valid_up_to()),
                "send JSON in UTF-8",
            )
        })?;
        Ok(Self { text: text.strip_prefix(BOM).unwrap_or(text), lines: format == Format::Ndjson })
    }

    /// Hands every row to the sink; at least one and at most `max_rows`.
    pub fn each(self, max_rows: usize, sink: &mut impl RowSink) -> Result<u64, Reject> {
        let mut counted = Counted { sink, rows: 0, max_rows: max_rows as u64 };
        if self.lines {
            self.each_line(&mut counted)?;
        } else {
            self.each_element(&mut counted)?;
        }
        if counted.rows == 0 { Err(Reject::empty_body()) } else { Ok(counted.rows) }
    }

    fn each_line<S: RowSink>(self, counted: &mut Counted<'_, S>) -> Result<(), Reject> {
        for (number, line) in (1..).zip(self.text.split('\n')) {
            if line.trim_ascii().is_empty() {
                continue;
            }
            let mut deserializer = serde_json::Deserializer::from_str(line);
            let row = counted.row(&mut deserializer).and_then(|()| deserializer.end());
            row.map_err(|e| counted.reject(&e, Some(number)))?;
        }
        Ok(())
    }

    fn each_element<S: RowSink>(self, counted: &mut Counted<'_, S>) -> Result<(), Reject> {
        let text = self.text.trim_ascii_start();
        if text.is_empty() {
            return Ok(());
        }
        // From the start of the text, so that the lines of syntax errors count right.
        let mut deserializer = serde_json::Deserializer::from_str(self.text);
        let rows = if text.starts_with('[') {
            deserializer.deserialize_seq(ElementVisitor(counted))
        } else {
            counted.row(&mut deserializer)
        };
        rows.and_then(|()| deserializer.end()).map_err(|e| counted.reject(&e, None))
    }
}

/// Counts the rows on their way to the sink.
struct Counted<'a, S> {
    sink: &'a mut S,
    rows: u64,
    max_rows: u64,
}

impl<S: RowSink> Counted<'_, S> {
    fn row<'de, D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error> {
        self.rows += 1;
        if self.rows > self.max_rows {
            let limit = Reject::too_many_rows(usize::try_from(self.max_rows).unwrap_or(usize::MAX));
            let fault = Fault { status: limit.status, ..Fault::new(limit.code, limit.message, limit.help) };
            return Err(self.sink.context().fail(fault));
        }
        self.sink.row(deserializer)
    }

    fn reject(&mut self, error: &serde_json::Error, line: Option<u64>) -> Reject {
        self.sink.context().reject(error, self.rows, line)
    }
}

struct ElementVisitor<'a, 'b, S>(&'a mut Counted<'b, S>);

impl<'de, S: RowSink> Visitor<'de> for ElementVisitor<'_, '_, S> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of objects")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        while elements.next_element_seed(ElementSeed(self.0))?.is_some() {}
        Ok(())
    }
}

struct ElementSeed<'a, 'b, S>(&'a mut Counted<'b, S>);

impl<'de, S: RowSink> DeserializeSeed<'de> for ElementSeed<'_, '_, S> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.0.row(deserializer)
    }
}
