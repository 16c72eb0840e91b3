//! Cuts a body into rows and says which row and line is at fault.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::ingest::reject::{Fault, Reject, RejectKind};
use crate::ingest::rejected::Rejected;
use crate::ingest::room::{self, Room};
use crate::ingest::{Format, Limits};

/// Byte order mark, which some writers put in front of UTF-8. It carries nothing, so it is passed over.
const BOM: char = '\u{feff}';

/// Most characters of the parser's own words, which may repeat a sender's value.
const MAX_PARSER_TEXT: usize = 160;

/// Receives rows one after another.
pub(in crate::ingest) trait RowSink {
    /// Whether a row that fails may have left something behind that [`Self::undo`] does not find: then a row's syntax is checked
    /// before it is handed over.
    const SYNTAX_FIRST: bool;

    /// Where the sink leaves the reason of a failure.
    fn context(&mut self) -> &mut Context;

    /// Takes one row.
    fn row<'de, D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error>;

    /// Takes the last row back, which failed, on its way or behind its end. False if that cannot be done.
    fn undo(&mut self) -> bool;

    /// Hears of a row that was not handed over, because it is none.
    fn passed_over(&mut self) {}

    /// Takes back everything.
    fn restart(&mut self);
}

/// What a failing seed leaves behind: serde's own errors carry nothing but a text.
#[derive(Debug, Default)]
pub(in crate::ingest) struct Context {
    fault: Option<Fault>,
    column: Option<String>,
    /// Bytes that rows and items may still claim.
    budget: usize,
    limit: usize,
    /// Asked before more is claimed, if there is one, with the bytes of text that come on top.
    room: Option<(Arc<dyn Room>, usize)>,
    /// Claims up to here have been asked for.
    asked: usize,
}

/// Claims are asked for in steps: most posts ask once.
const STEP: usize = 256 << 10;

impl Context {
    pub fn new(budget: usize) -> Self {
        Self { budget, limit: budget, ..Self::default() }
    }

    /// Forgets what was claimed. What was asked for stays granted.
    pub fn restart(&mut self) {
        let (room, asked) = (self.room.take(), self.asked);
        *self = Self { room, asked, ..Self::new(self.limit) };
    }

    /// Asks a room for what is claimed. The values' text is not claimed, so all `text` of the body counts as such.
    pub fn in_room(self, room: Arc<dyn Room>, text: usize) -> Self {
        Self { room: Some((room, text)), ..self }
    }

    /// Whether the room has so much, and a step more. A column that grows doubles.
    fn ask(&mut self, claimed: usize) -> bool {
        self.asked = claimed.saturating_add(STEP.min(claimed));
        let Some((room, text)) = &self.room else { return true };
        room.take(self.asked.saturating_mul(2).saturating_add(*text))
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
                let claimed = self.limit - left;
                if claimed > self.asked && !self.ask(claimed) {
                    let Reject { status, code, message, help, .. } = room::none_left();
                    return Err(self.fail(Fault { status, ..Fault::new(code, message, help) }));
                }
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
        (reject.row, reject.column) = (Some(row), column.map(Into::into));
        reject
    }
}

/// A body of JSON text.
#[derive(Debug, Clone, Copy)]
pub(in crate::ingest) struct Body<'a> {
    source: &'a Bytes,
    /// None of lines that are not all of them UTF-8.
    text: Option<&'a str>,
    cut: Cut,
}

/// What a body's rows are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    Lines,
    /// The elements of an array, or all of it.
    Elements,
    /// All of it.
    One,
}

impl<'a> Body<'a> {
    /// Bytes of it.
    pub fn len(&self) -> usize {
        self.source.len()
    }

    /// Checks that the body is UTF-8, once and for all rows.
    pub fn new(format: Format, source: &'a Bytes) -> Result<Self, Reject> {
        let lines = format == Format::Ndjson;
        let text = match std::str::from_utf8(source) {
            Ok(text) => Some(text.strip_prefix(BOM).unwrap_or(text)),
            Err(_) if lines => None,
            Err(error) => return Err(not_utf8("the body", error)),
        };
        Ok(Self { source, text, cut: if lines { Cut::Lines } else { Cut::Elements } })
    }

    /// One row.
    pub fn one(source: &'a Bytes) -> Self {
        Self { source, text: std::str::from_utf8(source).ok(), cut: Cut::One }
    }

    /// Hands every row to the sink, except for those that go to `rejected`; at least one and at most `limits.max_rows`. Returns how
    /// many there were.
    ///
    /// # Errors
    /// What is wrong with the body as such.
    pub fn each(self, limits: &Limits, sink: &mut impl RowSink, rejected: &mut Rejected) -> Result<u64, Reject> {
        let mut driver = Driver { source: self.source, sink, rejected, rows: 0, limits };
        match self.text {
            Some(text) => match self.cut {
                Cut::Lines => {
                    for (number, line) in (1..).zip(text.split('\n')) {
                        driver.line(number, line)?;
                    }
                }
                Cut::Elements => driver.elements(text)?,
                Cut::One => driver.text(text, None)?,
            },
            None => driver.doubtful_lines()?,
        }
        if driver.rows == 0 { Err(Reject::empty_body()) } else { Ok(driver.rows) }
    }
}

