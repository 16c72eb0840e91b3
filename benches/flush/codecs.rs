//! What a data file of telemetry costs in bytes and in processor time, by compression and by rows of a row group: logs with a map of
//! attributes, and metrics, both sorted as a flush sorts them. What the defaults in `lake::data` cost beside others.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::encode::{cpu, log_rows, sorted};

/// Rows a call of the writer, as a flush has it.
const BATCH: usize = 8_192;
const HOSTS: usize = 200;
const METRICS: usize = 50;
const SERIES: usize = HOSTS * METRICS;

pub fn run(payload_bytes: usize) {
    let logs = sorted(&log_rows(payload_bytes), &["service", "host", "ts"]);
    let metrics = sorted(&metrics(payload_bytes / 50), &["metric", "host", "ts"]);
    for (what, rows) in [("logs", &logs), ("metrics", &metrics)] {
        let arrow = rows.get_array_memory_size();
        println!("codecs: {} rows of {what}, {:.0} MB in memory", rows.num_rows(), arrow as f64 / 1e6);
        let zstd = |level| Compression::ZSTD(ZstdLevel::try_new(level).expect("should be a level"));
        for (name, codec) in [("zstd(1)", zstd(1)), ("zstd(3)", zstd(3)), ("snappy", Compression::SNAPPY)] {
            for group in [128 << 10, 1 << 20] {
                let before = cpu();
                let bytes = encode(rows, codec, group);
                let (used, rows) = ((cpu() - before).as_secs_f64(), rows.num_rows() as f64);
                println!(
                    "codecs: {what:8} {name:8} {group:8} rows a group: {:6.2} bytes a row, {:6.2} us of CPU a row",
                    bytes as f64 / rows,
                    used * 1e6 / rows
                );
            }
        }
    }
}

fn encode(rows: &RecordBatch, codec: Compression, group: usize) -> usize {
    let properties = WriterProperties::builder()
        .set_compression(codec)
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_max_row_group_row_count(Some(group))
        .build();
    let mut file = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut file, rows.schema(), Some(properties)).expect("should begin");
    for start in (0..rows.num_rows()).step_by(BATCH) {
        let batch = rows.slice(start, BATCH.min(rows.num_rows() - start));
        writer.write(&batch).expect("should encode");
    }
    writer.close().expect("should end");
    file.len()
}

/// Values that wander, read every ten seconds and a little late.
fn metrics(rows: usize) -> RecordBatch {
    let mut random = StdRng::seed_from_u64(12);
    let mut wander: Vec<f64> = (0..SERIES).map(|_| random.random_range(0.0..100.0)).collect();
    let (mut times, mut values) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
    for row in 0..rows {
        let tick = i64::try_from(row / SERIES).expect("should fit");
        times.push(tick * 10_000_000 + random.random_range(0..50_000));
        let value = &mut wander[row % SERIES];
        *value += f64::from(random.random_range(-50..=50)) / 100.0;
        values.push((*value * 100.0).round() / 100.0);
    }
    let text = |make: &dyn Fn(usize) -> String| -> ArrayRef {
        Arc::new(StringArray::from_iter_values((0..rows).map(|row| make(row % SERIES))))
    };
    let columns: [(&str, ArrayRef); 4] = [
        ("ts", Arc::new(TimestampMicrosecondArray::from(times).with_timezone("UTC"))),
        ("host", text(&|series| format!("host-{}.example.org", series % HOSTS))),
        ("metric", text(&|series| format!("system.metric.number.{}", series / HOSTS))),
        ("value", Arc::new(Float64Array::from(values))),
    ];
    RecordBatch::try_from_iter(columns).expect("should be a batch")
}
