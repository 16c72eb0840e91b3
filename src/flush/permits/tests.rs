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
    let memory = Memory::new(Arc::clone(&freed));
    let memory = Limited { memory, limit: 1 << 20 };
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
    let huge = memory.take(1 << 40).expect("should go alone");
    assert_eq!(memory.memory.used(), 1 << 20);
    drop(huge);
    assert_eq!(memory.memory.used(), 0);
}

#[test]
fn a_limit_on_memory_that_shrinks_takes_nothing_back_and_lets_nothing_in_before_it_is_kept() {
    let memory = Memory::new(Arc::default());
    let large = memory.take(1_000, 1_000).expect("should be room");
    assert!(memory.take(1, 100).is_none());
    let more = memory.take(500, 2_000).expect("should be room under the higher limit");
    drop(large);
    assert!(memory.take(1, 100).is_none(), "500 are in use");
    drop(more);
    assert!(memory.take(1_000, 100).is_some(), "one always goes");
    assert!(memory.take(0, 0).is_some());
}

struct Limited {
    memory: Arc<Memory>,
    limit: u64,
}

impl Limited {
    fn take(&self, bytes: u64) -> Option<Room> {
        self.memory.take(bytes, self.limit)
    }
}
