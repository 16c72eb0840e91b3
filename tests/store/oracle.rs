//! What the simulation knows must be true. It watches answers and views, and settles what was in doubt after each start.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;
use penstock_store::{AppendError, Appended, Commit, Incarnation, Lsn, Sealed, Slice, Store, TableId};

/// A row is a slice here; its number is in its payload.
pub type RowId = u64;
/// A sealed generation for ever: table, incarnation, sequence.
type Key = (TableId, Incarnation, u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// No answer, or one that leaves it open.
    Unknown,
    /// Acknowledged or seen: there until its commit.
    Kept,
    /// Refused or taken back: not to be seen, unless it is offered again.
    Gone,
    /// Committed: never to be seen again.
    InDelta,
}

#[derive(Debug)]
struct Row {
    table: TableId,
    fate: Fate,
    /// All rows of one record share this.
    record: usize,
    lsn: Option<Lsn>,
}

#[derive(Debug)]
struct Known {
    rows: Vec<RowId>,
    /// A commit was asked for; whether it is durable is open.
    committing: bool,
    committed: bool,
}

/// Everything that was promised so far.
#[derive(Debug, Default)]
pub struct Oracle {
    rows: BTreeMap<RowId, Row>,
    records: Vec<Vec<RowId>>,
    sealed: HashMap<Key, Known>,
    durable: HashMap<u32, Lsn>,
    incarnations: BTreeSet<Incarnation>,
    tables: BTreeSet<TableId>,
}

/// A payload of `len` bytes (at least 16) that can only be that of row `id`.
pub fn payload(id: RowId, len: usize) -> Bytes {
    let mut bytes = Vec::with_capacity(len);
    bytes.extend_from_slice(&id.to_le_bytes());
    bytes.extend_from_slice(&(len as u64).to_le_bytes());
    let mut x = id.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    while bytes.len() < len {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        bytes.extend_from_slice(&x.to_le_bytes());
    }
    bytes.truncate(len);
    bytes.into()
}

fn read_payload(slice: &Slice) -> RowId {
    let number = |at: usize| u64::from_le_bytes(slice.payload[at..at + 8].try_into().expect("should be eight bytes"));
    assert_eq!(payload(number(0), number(8) as usize), slice.payload, "a row that nobody wrote");
    number(0)
}

/// A read may meet a planned fault; it may not find other bytes than were written.
fn unless_it_fails<T>(read: std::io::Result<T>) -> Option<T> {
    read.inspect_err(|e| assert!(e.kind() != std::io::ErrorKind::InvalidData, "{e}")).ok()
}

impl Oracle {
    /// A record that is about to be handed over.
    pub fn offer(&mut self, rows: &[(RowId, TableId)]) -> usize {
        let record = self.records.len();
        self.records.push(rows.iter().map(|(id, _)| *id).collect());
        for (id, table) in rows {
            self.rows.insert(*id, Row { table: *table, fate: Fate::Unknown, record, lsn: None });
        }
        record
    }

    /// A stamped record is handed over again. What was lost of it may come now.
    pub fn offer_again(&mut self, record: usize) {
        for id in &self.records[record] {
            let row = self.rows.get_mut(id).expect("should be offered");
            if row.fate == Fate::Gone {
                (row.fate, row.lsn) = (Fate::Unknown, None);
            }
        }
    }

    /// The answer to one of the attempts at a stamped record: an error says nothing of the others.
    pub fn stamped(&mut self, record: usize, answer: &Result<Appended, AppendError>) {
        match answer {
            Ok(_) => self.appended(record, answer),
            Err(error) => {
                let forgotten = matches!(
                    error,
                    AppendError::UnknownSequence(_)
                        | AppendError::Fenced { .. }
                        | AppendError::TooManyProducers
                        | AppendError::TooManyKeys
                        | AppendError::Reused
                );
                assert!(!forgotten, "a stamp within its window: {error}");
            }
        }
    }

