//! Result formats, written batch by batch.

use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{Array, ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::writer::StreamWriter;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use arrow_json::WriterBuilder;
use arrow_json::writer::LineDelimited;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode, header};

use super::columns;
use crate::server::reply::ApiError;

/// A result format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Json,
    Ndjson,
    Csv,
    Arrow,
}

const FORMATS: [Format; 4] = [Format::Json, Format::Ndjson, Format::Csv, Format::Arrow];

impl Format {
    /// The format's media type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Ndjson => "application/x-ndjson",
            Self::Csv => "text/csv",
            Self::Arrow => "application/vnd.apache.arrow.stream",
        }
    }

    /// The first format that the client names; JSON if it takes anything.
    pub fn from_accept(headers: &HeaderMap) -> Result<Self, ApiError> {
        let mut named = false;
        for value in headers.get_all(header::ACCEPT) {
            let text = String::from_utf8_lossy(value.as_bytes());
            for media in text.split(',') {
                let media = media.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
                named |= !media.is_empty();
                if media == "*/*" || media == "application/*" {
                    return Ok(Self::Json);
                }
                if let Some(format) = FORMATS.into_iter().find(|f| f.content_type() == media) {
                    return Ok(format);
                }
            }
        }
        if !named {
            return Ok(Self::Json);
        }
        Err(ApiError::new(
            StatusCode::NOT_ACCEPTABLE,
            "not_acceptable",
            "none of the formats asked for is written here",
        )
        .help("ask for application/json, application/x-ndjson, text/csv or application/vnd.apache.arrow.stream"))
    }
}

/// Writes a result of known schema.
pub struct Writer {
    schema: SchemaRef,
    started: Instant,
    rows: u64,
    sink: Sink,
}

enum Sink {
    Json { begun: bool },
    Ndjson,
    Csv { begun: bool },
    Arrow(Option<Box<StreamWriter<Vec<u8>>>>),
}

impl Writer {
    /// A writer whose clock began at `started`.
    pub fn new(format: Format, schema: SchemaRef, started: Instant) -> Self {
        let sink = match format {
            Format::Json => Sink::Json { begun: false },
            Format::Ndjson => Sink::Ndjson,
            Format::Csv => Sink::Csv { begun: false },
            Format::Arrow => Sink::Arrow(None),
        };
        Self { schema, started, rows: 0, sink }
    }

    /// The bytes of one batch, with what has to stand before the first one.
    pub fn batch(&mut self, batch: &RecordBatch) -> Result<Bytes, ArrowError> {
        self.rows += batch.num_rows() as u64;
        let mut out = Vec::new();
        match &mut self.sink {
            Sink::Json { begun } => {
                let lines = lines(batch)?;
                let had_rows = std::mem::replace(begun, true);
                if !had_rows {
                    write!(out, "{{\"columns\":{},\"rows\":[", columns(&self.schema))?;
                }
                // One line is one row: newlines inside values are escaped in JSON.
                let first_batch_rows = self.rows - batch.num_rows() as u64;
                for (i, line) in lines.split(|b| *b == b'\n').filter(|l| !l.is_empty()).enumerate() {
                    out.extend_from_slice(if first_batch_rows == 0 && i == 0 { b"\n" } else { b",\n" });
                    out.extend_from_slice(line);
                }
            }
            Sink::Ndjson => out = lines(batch)?,
            Sink::Csv { begun } => {
                let header = !std::mem::replace(begun, true);
                arrow::csv::WriterBuilder::new().with_header(header).build(&mut out).write(&flat(batch)?)?;
            }
            Sink::Arrow(stream) => {
                let mut writer = match stream.take() {
                    Some(writer) => writer,
                    None => Box::new(StreamWriter::try_new(Vec::new(), &self.schema)?),
                };
                writer.write(batch)?;
                out = std::mem::take(writer.get_mut());
                *stream = Some(writer);
            }
        }
        Ok(Bytes::from(out))
    }

    /// What stands behind the last batch; all of it, where there was none.
    pub fn finish(mut self) -> Result<Bytes, ArrowError> {
        let mut out = Vec::new();
        match &mut self.sink {
            Sink::Json { begun } => {
                if !*begun {
                    write!(out, "{{\"columns\":{},\"rows\":[", columns(&self.schema))?;
                }
                let elapsed = self.started.elapsed().as_secs_f64() * 1e3;
                writeln!(out, "\n],\"row_count\":{},\"elapsed_ms\":{elapsed:.3}}}", self.rows)?;
            }
            Sink::Ndjson | Sink::Csv { begun: true } => {}
            Sink::Csv { begun: false } => {
                let empty = flat(&RecordBatch::new_empty(self.schema))?;
                arrow::csv::WriterBuilder::new().with_header(true).build(&mut out).write(&empty)?;
            }
            Sink::Arrow(stream) => {
                let mut writer = match stream.take() {
                    Some(writer) => writer,
                    None => Box::new(StreamWriter::try_new(Vec::new(), &self.schema)?),
                };
                writer.finish()?;
                out = std::mem::take(writer.get_mut());
            }
        }
        Ok(Bytes::from(out))
    }
}

/// A batch as lines of JSON, nulls included: a column that is missing in a row would be a column too few in the result.
fn lines(batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
    let mut writer = WriterBuilder::new().with_explicit_nulls(true).build::<_, LineDelimited>(Vec::new());
    writer.write(batch)?;
    writer.finish()?;
    Ok(writer.into_inner())
}

/// The batch with nested columns as text, since CSV has no other place for them.
fn flat(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let text = |column: &ArrayRef| -> Result<ArrayRef, ArrowError> {
        let options = FormatOptions::default();
        let formatter = ArrayFormatter::try_new(column.as_ref(), &options)?;
        let value = |row| column.is_valid(row).then(|| formatter.value(row).try_to_string()).transpose();
        Ok(Arc::new((0..column.len()).map(value).collect::<Result<StringArray, _>>()?))
    };
    let names = batch.schema_ref().fields().iter().map(|field| field.name().clone());
    let columns = batch.columns().iter().map(|c| if c.data_type().is_nested() { text(c) } else { Ok(Arc::clone(c)) });
    RecordBatch::try_from_iter_with_nullable(
        names.zip(columns.collect::<Result<Vec<_>, _>>()?).map(|(name, column)| (name, column, true)),
    )
}

#[cfg(test)]
mod tests;
