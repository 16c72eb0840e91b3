use super::*;

#[test]
fn what_holds_uploads_is_added_up_by_what_it_is() {
    let tally = Tally::default();
    let begin = Instant::now();
    let at = |seconds: u64| begin + Duration::from_secs(seconds);
    tally.held(None, at(0));
    tally.held(Some(Held::Parallelism), at(10));
    tally.held(Some(Held::Parallelism), at(12));
    let figures = tally.read(at(15));
    assert_eq!(
        (figures.held_by_parallelism.as_secs(), figures.held_by_memory.as_secs()),
        (5, 0),
        "also what still holds"
    );
    tally.held(Some(Held::Memory), at(20));
    tally.held(None, at(21));
    let figures = tally.read(at(99));
    assert_eq!((figures.held_by_parallelism.as_secs(), figures.held_by_memory.as_secs()), (10, 1));
}

#[test]
fn seals_and_failures_are_counted_under_their_words() {
    let tally = Tally::default();
    for (reason, _) in Reason::ALL {
        (0..=reason as u64).for_each(|_| tally.sealed(reason));
    }
    for (step, _) in Step::ALL {
        (0..=step as u64).for_each(|_| tally.failed(step));
    }
    let figures = tally.read(Instant::now());
    assert_eq!(figures.sealed, [("window", 1), ("size", 2), ("age", 3), ("pressure", 4)]);
    assert_eq!(figures.failures, [("resolve", 1), ("upload", 2), ("commit", 3), ("confirm", 4)]);
}

#[tokio::test]
async fn time_in_which_work_waits_is_not_busy() {
    let work = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(20) {
            std::hint::spin_loop();
        }
        7
    };
    let (done, took) = busy(work).await;
    assert_eq!(done, 7);
    assert!(took >= Duration::from_millis(20), "{took:?}");
    let (_, idle) = busy(tokio::time::sleep(Duration::from_millis(100))).await;
    assert!(idle < Duration::from_millis(100), "{idle:?}");
}