fn not_utf8(what: &str, error: std::str::Utf8Error) -> Reject {
    Reject::new(
        RejectKind::Invalid,
        "invalid_utf8",
        format!("{what} is not UTF-8 at byte {}", error.valid_up_to()),
        "send JSON in UTF-8",
    )
}

/// Takes rows to the sink and counts them.
struct Driver<'a, S> {
    source: &'a Bytes,
    sink: &'a mut S,
    rejected: &'a mut Rejected,
    rows: u64,
    limits: &'a Limits,
}

impl<S: RowSink> Driver<'_, S> {
    fn doubtful_lines(&mut self) -> Result<(), Reject> {
        let bytes = self.source.strip_prefix(BOM.to_string().as_bytes()).unwrap_or(self.source);
        for (number, line) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
            match std::str::from_utf8(line) {
                Ok(text) => self.line(number, text)?,
                Err(error) => {
                    self.rows += 1;
                    self.sink.passed_over();
                    let row = self.rows;
                    let reason = not_utf8(&format!("row {row} (line {number})"), error);
                    let source = self.source;
                    self.rejected.push(Reject { row: Some(row), ..reason }, self.limits, || source.slice_ref(line))?;
                }
            }
        }
        Ok(())
    }

    fn line(&mut self, number: u64, line: &str) -> Result<(), Reject> {
        if line.trim_ascii().is_empty() { Ok(()) } else { self.text(line, Some(number)) }
    }

    /// One row that stands by itself, so that what is wrong with it is its own.
    fn text(&mut self, text: &str, line: Option<u64>) -> Result<(), Reject> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let checked = if S::SYNTAX_FIRST { serde_json::from_str::<&RawValue>(text).map(drop) } else { Ok(()) };
        let counted = self.rows + 1;
        let read = checked.and_then(|()| self.row(&mut deserializer)).and_then(|()| deserializer.end());
        let Err(error) = read else { return Ok(()) };
        let handed_over = std::mem::replace(&mut self.rows, counted) == counted;
        let reason = self.sink.context().reject(&error, counted, line);
        if !handed_over {
            self.sink.passed_over();
        }
        if !reason.is_of_a_row() || handed_over && !self.sink.undo() {
            return Err(reason);
        }
        let source = self.source;
        self.rejected.push(reason, self.limits, || source.slice_ref(text.trim_ascii().as_bytes()))
    }

    /// The elements of an array, or one object. At first without looking for the ends of rows; once something is wrong again from the
    /// start, row by row.
    fn elements(&mut self, text: &str) -> Result<(), Reject> {
        if text.trim_ascii().is_empty() {
            return Ok(());
        }
        if !S::SYNTAX_FIRST {
            let mut deserializer = serde_json::Deserializer::from_str(text);
            let rows = if is_array(text) {
                deserializer.deserialize_seq(ElementVisitor(self))
            } else {
                self.row(&mut deserializer)
            };
            if rows.and_then(|()| deserializer.end()).is_ok() {
                return Ok(());
            }
            self.rows = 0;
            self.sink.restart();
        }
        // From the start of the text, so that the lines of syntax errors count right.
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let mut refusal = None;
        let rows = if is_array(text) {
            deserializer.deserialize_seq(RawVisitor { driver: self, refusal: &mut refusal })
        } else {
            <&RawValue>::deserialize(&mut deserializer).map(|raw| refusal = self.text(raw.get(), None).err())
        };
        let ended = rows.and_then(|()| deserializer.end());
        match (refusal, ended) {
            (Some(refusal), _) => Err(refusal),
            (None, Ok(())) => Ok(()),
            (None, Err(error)) => Err(Context::default().reject(&error, self.rows + 1, None)),
        }
    }

    fn row<'de, D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error> {
        self.rows += 1;
        if self.rows > self.limits.max_rows as u64 {
            let limit = Reject::too_many_rows(self.limits.max_rows);
            let fault = Fault { status: limit.status, ..Fault::new(limit.code, limit.message, limit.help) };
            return Err(self.sink.context().fail(fault));
        }
        self.sink.row(deserializer)
    }
}

fn is_array(text: &str) -> bool {
    text.trim_ascii_start().starts_with('[')
}

struct ElementVisitor<'a, 'b, S>(&'a mut Driver<'b, S>);

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

struct ElementSeed<'a, 'b, S>(&'a mut Driver<'b, S>);

impl<'de, S: RowSink> DeserializeSeed<'de> for ElementSeed<'_, '_, S> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.0.row(deserializer)
    }
}

/// Finds the end of each element before it is read.
struct RawVisitor<'a, 'b, S> {
    driver: &'a mut Driver<'b, S>,
    refusal: &'a mut Option<Reject>,
}

impl<'de, S: RowSink> Visitor<'de> for RawVisitor<'_, '_, S> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of objects")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        while let Some(raw) = elements.next_element::<&RawValue>()? {
            if let Err(refusal) = self.driver.text(raw.get(), None) {
                *self.refusal = Some(refusal);
                return Err(de::Error::custom("refused"));
            }
        }
        Ok(())
    }
}