    pub fn appended(&mut self, record: usize, answer: &Result<Appended, AppendError>) {
        for id in &self.records[record] {
            let row = self.rows.get_mut(id).expect("should be offered");
            match answer {
                Ok(appended) => {
                    assert_ne!(row.fate, Fate::Gone, "row {id} was acknowledged after it was known to be gone");
                    assert!(row.lsn.is_none_or(|lsn| lsn == appended.lsn), "row {id} got another receipt");
                    if row.fate == Fate::Unknown {
                        row.fate = Fate::Kept;
                    }
                    row.lsn = Some(appended.lsn);
                }
                Err(AppendError::Poisoned { .. }) => {}
                Err(_) => {
                    assert_eq!(row.fate, Fate::Unknown, "row {id} was seen and then refused");
                    row.fate = Fate::Gone;
                }
            }
        }
        if let Ok(appended) = answer {
            // A watermark that readers may have seen: everything acknowledged lies below it.
            let durable = self.durable.entry(appended.shard).or_default();
            *durable = (*durable).max(appended.lsn);
        }
    }

    pub fn defined(&mut self, table: TableId, answer: &Result<Appended, AppendError>) {
        if answer.is_ok() {
            self.tables.insert(table);
        }
    }

    /// False if the rows of a sealed generation cannot be read just now: it is not to be committed then.
    pub fn sealed(&mut self, table: TableId, answer: &Result<Option<Sealed>, AppendError>) -> bool {
        if let Ok(Some(sealed)) = answer {
            let Some(slices) = unless_it_fails(sealed.generation.slices(usize::MAX)) else { return false };
            let rows = slices.iter().map(read_payload).collect();
            self.learn((table, sealed.seal.incarnation, sealed.seal.sequence), rows);
        }
        true
    }

    fn learn(&mut self, key: Key, rows: Vec<RowId>) {
        let known =
            self.sealed.entry(key).or_insert_with(|| Known { rows: rows.clone(), committing: false, committed: false });
        assert_eq!(known.rows, rows, "generation {key:?} has other rows than before");
    }

    /// Commits what Delta is said to hold; only what is known to be sealed.
    pub fn committing(&mut self, commit: &Commit) {
        self.covered(commit).for_each(|known| known.committing = true);
    }

    pub fn committed(&mut self, commit: &Commit, answer: &Result<(), AppendError>) {
        if answer.is_ok() {
            let covered: Vec<RowId> = self.covered(commit).flat_map(|known| known.rows.clone()).collect();
            self.covered(commit).for_each(|known| known.committed = true);
            covered.iter().for_each(|id| self.rows.get_mut(id).expect("should be offered").fate = Fate::InDelta);
        }
    }

    fn covered(&mut self, commit: &Commit) -> impl Iterator<Item = &mut Known> {
        let commit = *commit;
        let covers = move |key: &Key| key.0 == commit.table && key.1 == commit.incarnation && key.2 <= commit.sequence;
        self.sealed.iter_mut().filter(move |(key, _)| covers(key)).map(|(_, known)| known)
    }

    /// Looks at a running store. What is seen must stay.
    pub fn observe(&mut self, store: &Store) {
        for shard in store.status() {
            let durable = self.durable.entry(shard.shard).or_default();
            assert!(shard.durable_lsn >= *durable, "shard {} went back", shard.shard);
            *durable = shard.durable_lsn;
        }
        let acknowledged: Vec<RowId> = self.with(Fate::Kept);
        let Some(seen) = self.look(store) else { return };
        for id in acknowledged.iter().filter(|id| !seen.contains_key(id)) {
            assert!(self.may_be_committed(*id), "row {id} is not visible");
        }
    }

    fn with(&self, fate: Fate) -> Vec<RowId> {
        self.rows.iter().filter(|(_, row)| row.fate == fate).map(|(id, _)| *id).collect()
    }

    fn may_be_committed(&self, id: RowId) -> bool {
        self.sealed.values().any(|known| known.committing && known.rows.contains(&id))
    }

