//! Seeded histories of a table to which everything happens at once: commits, faults, kills, other writers, clean-up, drops, other
//! tables in its place. Whatever the order: what is released is in the table at that moment, its file with it, and nothing of ours is
//! in the table twice.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use deltalake::kernel::Add;
use object_store::ObjectStoreExt;
use object_store::memory::InMemory;
use penstock_store::Incarnation;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::holes::{append_as_another, their_version};
use super::support::*;
use crate::lake::{Error, Kind, Lake, LakeTable};

/// A generation: the start that sealed it, and its sequence.
type Sealed = (Incarnation, u64);

/// What a flush does with one table, and what is known of the world around it.
struct World {
    random: StdRng,
    objects: Arc<InMemory>,
    _lake: Lake,
    store: Arc<Faulty>,
    table: Arc<LakeTable>,
    start: Incarnation,
    last_sequence: u64,
    /// Not released, in seal order; with the files where those are uploaded, and whether they have landed.
    pending: BTreeMap<Sealed, (Option<Vec<Add>>, bool)>,
    /// Which generation a file is of.
    files: HashMap<String, Sealed>,
    released: usize,
    /// The table was asked what it holds; nothing is uploaded before.
    asked: bool,
    theirs: u64,
    history: Vec<String>,
}

impl World {
    fn new(seed: u64) -> Self {
        let objects = Arc::new(InMemory::new());
        let (lake, store, table) = Self::process(&objects, Incarnation(1_000));
        Self {
            random: StdRng::seed_from_u64(seed),
            objects,
            _lake: lake,
            store,
            table,
            start: Incarnation(1_000),
            last_sequence: 0,
            pending: BTreeMap::new(),
            files: HashMap::new(),
            released: 0,
            asked: false,
            theirs: 0,
            history: Vec::new(),
        }
    }

    fn process(objects: &Arc<InMemory>, start: Incarnation) -> (Lake, Arc<Faulty>, Arc<LakeTable>) {
        let (lake, store) = Faulty::lake_over(objects.clone(), []);
        lake.identify(NODE, start);
        let table = lake.table(TABLE, &name());
        (lake, store, table)
    }

    fn kill(&mut self) {
        self.start = Incarnation(self.start.0 + 1);
        (self._lake, self.store, self.table) = Self::process(&self.objects, self.start);
        self.last_sequence = 0;
        self.asked = false;
        self.pending.values_mut().for_each(|state| *state = (None, false));
    }

    fn seal(&mut self) {
        self.last_sequence += 1;
        self.pending.insert((self.start, self.last_sequence), (None, false));
    }

    async fn upload(&mut self) {
        let waiting =
            self.pending.iter().find(|(_, (files, landed))| files.is_none() && !landed).map(|(sealed, _)| *sealed);
        let Some(sealed) = waiting.filter(|_| self.asked) else { return };
        let adds = write(&self.table, 20_000, 1).await;
        self.files.extend(adds.iter().map(|add| (add.path.clone(), sealed)));
        self.pending.insert(sealed, (Some(adds), false));
    }

    async fn commit(&mut self) {
        let first = self.pending.iter().find(|(_, (_, landed))| !landed);
        let Some((sealed, (Some(adds), _))) = first.map(|(sealed, state)| (*sealed, state.clone())) else { return };
        match commit_as(&self.table, sealed.0, sealed.1..=sealed.1, &adds).await {
            Ok(_) => self.pending.entry(sealed).and_modify(|state| *state = (None, true)).or_default().1 = true,
            Err(error) => self.failed(&error),
        }
    }

    /// Asks the table what it holds, and lets go of that.
    async fn confirm(&mut self) {
        let mut starts: Vec<Incarnation> = self.pending.keys().map(|(start, _)| *start).collect();
        starts.dedup();
        let held = match self.table.resolve(&starts, NODE).await {
            Ok(held) => held,
            Err(error) => return self.failed(&error),
        };
        self.asked = true;
        let held: HashMap<Incarnation, u64> =
            starts.into_iter().zip(held).filter_map(|(start, held)| Some((start, held?))).collect();
        let gone: Vec<Sealed> =
            self.pending.keys().copied().filter(|(start, at)| held.get(start).is_some_and(|held| held >= at)).collect();
        if !gone.is_empty() {
            let counts = self.counts().await;
            for sealed in &gone {
                assert_eq!(counts.get(sealed), Some(&1), "released {sealed:?}\n{}", self.history.join("\n"));
                self.pending.remove(sealed);
            }
            self.released += gone.len();
        }
        // What landed and is not held is not in it.
        self.pending.values_mut().filter(|(_, landed)| *landed).for_each(|state| *state = (None, false));
    }

    fn failed(&mut self, error: &Error) {
        self.history.push(format!("  {error}"));
        assert!(!matches!(error, Error::Fenced { .. }), "{}", self.history.join("\n"));
        if matches!(error, Error::Changed { .. }) {
            self.pending.values_mut().for_each(|state| *state = (None, false));
            self.asked = false;
        }
    }

