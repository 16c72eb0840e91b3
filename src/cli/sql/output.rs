//! A result as text: a table for people, CSV and JSON for programs.

use std::fmt;
use std::io::Write;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::csv;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::json::writer::{JsonArray, JsonFormat, LineDelimited, Writer, WriterBuilder};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use clap::ValueEnum;
use comfy_table::{CellAlignment, Table};

use super::Error;
use crate::cli::show;

/// How results are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Table,
    /// With a header line; nested values as text
    Csv,
    /// One array of objects
    Json,
    /// One object a line
    Ndjson,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Table => "table",
            Self::Csv => "csv",
            Self::Json => "json",
            Self::Ndjson => "ndjson",
        })
    }
}

/// Rows of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rows {
    /// In the result.
    pub total: u64,
    /// Of them printed.
    pub shown: u64,
}

/// Prints one result, batch by batch.
pub struct Printer {
    format: Format,
    max_rows: u64,
    rows: Rows,
    state: State,
}

enum State {
    Table(Option<Table>),
    Csv { header_written: bool },
    Json(Box<Writer<Vec<u8>, JsonArray>>),
    Ndjson(Box<Writer<Vec<u8>, LineDelimited>>),
}

impl Printer {
    /// `max_rows` bounds what the table format holds and shows; the other formats stream everything.
    pub fn new(format: Format, max_rows: usize) -> Self {
        let json = || WriterBuilder::new().with_explicit_nulls(true);
        let state = match format {
            Format::Table => State::Table(None),
            Format::Csv => State::Csv { header_written: false },
            Format::Json => State::Json(Box::new(json().build(Vec::new()))),
            Format::Ndjson => State::Ndjson(Box::new(json().build(Vec::new()))),
        };
        Self { format, max_rows: max_rows as u64, rows: Rows::default(), state }
    }

    /// Takes a batch; all formats but the table print it at once.
    pub fn batch(&mut self, batch: &RecordBatch, out: &mut impl Write) -> Result<(), Error> {
        let room = self.max_rows.saturating_sub(self.rows.shown);
        let all = batch.num_rows() as u64;
        let mut shown = all;
        let format = self.format;
        let text = match &mut self.state {
            State::Table(table) => {
                shown = all.min(room);
                let table = table.get_or_insert_with(|| header(&batch.schema()));
                fill(table, &batch.slice(0, shown as usize)).map(|()| Vec::new())
            }
            State::Csv { header_written } => {
                let with_header = !*header_written;
                *header_written = true;
                csv_text(batch, with_header)
            }
            State::Json(writer) => json_text(writer, batch),
            State::Ndjson(writer) => json_text(writer, batch),
        };
        let text = text.map_err(|e| Error::Render { format, reason: e.to_string() })?;
        out.write_all(&text).map_err(Error::Output)?;
        self.rows.total += all;
        self.rows.shown += shown;
        Ok(())
    }

    /// Prints what is still to be printed: the table, the end of an array, or the header of an empty result.
    pub fn finish(self, schema: &SchemaRef, out: &mut impl Write) -> Result<Rows, Error> {
        let format = self.format;
        let text = match self.state {
            State::Table(table) => Ok(format!("{}\n", table.unwrap_or_else(|| header(schema))).into_bytes()),
            State::Csv { header_written: true } | State::Ndjson(_) => Ok(Vec::new()),
            State::Csv { header_written: false } => csv_text(&RecordBatch::new_empty(Arc::clone(schema)), true),
            State::Json(mut writer) => writer.finish().map(|()| {
                let mut text = std::mem::take(writer.get_mut());
                text.push(b'\n');
                text
            }),
        };
        let text = text.map_err(|e| Error::Render { format, reason: e.to_string() })?;
        out.write_all(&text).map_err(Error::Output)?;
        Ok(self.rows)
    }
}

fn json_text<F: JsonFormat>(writer: &mut Writer<Vec<u8>, F>, batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
    writer.write(batch)?;
    Ok(std::mem::take(writer.get_mut()))
}

fn csv_text(batch: &RecordBatch, with_header: bool) -> Result<Vec<u8>, ArrowError> {
    let mut text = Vec::new();
    csv::WriterBuilder::new().with_header(with_header).build(&mut text).write(&flat(batch)?)?;
    Ok(text)
}

/// The batch with nested columns as text, since CSV has no other place for them.
fn flat(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let schema = batch.schema();
    let mut fields = Vec::with_capacity(schema.fields().len());
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(schema.fields().len());
    for (field, column) in schema.fields().iter().zip(batch.columns()) {
        if !field.data_type().is_nested() {
            fields.push(Arc::clone(field));
            columns.push(Arc::clone(column));
            continue;
        }
        let options = FormatOptions::default();
        let formatter = ArrayFormatter::try_new(column.as_ref(), &options)?;
        let texts = (0..column.len())
            .map(|row| column.is_valid(row).then(|| formatter.value(row).try_to_string()).transpose())
            .collect::<Result<StringArray, _>>()?;
        fields.push(Arc::new(Field::new(field.name(), DataType::Utf8, true)));
        columns.push(Arc::new(texts));
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
}

fn header(schema: &SchemaRef) -> Table {
    show::table_of(schema.fields().iter().map(|field| {
        let right = field.data_type().is_numeric();
        (show::plain(field.name()), if right { CellAlignment::Right } else { CellAlignment::Left })
    }))
}

fn fill(table: &mut Table, batch: &RecordBatch) -> Result<(), ArrowError> {
    let options = FormatOptions::default().with_null("NULL");
    let formatters = batch
        .columns()
        .iter()
        .map(|column| ArrayFormatter::try_new(column.as_ref(), &options))
        .collect::<Result<Vec<_>, _>>()?;
    for row in 0..batch.num_rows() {
        let cells = formatters
            .iter()
            .map(|formatter| Ok(show::plain(&formatter.value(row).try_to_string()?)))
            .collect::<Result<Vec<String>, ArrowError>>()?;
        table.add_row(cells);
    }
    Ok(())
}
