use super::*;

/// A node with work to do, and nothing in its way.
fn at_ease() -> Measured {
    Measured {
        seconds: 10.0,
        records_per_second: 1_000.0,
        bytes_per_second: 10e6,
        records_per_sync: 12.0,
        sync_millis: 2.0,
        sync_busy: 0.2,
        log_busy: 0.1,
        shards: 2,
        fullest: ("admission.max_unflushed".to_owned(), 0.1),
        budgets: vec![("admission.max_unflushed".to_owned(), "1GiB".to_owned(), "2GiB".to_owned())],
        drained_per_second: 10e6,
        uploads_per_second: 4.0,
        waiting: 0.5,
        uploading: 1.0,
        ready: 0.5,
        encode_busy: 0.2,
        upload_millis: 100.0,
        encode_millis: 50.0,
        commit_millis: 80.0,
        commits_per_second: 4.0,
        generation_bytes: 1e6,
        parallelism: 4,
        threads: 2,
        processors: 8,
        memory: 256 << 20,
        memory_used: 16 << 20,
        seal_bytes: 64 << 20,
        commit_interval_millis: 5_000,
        ..Measured::default()
    }
}

fn next(finding: &Finding) -> &Next {
    finding.next.as_ref().expect("should name a setting")
}

fn factor(finding: &Finding) -> f64 {
    next(finding).factor.expect("should say how much")
}

#[test]
fn nothing_binds_a_node_at_ease_or_an_idle_one() {
    for measured in [at_ease(), Measured::default()] {
        let Explanation { acks, flush, .. } = explain(measured);
        assert_eq!((acks.binds, flush.binds), (Bind::Nothing, Bind::Nothing));
        assert_eq!((acks.next, flush.next), (None, None));
        assert!(acks.because.contains("syncs of") && flush.because.contains("generations wait"));
    }
}

#[test]
fn syncs_bind_where_they_take_a_logs_time_and_its_thread_where_the_rest_does() {
    let syncing = explain(Measured { sync_busy: 0.8, log_busy: 0.15, sync_millis: 4.0, ..at_ease() });
    assert_eq!(syncing.acks.binds, Bind::Sync);
    assert!(
        syncing.acks.because.contains("syncs of 4.0 ms with 12.0 records each take 80 %"),
        "{}",
        syncing.acks.because
    );
    let Next { key, from, to, live, .. } = next(&syncing.acks);
    assert_eq!((key.as_str(), from.as_str(), to.as_str(), *live), ("store.shards", "2", "4", false));
    assert_eq!(syncing.flush.binds, Bind::Nothing, "the other side has its own answer");
    let applying = explain(Measured { sync_busy: 0.2, log_busy: 0.7, ..at_ease() });
    assert_eq!(applying.acks.binds, Bind::LogThread);
}

#[test]
fn the_budget_that_turned_most_away_binds() {
    let refused =
        [("admission.replay_budget", 3), ("admission.max_unflushed", 40)].map(|(key, count)| (key.to_owned(), count));
    let full = Measured {
        refused: refused.to_vec(),
        fullest: ("admission.max_unflushed".to_owned(), 0.99),
        bytes_per_second: 30e6,
        // Also this binds, and is not what posts wait for.
        sync_busy: 0.9,
        slots_full: 0.9,
        waiting: 100.0,
        uploading: 4.0,
        ..at_ease()
    };
    let Explanation { acks, flush, .. } = explain(full);
    assert_eq!((acks.binds, flush.binds), (Bind::Budget, Bind::UploadLatency));
    assert!(acks.because.contains("43 posts") && acks.because.contains("99 % full"), "{}", acks.because);
    let next = next(&acks);
    assert_eq!((next.key.as_str(), next.from.as_str(), next.to.as_str()), ("admission.max_unflushed", "1GiB", "2GiB"));
    assert!(
        next.effect.contains("bound by the latency of uploads") && next.effect.contains("19.1 MiB/s"),
        "{}",
        next.effect
    );
    assert_eq!(next.factor, None, "more room drains nothing");
    // Nobody is refused yet: what they are delayed for is what is fullest.
    let paced = explain(Measured { delayed: 5, fullest: ("admission.replay_budget".to_owned(), 0.9), ..at_ease() });
    assert_eq!(super::tests::next(&paced.acks).key, "admission.replay_budget");
}

