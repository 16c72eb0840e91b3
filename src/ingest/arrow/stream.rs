//! Reads the messages of an IPC stream one by one. Arrow's own `StreamReader` allocates what a message declares before
//! it looks for the bytes; here a body is a slice of the request, and a declared length is checked first.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use arrow::ipc::{self, MessageHeader};
use bytes::Bytes;

use crate::ingest::Limits;
use crate::ingest::reject::{Reject, RejectKind};
use crate::schema::arrow::column_type;
use crate::schema::ipc::{IpcError, IpcLimits, Message, Split, check_batch, check_schema, guarded, read_batch};

/// The schema of a stream and all its batches.
pub(super) fn read(body: &Bytes, limits: &Limits) -> Result<(SchemaRef, Vec<RecordBatch>), Reject> {
    if body.is_empty() {
        return Err(Reject::empty_body());
    }
    let (schema, start) = read_schema(body).map_err(|e| refuse(&e))?;
    // Before the values: the walk along the buffers knows the layouts of types that have a counterpart.
    check_types(&schema)?;
    let batches = read_batches(body, start, &schema, limits).map_err(|e| refuse(&e))?;
    Ok((schema, batches))
}

fn check_types(schema: &Schema) -> Result<(), Reject> {
    let Some(field) = schema.fields().iter().find(|f| column_type(f.data_type()).is_none()) else {
        return Ok(());
    };
    let mut reject = Reject::new(
        RejectKind::Unprocessable,
        "unsupported_type",
        format!("column {:?}: Arrow's {} has no counterpart in Delta", field.name(), field.data_type()),
        "send the column as another type, such as long, string or timestamp",
    );
    reject.column = Some(field.name().as_str().into());
    Err(reject)
}

fn read_batches(body: &Bytes, start: usize, schema: &SchemaRef, limits: &Limits) -> Result<Vec<RecordBatch>, IpcError> {
    let mut reader = Reader {
        dictionary_fields: dictionary_fields(schema.fields())?,
        schema: schema.clone(),
        dictionaries: HashMap::new(),
        limits: IpcLimits { max_rows: limits.max_rows, max_bytes: limits.max_batch_bytes },
    };
    let mut batches = Vec::new();
    let mut at = start;
    loop {
        match Message::split(body, at)? {
            Split::Message(message) => {
                batches.extend(reader.message(&message)?);
                at = message.end;
            }
            Split::End { at } if at == body.len() => return Ok(batches),
            Split::End { .. } => return Err(IpcError::Malformed("bytes follow the end of the stream")),
        }
    }
}

/// The schema, and the position behind it.
fn read_schema(body: &Bytes) -> Result<(SchemaRef, usize), IpcError> {
    let Split::Message(message) = Message::split(body, 0)? else {
        return Err(IpcError::Malformed("the stream has no schema"));
    };
    let header = message.header;
    if header.header_type() != MessageHeader::Schema {
        return Err(IpcError::Malformed("the stream does not begin with a schema"));
    }
    let schema = header.header_as_schema().ok_or(IpcError::Malformed("the stream's schema is empty"))?;
    check_schema(schema)?;
    // Panics on types it does not know and on children that are missing.
    let schema = guarded(|| Ok(ipc::convert::fb_to_schema(schema)))?;
    Ok((Arc::new(schema), message.end))
}

struct Reader {
    schema: SchemaRef,
    /// By dictionary id, a field with the type of its values.
    dictionary_fields: HashMap<i64, FieldRef>,
    dictionaries: HashMap<i64, ArrayRef>,
    limits: IpcLimits,
}

impl Reader {
    fn message(&mut self, message: &Message<'_>) -> Result<Option<RecordBatch>, IpcError> {
        let (header, body) = (message.header, message.body());
        match header.header_type() {
            MessageHeader::RecordBatch => {
                let batch = header.header_as_record_batch().ok_or(IpcError::Malformed("a batch is empty"))?;
                read_batch(batch, &body, &self.schema, &self.dictionaries, header.version(), self.limits).map(Some)
            }
            MessageHeader::DictionaryBatch => {
                let batch = header.header_as_dictionary_batch().ok_or(IpcError::Malformed("a dictionary is empty"))?;
                self.dictionary(batch, &body, header.version())?;
                Ok(None)
            }
            _ => Err(IpcError::Malformed("the stream has a message that is neither a batch nor a dictionary")),
        }
    }

    fn dictionary(
        &mut self,
        batch: ipc::DictionaryBatch<'_>,
        body: &arrow::buffer::Buffer,
        version: ipc::MetadataVersion,
    ) -> Result<(), IpcError> {
        if batch.isDelta() {
            // Each delta copies the dictionary so far: many small ones would cost the square of their number.
            return Err(IpcError::Unsupported("delta dictionaries are not read; send whole ones"));
        }
        let values = batch.data().ok_or(IpcError::Malformed("a dictionary has no values"))?;
        let field = self.dictionary_fields.get(&batch.id());
        let field = field.ok_or(IpcError::Malformed("a dictionary belongs to no column"))?;
        check_batch(values, body, &Fields::from(vec![field.clone()]), self.limits)?;
        let (schema, dictionaries) = (&self.schema, &mut self.dictionaries);
        guarded(|| ipc::reader::read_dictionary(body, batch, schema, dictionaries, &version))
    }
}

/// The dictionaries that the fields refer to, nested ones included.
fn dictionary_fields(fields: &Fields) -> Result<HashMap<i64, FieldRef>, IpcError> {
    let mut found: HashMap<i64, FieldRef> = HashMap::new();
    for field in Schema::new(fields.clone()).flattened_fields() {
        #[expect(
            deprecated,
            reason = "Arrow means to manage the ids itself; until then only they tell which dictionary a message carries"
        )]
        let (DataType::Dictionary(_, values), Some(id)) = (field.data_type(), field.dict_id()) else {
            continue;
        };
        let values = Arc::new(Field::new("values", (**values).clone(), true));
        if found.insert(id, values.clone()).is_some_and(|other| other != values) {
            return Err(IpcError::Malformed("two columns share a dictionary and differ in type"));
        }
    }
    Ok(found)
}

fn refuse(error: &IpcError) -> Reject {
    let (status, code, help) = match error {
        IpcError::TooLarge { .. } => (RejectKind::TooLarge, "body_too_large", "split the rows over several posts"),
        IpcError::Unsupported(_) => (
            RejectKind::UnsupportedMedia,
            "unsupported_arrow",
            "write the stream with plain types and without buffer compression; Content-Encoding: zstd compresses it whole",
        ),
        _ => (RejectKind::Invalid, "invalid_arrow", "send one complete Arrow IPC stream: schema, batches, end"),
    };
    Reject::new(status, code, format!("the Arrow stream cannot be read: {error}"), help)
}