    /// Everything that is visible now, each row checked; none if a lane file cannot be read just now.
    fn look(&mut self, store: &Store) -> Option<HashMap<RowId, Lsn>> {
        let mut seen = HashMap::new();
        let tables: BTreeSet<TableId> = self.rows.values().map(|row| row.table).collect();
        for table in tables {
            for view in store.view(table).generations {
                let mut last = Lsn(0);
                let mut rows = Vec::new();
                for slice in unless_it_fails(view.slices())? {
                    let id = read_payload(&slice);
                    let row = self.rows.get_mut(&id).expect("should be a row that was offered");
                    assert_eq!(row.table, table, "row {id} is in the wrong table");
                    assert!(slice.lsn >= last, "row {id} is out of order");
                    assert!(row.fate != Fate::Gone && row.fate != Fate::InDelta, "row {id} came back");
                    assert!(row.lsn.is_none_or(|lsn| lsn == slice.lsn), "row {id} moved");
                    row.fate = Fate::Kept;
                    row.lsn = Some(slice.lsn);
                    // What is here now may be committed by the time it is asked for.
                    let gone = store.whereabouts(table, slice.lsn).is_none_or(|w| w.is_gone());
                    assert!(!gone || view.generation().is_retired(), "row {id} is here, and said to be gone");
                    let origin = store.origin(table, slice.lsn).map(|(start, _)| start);
                    assert!(
                        origin.is_some_and(|start| self.incarnations.contains(&start)),
                        "row {id} is of {origin:?}"
                    );
                    last = slice.lsn;
                    assert!(seen.insert(id, slice.lsn).is_none(), "row {id} is there twice");
                    rows.push(id);
                }
                // A seal that came after the view closed over rows that the view does not have.
                if let Some(seal) = view.current_seal()
                    && view.totals() == view.generation().totals()
                {
                    self.learn((table, seal.incarnation, seal.sequence), rows);
                }
            }
        }
        Some(seen)
    }

    /// Judges a start, and settles what was in doubt before it.
    pub fn settle(&mut self, store: &Store) {
        assert!(self.incarnations.insert(store.incarnation()), "an incarnation came twice");
        self.durable.iter().for_each(|(shard, durable)| {
            let now = store.status()[*shard as usize].durable_lsn;
            assert!(now >= *durable, "shard {shard} restarted at {now}, but had published {durable}");
        });
        let definitions: BTreeSet<TableId> = store.definitions().iter().map(|d| d.table).collect();
        assert!(definitions.is_superset(&self.tables), "a table's definition is lost");
        let before: HashMap<RowId, Fate> = self.rows.iter().map(|(id, row)| (*id, row.fate)).collect();
        let seen = self.look(store).expect("should be readable after a start");
        let present: BTreeSet<Key> = store
            .summaries()
            .iter()
            .flat_map(|s| s.sealed.iter().map(|g| (s.table, g.seal.incarnation, g.seal.sequence)))
            .collect();
        let usages = || definitions.iter().filter_map(|table| store.usage(*table));
        let figures = (usages().map(|u| u.rows()).sum(), usages().map(|u| u.bytes()).sum());
        assert_eq!(
            (store.unflushed_rows(), store.unflushed_bytes()),
            figures,
            "the tables' figures are not the node's"
        );
        let mut gone = Vec::new();
        for (key, known) in &mut self.sealed {
            if present.contains(key) {
                assert!(!known.committed, "generation {key:?} came back after its commit");
                known.committing = false;
                continue;
            }
            assert!(known.committing || known.committed, "generation {key:?} is lost");
            known.committed = true;
            gone.extend(known.rows.iter().copied());
        }
        gone.iter().for_each(|id| self.rows.get_mut(id).expect("should be offered").fate = Fate::InDelta);
        let committed: BTreeSet<RowId> = gone.into_iter().collect();
        for (id, fate) in before {
            let is_there = seen.contains_key(&id);
            if fate == Fate::Kept && !committed.contains(&id) {
                assert!(is_there, "row {id} was acknowledged or seen, and is lost");
            }
            if fate == Fate::Unknown && !is_there {
                let row = self.rows.get_mut(&id).expect("should be offered");
                row.fate = Fate::Gone;
                let others = &self.records[row.record];
                assert!(others.iter().all(|o| !seen.contains_key(o)), "a part of the record of row {id} is lost");
            }
        }
    }

    /// Rows that are kept now.
    pub fn kept(&self) -> usize {
        self.rows.values().filter(|row| row.fate == Fate::Kept).count()
    }
}