#[test]
fn upload_latency_binds_where_all_slots_are_in_use_and_threads_are_not() {
    let slow = Measured { slots_full: 1.0, uploading: 4.0, waiting: 100.0, encode_busy: 0.1, ..at_ease() };
    let Explanation { flush, .. } = explain(slow.clone());
    assert_eq!(flush.binds, Bind::UploadLatency);
    let Next { key, from, to, live, effect, .. } = next(&flush);
    assert_eq!((key.as_str(), from.as_str(), to.as_str(), *live), ("flush.parallelism", "4", "8", true));
    assert!((factor(&flush) - 2.0).abs() < 1e-9 && !effect.contains("then"), "{effect}");
    // As far as the next limit lets it.
    let threads = explain(Measured { encode_busy: 0.7, ..slow.clone() });
    assert!((factor(&threads.flush) - 1.0 / 0.7).abs() < 1e-9);
    assert!(next(&threads.flush).effect.contains("then flush.threads binds"));
    let memory = explain(Measured { memory_used: 200 << 20, ..slow.clone() });
    assert!((factor(&memory.flush) - 1.28).abs() < 1e-9);
    assert!(next(&memory.flush).effect.contains("then flush.memory binds"));
    let little = explain(Measured { waiting: 2.0, ..slow });
    assert!((factor(&little.flush) - 1.5).abs() < 1e-9);
}

#[test]
fn encoding_binds_where_its_threads_are_busy() {
    let busy = Measured { slots_full: 1.0, uploading: 4.0, waiting: 100.0, encode_busy: 0.95, ..at_ease() };
    let Explanation { flush, .. } = explain(busy.clone());
    assert_eq!(flush.binds, Bind::EncodeCpu);
    assert!(flush.because.contains("2 encoding threads are busy for 95 %"), "{}", flush.because);
    assert_eq!((next(&flush).key.as_str(), next(&flush).to.as_str(), next(&flush).live), ("flush.threads", "4", false));
    let three = explain(Measured { processors: 3, ..busy.clone() });
    assert!((factor(&three.flush) - 1.5).abs() < 1e-9);
    let all = explain(Measured { processors: 2, ..busy });
    assert_eq!((all.flush.binds, all.flush.next), (Bind::EncodeCpu, None), "no setting makes more processors");
}

#[test]
fn a_budget_of_memory_binds_before_what_it_keeps_idle() {
    let full = Measured { memory_full: 0.8, slots_full: 0.1, uploading: 2.0, waiting: 50.0, ..at_ease() };
    let Explanation { flush, .. } = explain(full);
    assert_eq!(flush.binds, Bind::Budget);
    assert_eq!((next(&flush).key.as_str(), next(&flush).to.as_str()), ("flush.memory", "512 MiB"));
    assert!((factor(&flush) - 2.0).abs() < 1e-9);
}

#[test]
fn commit_order_binds_where_uploads_are_done_and_wait() {
    let behind = Measured { ready: 40.0, uploading: 1.0, waiting: 0.0, commit_millis: 5_000.0, ..at_ease() };
    let Explanation { flush, .. } = explain(behind.clone());
    assert_eq!(flush.binds, Bind::CommitOrder);
    assert!(flush.because.contains("40.0 wait for commits of 5000 ms"), "{}", flush.because);
    assert_eq!((next(&flush).key.as_str(), next(&flush).to.as_str()), ("flush.commit_interval", "10000 ms"));
    // Generations that are full already get larger by their size.
    let large = explain(Measured { generation_bytes: 60.0 * 1e6, ..behind.clone() });
    assert_eq!((next(&large.flush).key.as_str(), next(&large.flush).to.as_str()), ("flush.seal_bytes", "128 MiB"));
    // Some always wait for a moment.
    assert_eq!(explain(Measured { ready: 1.0, uploading: 0.5, ..behind }).flush.binds, Bind::Nothing);
}

#[test]
fn it_is_read_as_it_was_written() {
    let explanation = explain(Measured { slots_full: 1.0, uploading: 4.0, waiting: 100.0, ..at_ease() });
    let json = serde_json::to_value(&explanation).expect("should be JSON");
    assert_eq!(json["flush"]["binds"], "upload_latency");
    assert_eq!(serde_json::from_value::<Explanation>(json).expect("should be read"), explanation);
}
