//! Garbage never panics: every decoder gets damaged samples of every format (`PENSTOCK_FUZZ_ROUNDS` for more of them).

mod targets;

use std::io::Write;
use std::sync::Arc;

use arrow::array::*;
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, Fields, Int8Type};
use arrow::ipc::writer::StreamWriter;
use penstock::ingest::{Format, Limits, decode};
use penstock::schema::payload;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use targets::{TARGETS, table};

/// Damaged samples for each decoder.
const ROUNDS: u64 = 1_500;

const ROWS: &str = r#"{"ts":1700000000335226412,"b":true,"i":-7,"l":"92","f":0.5,"d":"NaN","s":"h\u00e9\n","bin":"AAEC","day":"2026-01-31"}
{"ts":"2026-01-31T12:34:56.123456789+02:00","at":"1969-12-31T23:59:59.5Z","dec":"1.25","list":[[1,null],[],null],"new":[{"a":1}]}
{"ts":-1,"o":{"x":1,"t":"2026-01-31T12:34:56.000000001Z","p":{"y":""}},"m":{"k":{"k":["x"]},"":null},"l":"x"}"#;

fn stream() -> Vec<u8> {
    let times =
        TimestampNanosecondArray::from(vec![1_700_000_000_335_226_412, -1, 0]).with_timezone("Australia/Melbourne");
    let words = vec![Some("a"), None, Some("b")].into_iter().collect::<DictionaryArray<Int8Type>>();
    let runs = RunArray::try_new(&Int32Array::from(vec![2, 3]), &Int64Array::from(vec![Some(7), None]));
    let item = |kind| Arc::new(Field::new_list_field(kind, true));
    let inner = ListViewArray::new(
        item(DataType::Int16),
        ScalarBuffer::from(vec![1, 0]),
        ScalarBuffer::from(vec![2, 1]),
        Arc::new(Int16Array::from(vec![1, 2, 3])),
        None,
    );
    let offsets = OffsetBuffer::new(vec![0, 1, 1, 2].into());
    let lists = ListArray::new(item(inner.data_type().clone()), offsets, Arc::new(inner), None);
    let fields = Fields::from(vec![
        Field::new("t", DataType::Timestamp(arrow::datatypes::TimeUnit::Nanosecond, None), true),
        Field::new("x", DataType::UInt8, true),
    ]);
    let point: Vec<ArrayRef> =
        vec![Arc::new(TimestampNanosecondArray::from(vec![1, 2, 3])), Arc::new(UInt8Array::from(vec![1, 2, 3]))];
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("s", Arc::new(words)),
        ("ts", Arc::new(times)),
        ("l", Arc::new(runs.expect("should be sound"))),
        ("list", Arc::new(lists)),
        ("o", Arc::new(StructArray::new(fields, point, None))),
        ("dec", Arc::new(UInt64Array::from(vec![Some(u64::MAX), None, Some(1)]))),
        (
            "bin",
            Arc::new(BinaryViewArray::from(vec![Some(b"a value that is longer than a view".as_slice()), None, None])),
        ),
        ("new", Arc::new(Float64Array::from(vec![None, Some(f64::NAN), None]))),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true)));
    let batch = batch.expect("should make a batch");
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).expect("should begin a stream");
    writer.write(&batch).expect("should write a batch");
    writer.into_inner().expect("should end the stream")
}

fn samples() -> Vec<Vec<u8>> {
    let array = format!("[{}]", ROWS.replace('\n', ","));
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(ROWS.as_bytes()).expect("should compress");
    let good =
        decode(&table(), Format::Ndjson, &ROWS.into(), targets::NOW, &Limits::default()).expect("should be decoded");
    assert_eq!((good.batch.num_rows(), good.rejected.len()), (1, 2), "samples should be of both kinds");
    vec![
        ROWS.into(),
        array.into_bytes(),
        stream(),
        gzip.finish().expect("should compress"),
        zstd::encode_all(ROWS.as_bytes(), 1).expect("should compress"),
        targets::DECLARATION.into(),
        payload::encode(&good.batch).expect("should be encoded").to_vec(),
        penstock::schema::packed::pack(&good.batch).expect("one row should be packed"),
    ]
}

fn damage(random: &mut StdRng, samples: &[Vec<u8>], own: usize) -> Vec<u8> {
    let mut bytes = samples[own].clone();
    for _ in 0..random.random_range(1..4) {
        let at = random.random_range(0..=bytes.len());
        let end = random.random_range(at..=bytes.len().min(at + 16));
        match random.random_range(0..7) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..end)),
            2 => bytes[at..end].fill(random.random()),
            3 => bytes.insert(at, *b"\"{}[],:\\-0e.9\n\0\xff".get(random.random_range(0..16)).unwrap_or(&0)),
            4 => bytes[at..end].iter_mut().for_each(|byte| *byte ^= 1 << random.random_range(0..8)),
            5 => {
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            _ => {
                let other = &samples[random.random_range(0..samples.len())];
                let from = random.random_range(0..=other.len());
                let piece = other[from..other.len().min(from + 24)].to_vec();
                bytes.splice(at..end, piece);
            }
        }
    }
    bytes
}

#[test]
fn damaged_bodies_are_answered() {
    let rounds = std::env::var("PENSTOCK_FUZZ_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
    let samples = samples();
    assert_eq!(samples.len(), TARGETS.len());
    for (own, (name, target)) in TARGETS.iter().enumerate() {
        target(&samples[own]);
        for seed in 0..rounds {
            let bytes = damage(&mut StdRng::seed_from_u64(seed), &samples, own);
            let answered = std::panic::catch_unwind(|| target(&bytes));
            assert!(
                answered.is_ok(),
                "{name} panics on the damage of seed {seed}: {:?}",
                String::from_utf8_lossy(&bytes)
            );
        }
    }
}

#[test]
fn noise_is_answered() {
    for (name, target) in TARGETS {
        for seed in 0..500_u64 {
            let mut random = StdRng::seed_from_u64(seed);
            let mut bytes = vec![0; random.random_range(0..300)];
            random.fill(bytes.as_mut_slice());
            let answered = std::panic::catch_unwind(|| target(&bytes));
            assert!(answered.is_ok(), "{name} panics on the noise of seed {seed}");
        }
    }
}
