//! Seal to commit of one large generation, against a program of one thread that decodes, sorts and encodes the same rows as one batch:
//! processor time of the whole process, as the kernel counts it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{
    ArrayRef, Float64Array, MapBuilder, MapFieldNames, RecordBatch, StringArray, StringBuilder,
    TimestampMicrosecondArray,
};
use arrow::compute::{SortColumn, concat_batches, lexsort_to_indices, take_record_batch};
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use penstock::schema::arrow::arrow_schema;
use penstock::schema::payload::{self, ENCODING_IPC};
use penstock::schema::{ColumnSpec, EventTime, TableSpec};
use penstock_store::{Bucket, SliceInput};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::kit::Node;
use crate::slow::Slow;

const HOUR: i64 = 3_600_000_000;
const SLICE_ROWS: usize = 1_000;
const ROUNDS: usize = 3;

pub async fn run(payload_bytes: usize) {
    let spec = logs();
    let slices = slices(&spec, payload_bytes);
    let payload: usize = slices.iter().map(Bytes::len).sum();
    println!("encode: {:.1} MB of payload in {} slices of {SLICE_ROWS} log rows", payload as f64 / 1e6, slices.len());
    let (mut alone, mut ours) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        let (cpu, began) = (cpu(), Instant::now());
        let bytes = by_hand(&spec, &slices);
        let (used, took) = (self::cpu() - cpu, began.elapsed());
        println!("encode: one thread by hand {used:6.2?} of CPU, {took:6.2?}, {:.1} MB of Parquet", bytes as f64 / 1e6);
        alone = alone.min(used);

        let node = Node::open(Slow::new(Duration::ZERO), vec![spec.clone()], 4).await;
        for slice in &slices {
            node.append_slice(SliceInput {
                table: node.table(0),
                schema_version: 1,
                encoding: ENCODING_IPC,
                bucket: Bucket { start: 0, width: HOUR },
                rows: u32::try_from(SLICE_ROWS).expect("should fit"),
                min_time: 0,
                max_time: HOUR - 1,
                payload: slice.clone(),
            })
            .await;
        }
        let (cpu, began) = (self::cpu(), Instant::now());
        node.flush(0).await;
        let (used, took) = (self::cpu() - cpu, began.elapsed());
        println!("encode: seal to committed  {used:6.2?} of CPU, {took:6.2?}");
        ours = ours.min(used);
    }
    println!(
        "encode: {:8.2} times the CPU, best of {ROUNDS} (wanted at most 1.25)",
        ours.as_secs_f64() / alone.as_secs_f64()
    );
}

pub fn cpu() -> Duration {
    let stat = procfs::process::Process::myself().and_then(|process| process.stat()).expect("should be Linux");
    Duration::from_secs_f64((stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64)
}

/// Stores nothing: the bytes of one file.
fn by_hand(spec: &TableSpec, slices: &[Bytes]) -> usize {
    let schema = arrow_schema(spec);
    let decode = |bytes: &Bytes| payload::decode(ENCODING_IPC, bytes, &schema).expect("should decode");
    let batches: Vec<RecordBatch> = slices.iter().map(decode).collect();
    let all = concat_batches(&schema, &batches).expect("should be one schema");
    let sorted = sorted(&all, &["service", "host", "ts"]);
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1).expect("should be a level")))
        .set_statistics_enabled(EnabledStatistics::Page)
        .build();
    let mut file = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut file, schema, Some(properties)).expect("should begin");
    writer.write(&sorted).expect("should encode");
    writer.close().expect("should end");
    file.len()
}

/// The rows in the order of these columns.
pub fn sorted(rows: &RecordBatch, by: &[&str]) -> RecordBatch {
    let key = |name: &&str| {
        let values = Arc::clone(rows.column_by_name(name).expect("should be there"));
        SortColumn { values, options: None }
    };
    let keys: Vec<SortColumn> = by.iter().map(key).collect();
    let order = lexsort_to_indices(&keys, None).expect("should be ordered");
    take_record_batch(rows, &order).expect("should be in bounds")
}

