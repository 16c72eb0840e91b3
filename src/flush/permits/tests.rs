use super::*;

const LONG: Duration = Duration::from_secs(10);

#[test]
fn a_limit_holds_until_tasks_have_run_for_long_and_then_a_hard_one() {
    let mut slots = Slots::new(LONG);
    let begin = Instant::now();
    let first = slots.take(2, 4, begin).expect("should be free");
    let second = slots.take(2, 4, begin + Duration::from_secs(5)).expect("should be free");
    assert_eq!(slots.take(2, 4, begin + Duration::from_secs(9)), None);
    // The first one hangs: the others go on without it.
    let third = slots.take(2, 4, begin + LONG).expect("should not count the first one");
    assert_eq!(slots.take(2, 4, begin + LONG), None);
    let late = begin + LONG * 5;
    let fourth = slots.take(2, 4, late).expect("should count none");
    assert_eq!(slots.take(2, 4, late), None, "four is the most");
    slots.give(first);
    let fifth = slots.take(2, 4, late).expect("should be free");
    assert_eq!(slots.take(2, 9, late), None, "two young ones");
    for slot in [second, third, fourth, fifth] {
        slots.give(slot);
    }
    assert_eq!(slots.running(), 0);
}

#[test]
fn a_limit_that_grows_and_shrinks_is_obeyed_by_what_begins() {
    let mut slots = Slots::new(LONG);
    let now = Instant::now();
    let taken: Vec<Slot> = (0..8).map_while(|_| slots.take(4, 8, now)).collect();
    assert_eq!(taken.len(), 4);
    assert!(slots.take(5, 10, now).is_some());
    assert!(slots.take(2, 4, now).is_none());
    taken.into_iter().take(3).for_each(|slot| slots.give(slot));
    assert!(slots.take(2, 4, now).is_none(), "two are left");
}

#[tokio::test]
async fn room_is_bounded_and_one_generation_always_goes() {
    let freed = Arc::new(Notify::new());
    let memory = Memory::new(1 << 20, Arc::clone(&freed));
    let half = memory.take(512 << 10).expect("should be room");
    assert!(memory.take(2 << 20).is_none(), "it goes alone");
    let mut other = memory.take(512 << 10).expect("should be room");
    assert!(memory.take(1).is_none());
    drop(half);
    let huge = memory.take(1 << 40);
    assert!(huge.is_none());

    let mut encoding = other.encoding([1, 2].into_iter());
    assert_eq!(encoding.next(), Some(1));
    assert!(memory.take(640 << 10).is_none(), "it is still encoded");
    drop(encoding);
    freed.notified().await;
    let rest = memory.take(832 << 10).expect("should have most of it back");
    assert!(memory.take(128 << 10).is_none(), "files on their way keep a part");
    drop((rest, other));
    assert!(memory.take(1 << 40).is_some());
}