    /// How often each generation is in the table, counted by delta-rs. Every file has to be there.
    async fn counts(&self) -> BTreeMap<Sealed, usize> {
        // Without our faults.
        let node = self.other_node();
        let mut delta = deltalake::DeltaTable::new(Arc::clone(&node.parts.log_store));
        delta.load().await.unwrap_or_else(|error| panic!("{error}\n{}", self.history.join("\n")));
        let mut counts = BTreeMap::new();
        for file in delta.snapshot().expect("should be loaded").log_data().iter() {
            let path = file.path().into_owned();
            let Some(sealed) = self.files.get(&path) else { continue };
            let there = node.parts.store.head(&path.as_str().into()).await;
            assert!(there.is_ok(), "{path} of {sealed:?} is gone\n{}", self.history.join("\n"));
            *counts.entry(*sealed).or_default() += 1;
        }
        counts
    }

    fn other_node(&self) -> Arc<LakeTable> {
        Faulty::lake_over(self.objects.clone(), []).0.table(TABLE, &name())
    }

    async fn append_as_another(&mut self, count: u64) {
        // Whatever is there may not be a table of ours.
        let node = self.other_node();
        if node.resolve(&[], NODE).await.is_ok() {
            append_as_another(&node, self.theirs + 1..=self.theirs + count).await;
            self.theirs += count;
        }
    }

    async fn clean_up(&mut self) {
        let node = self.other_node();
        if let Ok(Some(snapshot)) = node.snapshot(None).await {
            let versions = self.store.versions().await;
            // Nobody checkpoints a log that has a gap.
            if versions.last() != Some(&snapshot.version()) {
                return;
            }
            let before = versions.into_iter().filter(|version| *version < snapshot.version());
            delta_rs_checkpoint(&node).await;
            self.store.remove_entries(before).await;
        }
    }

    async fn step(&mut self) {
        let dice = self.random.random_range(0..100);
        let what = match dice {
            0..15 => "seal",
            15..35 => "upload",
            35..60 => "commit",
            60..70 => "confirm",
            70..75 => "others append",
            75..78 => "clean up",
            78..80 => "drop",
            80..82 => "made anew",
            82..84 => "another's",
            84..88 => "kill",
            _ => "fault",
        };
        self.history.push(format!("{what}; {:?}", self.store.versions().await));
        match what {
            "seal" => self.seal(),
            "upload" => self.upload().await,
            "commit" => self.commit().await,
            "confirm" => self.confirm().await,
            "others append" => {
                let count = self.random.random_range(1..4);
                self.append_as_another(count).await;
            }
            "clean up" => self.clean_up().await,
            "drop" => self.store.drop_table().await,
            "made anew" => {
                self.store.drop_table().await;
                self.append_as_another(1).await;
            }
            "another's" => {
                self.store.drop_table().await;
                for version in 0..self.random.random_range(1..6) {
                    self.store.put_entry(version, &their_version(version)).await;
                }
            }
            "kill" => self.kill(),
            _ => match self.random.random_range(0..5) {
                0 => self.store.then(Fault::LoseAnswer),
                1 => self.store.then(Fault::FailBefore),
                2 => self.store.then(Fault::Conflict),
                3 => self.store.fail_reads(self.random.random_range(1..5)),
                _ => self.store.fail_lists(1),
            },
        }
    }

    /// Nothing more happens from outside; what is pending goes in.
    async fn settle(&mut self) {
        self.history.push("settling".to_owned());
        self.store.calm();
        // What we have put behind a gap is gone then.
        self.confirm().await;
        if let Err(error) = self.other_node().resolve(&[], NODE).await
            && error.kind() == Kind::Refused
        {
            self.store.drop_table().await;
        }
        for _ in 0..200 {
            if self.pending.is_empty() {
                break;
            }
            self.upload().await;
            self.commit().await;
            self.confirm().await;
        }
        assert!(self.pending.is_empty(), "{:?} is left\n{}", self.pending.keys(), self.history.join("\n"));
        if self.released > 0 && !self.store.versions().await.is_empty() {
            let twice: Vec<_> = self.counts().await.into_iter().filter(|(_, count)| *count > 1).collect();
            assert_eq!(twice, [], "in the table twice\n{}", self.history.join("\n"));
        }
    }
}

#[tokio::test]
async fn whatever_happens_around_it_what_is_released_is_in_the_table_once() {
    let mut released = 0;
    for seed in 0..24 {
        let mut world = World::new(seed);
        world.history.push(format!("seed {seed}"));
        for _ in 0..80 {
            world.step().await;
        }
        world.settle().await;
        released += world.released;
    }
    assert!(released > 150, "{released} generations are not much of a test");
}
