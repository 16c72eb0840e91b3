use std::time::Duration;

use arrow::array::AsArray;
use arrow::datatypes::{Int32Type, Int64Type};
use bytes::Bytes;

use super::*;
use crate::flush::kit::{Kit, on_demand, read};
use crate::flush::{FlushError, Options};
use crate::schema::payload;

const LONG: Duration = Duration::from_secs(30);

fn soon() -> Options {
    Options { dead_letter_after: 2, orphan_age: Duration::ZERO, ..on_demand() }
}

/// Where the dead letters of the kit's tables are.
fn location(kit: &Kit) -> url::Url {
    let name = TABLE_NAME.parse().expect("should be a name");
    kit.lake.table(table_id("default"), &name).location()
}

/// Sequence, rows, encoding, payload and reason of each dead letter.
async fn letters(kit: &Kit) -> Vec<(i64, i64, i32, Vec<u8>, String)> {
    let sql = r#"select sequence, "rows", encoding, payload, reason from t order by sequence, lsn"#;
    let mut letters = Vec::new();
    for batch in read(location(kit), sql).await {
        let payload = arrow::compute::cast(batch.column(3), &arrow::datatypes::DataType::Binary).expect("should cast");
        let reason = arrow::compute::cast(batch.column(4), &arrow::datatypes::DataType::Utf8).expect("should cast");
        for row in 0..batch.num_rows() {
            letters.push((
                batch.column(0).as_primitive::<Int64Type>().value(row),
                batch.column(1).as_primitive::<Int64Type>().value(row),
                batch.column(2).as_primitive::<Int32Type>().value(row),
                payload.as_binary::<i32>().value(row).to_vec(),
                reason.as_string::<i32>().value(row).to_owned(),
            ));
        }
    }
    letters
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_cannot_be_read_go_to_the_dead_letters_and_their_table_moves_on() {
    let kit = Kit::new();
    let table = kit.table("cpu").await;
    kit.append(table, 0, 0..5).await;
    kit.append_unreadable(table, 1).await;
    kit.append(table, 2, 5..10).await;
    kit.seal(table).await;
    let (flusher, mut heard) = kit.flusher(soon());
    flusher.flush(&[table], LONG).await.expect("should flush");
    assert_eq!(kit.numbers(table).await, (0..10).collect::<Vec<_>>());
    let letters = letters(&kit).await;
    let [(sequence, rows, encoding, payload, reason)] = &letters[..] else { panic!("should be one: {letters:?}") };
    assert_eq!((*sequence, *rows, *encoding, payload.as_slice()), (2, 1, 99, b"?".as_slice()));
    assert!(reason.contains("encoding 99"), "{reason}");
    let shown = flusher.progress(table);
    assert_eq!((shown.dead_generations, shown.dead_rows, shown.rows_flushed, shown.last_error), (1, 1, 10, None));
    flusher.stop().await;
    assert!(kit.journal.uploads.lock().is_empty(), "nothing is left to be swept");
    drop(flusher);
    let mut told = Vec::new();
    while let Some(flushed) = heard.recv().await {
        told.push((flushed.sequence, flushed.rows));
    }
    assert_eq!(told, [(1, 5), (2, 0), (3, 5)]);

    // The table knows it too: a restart brings nothing back.
    let kit = kit.restart();
    assert_eq!(kit.unflushed_rows(table), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_over_which_the_work_panics_can_be_read_back_from_the_dead_letters() {
    let kit = Kit::new();
    let table = kit.table("cpu").await;
    kit.append(table, 0, 0..5).await;
    kit.append(table, 0, 5..7).await;
    let (flusher, _heard) = kit.flusher(soon());
    flusher.context.panics.lock().insert(1);
    flusher.flush(&[table], LONG).await.expect("should flush");
    let spec = kit.registry.by_id(table).expect("should be known").spec.clone();
    let mut numbers = Vec::new();
    for (sequence, rows, encoding, bytes, reason) in letters(&kit).await {
        assert!(sequence == 1 && reason.contains("injected"), "{reason}");
        let encoding = u8::try_from(encoding).expect("should be an encoding");
        let batch = payload::decode(encoding, &Bytes::from(bytes), &arrow_schema(&spec)).expect("should decode");
        assert_eq!(i64::try_from(batch.num_rows()).expect("should fit"), rows);
        numbers.extend(batch.column(1).as_primitive::<Int64Type>().values().to_vec());
    }
    assert_eq!(numbers, (0..7).collect::<Vec<_>>());
    assert_eq!(kit.numbers(table).await, Vec::<i64>::new(), "an empty commit is in the table");
}

/// The process dies between the dead letter and the commit that moves the table past it.
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_behind_the_dead_letter_does_not_write_it_twice() {
    let kit = Kit::new();
    let table = kit.table("cpu").await;
    kit.append_unreadable(table, 0).await;
    kit.append(table, 1, 0..5).await;
    let sealed = kit.seal(table).await;
    bury(&kit.context(on_demand()), &sealed[0], "before the crash").await.expect("should be buried");
    bury(&kit.context(on_demand()), &sealed[0], "repeated").await.expect("should find itself done");

    let kit = kit.restart();
    let (flusher, _heard) = kit.flusher(soon());
    flusher.flush(&[table], LONG).await.expect("should flush");
    let reasons: Vec<String> = letters(&kit).await.into_iter().map(|letter| letter.4).collect();
    assert_eq!(reasons, ["before the crash"]);
    assert_eq!(kit.numbers(table).await, (0..5).collect::<Vec<_>>());
}

/// Tables and starts do not hide each other's: sequences begin at 1 in each.
#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_of_several_tables_and_starts_are_all_there() {
    let mut kit = Kit::new();
    let tables = [kit.table("cpu").await, kit.table("disk").await];
    for start in 0..2 {
        for table in tables {
            kit.append_unreadable(table, start).await;
        }
        let (flusher, _heard) = kit.flusher(Options { dead_letter_after: 1, ..on_demand() });
        flusher.flush(&tables, LONG).await.expect("should flush");
        drop(flusher);
        kit = kit.restart();
    }
    let letters = letters(&kit).await;
    assert_eq!(letters.iter().map(|letter| letter.0).collect::<Vec<_>>(), [1, 1, 1, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_a_store_that_fails_nor_a_table_that_refuses_makes_dead_letters() {
    let kit = Kit::new();
    let (cpu, other) = (kit.table("cpu").await, kit.table("other").await);
    for table in [cpu, other] {
        kit.append(table, 0, 0..5).await;
    }
    // Somebody else's table lies where `other` should.
    let location_of = kit.lake.table(other, &"other".parse().expect("should be a name")).location();
    std::fs::create_dir_all(location_of.to_file_path().expect("should be local")).expect("should make a directory");
    let theirs = deltalake::DeltaTable::try_from_url(location_of);
    let column = deltalake::kernel::StructField::nullable("n", deltalake::kernel::DataType::LONG);
    theirs.await.expect("a URL").create().with_columns([column]).await.expect("should create");
    // And the store takes no data files of `cpu`.
    let in_the_way = kit.log_dir(cpu).parent().expect("should have a parent").join("date=1970-01-01");
    std::fs::create_dir_all(in_the_way.parent().expect("should have a parent")).expect("should make a directory");
    std::fs::write(&in_the_way, "in the way").expect("should write");
    let (flusher, _heard) = kit.flusher(Options { dead_letter_after: 1, ..on_demand() });
    let error = flusher.flush(&[cpu, other], Duration::from_secs(2)).await.expect_err("should not flush");
    assert!(matches!(error, FlushError::Timeout { left: 2, .. }), "{error}");
    std::fs::remove_file(&in_the_way).expect("should remove");
    flusher.flush(&[cpu], LONG).await.expect("should flush");
    let error = flusher.flush(&[other], Duration::from_secs(1)).await.expect_err("should not flush").to_string();
    assert!(error.contains("not ours"), "{error}");
    assert_eq!((kit.unflushed_rows(cpu), kit.unflushed_rows(other)), (0, 5));
    assert!(deltalake::open_table(location(&kit)).await.is_err(), "there are no dead letters");
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_have_no_dead_letters() {
    let kit = Kit::new();
    let table = kit.table(TABLE_NAME).await;
    kit.append_unreadable(table, 0).await;
    let (flusher, _heard) = kit.flusher(Options { dead_letter_after: 1, ..on_demand() });
    let error = flusher.flush(&[table], Duration::from_secs(1)).await.expect_err("should not flush").to_string();
    assert!(error.contains("dead letters have no table"), "{error}");
    assert_eq!(kit.unflushed_rows(table), 1);
}

#[test]
fn only_the_same_fault_in_a_row_counts() {
    let mut strikes = Strikes::default();
    let same = (0..2).map(|_| strikes.add(Some(Fault::Panic), 3)).collect::<Vec<_>>();
    assert_eq!(same, [false, false]);
    assert!(!strikes.add(Some(Fault::Payload), 3), "another fault begins anew");
    assert!(!strikes.add(None, 3) && !strikes.add(Some(Fault::Payload), 3), "the store's fault does not count");
    assert!(strikes.add(Some(Fault::Payload), 3), "nor does it begin anew");
    assert!((0..100).all(|_| !Strikes::default().add(Some(Fault::Panic), 0)), "0 is never");
}

#[test]
fn ids_are_the_same_on_every_node_and_in_every_version() {
    assert_eq!(table_id("default").to_string(), "3a126c16-ffd0-86eb-ab2a-03d0e8990c44");
    assert_ne!(table_id("default"), table_id("ops"));
    let (node, table) = (NodeId(Uuid::from_u128(7)), TableId(Uuid::from_u128(42)));
    assert_ne!(writer(node, table), node);
    assert_ne!(writer(node, table), writer(node, TableId(Uuid::from_u128(43))));
}