/// Log rows of about so many bytes of payload.
pub fn log_rows(payload_bytes: usize) -> RecordBatch {
    let spec = logs();
    let schema = arrow_schema(&spec);
    let decode = |bytes: &Bytes| payload::decode(ENCODING_IPC, bytes, &schema).expect("should decode");
    let batches: Vec<RecordBatch> = slices(&spec, payload_bytes).iter().map(decode).collect();
    concat_batches(&schema, &batches).expect("should be one schema")
}

fn logs() -> TableSpec {
    let column = |(name, kind): (&str, &str)| ColumnSpec {
        name: name.into(),
        kind: kind.parse().expect("should be a type"),
        nullable: name != "ts",
    };
    let columns = [
        ("ts", "timestamp"),
        ("host", "string"),
        ("service", "string"),
        ("level", "string"),
        ("message", "string"),
        ("duration", "double"),
        ("attributes", "map<string,string>"),
    ];
    TableSpec {
        name: "bench.logs".parse().expect("should be a name"),
        schema_version: 1,
        columns: columns.into_iter().map(column).collect(),
        event_time: EventTime::Column { name: "ts".into(), unit: None },
        bucket_seconds: 3_600,
        partition: Some("date".into()),
        sort: vec!["service".into(), "host".into()],
        history: vec![],
        bloom: vec![],
        rules: penstock::schema::Rules::default(),
    }
}

fn slices(spec: &TableSpec, payload_bytes: usize) -> Vec<Bytes> {
    let mut random = StdRng::seed_from_u64(11);
    let (mut slices, mut bytes) = (Vec::new(), 0);
    while bytes < payload_bytes {
        let slice = payload::encode(&rows(spec, &mut random)).expect("should encode");
        bytes += slice.len();
        slices.push(slice);
    }
    slices
}

fn rows(spec: &TableSpec, random: &mut StdRng) -> RecordBatch {
    let schema = arrow_schema(spec);
    let mut text = |make: &mut dyn FnMut(&mut StdRng) -> String| -> ArrayRef {
        Arc::new(StringArray::from_iter_values((0..SLICE_ROWS).map(|_| make(random))))
    };
    let host = text(&mut |r| format!("host-{}.example.org", r.random_range(0..200)));
    let service = text(&mut |r| format!("service-{}", r.random_range(0..30)));
    let level = text(&mut |r| ["debug", "info", "warn", "error"][r.random_range(0..4)].to_owned());
    let message =
        text(&mut |r| format!("request {:032x} handled in {} ms", r.random::<u128>(), r.random_range(0..900)));
    let times = (0..SLICE_ROWS).map(|_| random.random_range(0..HOUR));
    let times: ArrayRef = Arc::new(TimestampMicrosecondArray::from_iter_values(times).with_timezone("UTC"));
    let durations: ArrayRef = Arc::new(Float64Array::from_iter_values(
        (0..SLICE_ROWS).map(|_| f64::from(random.random_range(0..1_000_000)) / 1e3),
    ));
    let names = MapFieldNames { entry: "key_value".to_owned(), key: "key".to_owned(), value: "value".to_owned() };
    let mut attributes = MapBuilder::new(Some(names), StringBuilder::new(), StringBuilder::new());
    for _ in 0..SLICE_ROWS {
        for attribute in 0..12 {
            attributes.keys().append_value(format!("attribute.number.{attribute}"));
            attributes.values().append_value(format!("value-{}", random.random_range(0..50)));
        }
        attributes.append(true).expect("should be as many values as keys");
    }
    // The fields of a map are named as the schema has them.
    let attributes =
        arrow::compute::cast(&attributes.finish(), schema.field(6).data_type()).expect("should be the same map");
    RecordBatch::try_new(schema, vec![times, host, service, level, message, durations, attributes])
        .expect("should be a batch")
}
