use super::*;

fn shard(records: u64, sync_micros: u64, log_micros: u64) -> ShardStatus {
    let mut status =
        ShardStatus { records, groups: records / 10, payload_bytes: records * 100, ..ShardStatus::default() };
    status.syncs.counts[10] = records / 10;
    status.syncs.sum = sync_micros;
    status.write_micros = log_micros / 2;
    status.bookkeeping.sum = log_micros - log_micros / 2;
    status
}

fn totals(at: Instant, scale: u64) -> Totals {
    let mut flush = flush::Figures {
        uploads: scale * 20,
        uploaded_bytes: scale * 20_000,
        held_by_parallelism: Duration::from_secs(scale * 6),
        held_by_memory: Duration::from_secs(scale),
        ..flush::Figures::default()
    };
    flush.encodes.counts[12] = scale * 20;
    flush.encodes.sum = scale * 10_000_000;
    flush.commits.counts[15] = scale * 5;
    flush.commits.sum = scale * 500_000;
    let mut lake = Calls::default();
    lake.uploads.counts[15] = scale * 20;
    lake.uploads.sum = scale * 4_000_000;
    Totals {
        at,
        // The second one is the busier.
        shards: vec![
            shard(scale * 1_000, scale * 1_000_000, 0),
            shard(scale * 3_000, scale * 4_000_000, scale * 2_000_000),
        ],
        delays: scale * 3,
        refused: vec![("over_replay_budget", scale * 7), ("over_table_share", 0), ("body_too_large", scale)],
        drained: scale * 50_000,
        flush,
        lake,
        waiting: Waiting { to_upload: scale * 100, uploading: scale * 40, to_commit: scale * 10 },
        notes: scale * 10,
    }
}

fn present() -> Present {
    let mut config = Config::default();
    config.admission.table_share = 0.75;
    Present { config, processors: 8, memory_used: 5, fullest: ("admission.table_share", 0.4) }
}

#[test]
fn figures_are_of_the_time_between_two_notes() {
    let begin = Instant::now();
    let ten = Duration::from_secs(10);
    let measured = between(&totals(begin, 1), &totals(begin + ten, 2), &present());
    let close =
        |value: f64, wanted: f64| assert!((value - wanted).abs() < 1e-6, "{value} is not {wanted}: {measured:?}");
    close(measured.seconds, 10.0);
    close(measured.records_per_second, 400.0);
    close(measured.bytes_per_second, 40_000.0);
    close(measured.records_per_sync, 10.0);
    close(measured.sync_millis, 5_000.0 / 400.0);
    close(measured.sync_busy, 0.4);
    close(measured.log_busy, 0.2);
    assert_eq!(measured.delayed, 3);
    assert_eq!(measured.refused, [("admission.replay_budget".to_owned(), 7)], "what could never fit wants no budget");
    close(measured.drained_per_second, 5_000.0);
    close(measured.uploads_per_second, 2.0);
    close(measured.waiting, 10.0);
    close(measured.uploading, 4.0);
    close(measured.ready, 1.0);
    close(measured.slots_full, 0.6);
    close(measured.memory_full, 0.1);
    // Ten seconds of a thread, of two threads' ten each.
    close(measured.encode_busy, 0.5);
    close(measured.encode_millis, 500.0);
    close(measured.upload_millis, 200.0);
    close(measured.commit_millis, 100.0);
    close(measured.generation_bytes, 1_000.0);
    assert_eq!((measured.parallelism, measured.threads, measured.processors, measured.memory_used), (4, 2, 8, 5));
    let shares = ("admission.table_share".to_owned(), "0.75".to_owned(), "1".to_owned());
    assert!(measured.budgets.contains(&shares), "{:?}", measured.budgets);
    assert!(measured.budgets.contains(&("admission.replay_budget".to_owned(), "10s".to_owned(), "20s".to_owned())));
}

#[test]
fn without_time_in_between_nothing_was_done() {
    let now = totals(Instant::now(), 3);
    let measured = between(&now, &now, &present());
    assert_eq!((measured.records_per_second, measured.sync_busy, measured.delayed), (0.0, 0.0, 0));
    assert!([measured.sync_millis, measured.upload_millis, measured.waiting].iter().all(|v| *v == 0.0), "{measured:?}");
}

#[test]
fn the_last_notes_are_kept() {
    let begin = Instant::now();
    let mut notes = Notes::default();
    (0..50).for_each(|n| notes.add(totals(begin + TICK * n, 1)));
    assert_eq!(notes.0.len(), NOTES);
    let kept = notes.0.back().expect("should be there").at - notes.0.front().expect("should be there").at;
    assert_eq!(kept, TICK * 10);
}

#[test]
fn the_fullest_budget_is_found() {
    let limits =
        Limits { max_unflushed: 1_000, max_in_flight: 100, table: 200, namespace: 800, replay: 400, max_lag: None };
    let usage = Usage { unflushed: 500, in_flight: 10, table: 120, namespace: 300, replay: 100, ..Usage::default() };
    assert_eq!(fullest(&usage, &limits), ("admission.table_share", 0.6));
    let replaying = Usage { replay: 390, ..usage };
    assert_eq!(fullest(&replaying, &limits), ("admission.replay_budget", 1.0));
    assert_eq!(fullest(&Usage::default(), &limits), ("admission.max_unflushed", 0.0));
}
