//! A query's result as it arrives: record batches out of an Arrow IPC stream, never more than one in memory here.

use arrow::array::{Array, Int64Array, RecordBatch, UInt64Array};
use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamDecoder;
use reqwest::Response;
use url::Url;

use super::{Error, transport};

/// A result that is being received.
#[derive(Debug)]
pub struct SqlStream {
    response: Response,
    decoder: StreamDecoder,
    received: Buffer,
    url: Url,
}

impl SqlStream {
    pub(super) fn new(response: Response, url: Url) -> Self {
        Self { response, decoder: StreamDecoder::new(), received: Buffer::from_vec(Vec::<u8>::new()), url }
    }

    /// The columns; known at the latest when the stream has ended.
    pub fn schema(&self) -> Option<SchemaRef> {
        self.decoder.schema()
    }

    /// The next batch; none at the end. A result that was cut off is an error and not a short result: the connection
    /// reports an end inside the body, the decoder an end inside a message.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>, Error> {
        loop {
            if let Some(batch) = self.decoder.decode(&mut self.received).map_err(|e| self.malformed(&e))? {
                return Ok(Some(batch));
            }
            match self.response.chunk().await.map_err(|e| transport(&self.url, &e))? {
                Some(chunk) => self.received = Buffer::from(chunk),
                None => break,
            }
        }
        self.decoder.finish().map_err(|e| self.malformed(&e))?;
        match self.schema() {
            Some(_) => Ok(None),
            None => Err(Error::Reply { url: self.url.clone(), reason: "an empty Arrow stream".to_owned() }),
        }
    }

    /// Reads the whole result, which must be one number that is not negative.
    pub async fn single_count(mut self) -> Result<u64, Error> {
        let mut found = None;
        let mut rows = 0;
        while let Some(batch) = self.next().await? {
            rows += batch.num_rows();
            if batch.num_rows() > 0 && batch.num_columns() == 1 {
                found = first_count(batch.column(0).as_ref());
            }
        }
        let reason = || format!("expected one count, got {rows} rows");
        found.filter(|_| rows == 1).ok_or_else(|| Error::Reply { url: self.url.clone(), reason: reason() })
    }

    fn malformed(&self, error: &ArrowError) -> Error {
        Error::Reply { url: self.url.clone(), reason: error.to_string() }
    }
}

fn first_count(column: &dyn Array) -> Option<u64> {
    let any = column.as_any();
    if let Some(values) = any.downcast_ref::<Int64Array>() {
        return values.iter().next()??.try_into().ok();
    }
    any.downcast_ref::<UInt64Array>()?.iter().next()?
}
