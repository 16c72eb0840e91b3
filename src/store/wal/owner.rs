//! The one thread that writes a shard's log.
//!
//! It loops: take what has queued, give out LSNs in queue order, write the group with one vectored write, `fdatasync` once, apply the
//! records in LSN order, publish, answer. What arrives during a sync is the next group: there is no linger timer. One writer means
//! no gaps, no LSN out of order, and no race between rolling a segment and a late write.
//!
//! A failed write or sync is final: the kernel marks the pages of a failed sync clean, so a retry would succeed without having
//! written anything. The shard keeps its first reason, answers everybody with it, and goes on serving reads.
//!
//! The last page of a segment is kept for the note that the log goes on in the next one, or for a mark.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::RwLockReadGuard;

use super::group::{self, Kind};
use super::pool::{NoSegment, Pool, Spare};
use super::queue::{Answer, Appended, Batch, Request, Swap};
use super::record::Record;
use super::segment::{self, Segment};
use super::stage::{Done, Group, Staged};
use super::{GROUP_ALIGN, align_group};
use crate::bucket::state::Applied;
use crate::error::AppendError;
use crate::fs::{FileSystem, remove_if_there};
use crate::shard::Shared;
use crate::types::{Incarnation, Lsn, NodeId, Note};

/// How long the queue stays empty before the owner leaves a mark.
const MARK_AFTER: Duration = Duration::from_millis(2);
/// How long commit records wait for a group to ride in.
const LAZY_PATIENCE: Duration = Duration::from_millis(100);
/// What a segment of one large group is called until it has its name; a crash may leave it behind.
pub const OVERSIZED_NAME: &str = "oversized";

/// What the owner needs to know of its surroundings.
#[derive(Debug)]
pub struct Settings {
    /// Where the log is written.
    pub fs: Arc<dyn FileSystem>,
    /// The shard's directory.
    pub dir: PathBuf,
    /// The shard's number.
    pub shard: u32,
    /// The data directory's id.
    pub node: NodeId,
    /// This start.
    pub incarnation: Incarnation,
    /// Data bytes of a regular segment.
    pub segment_bytes: u64,
    /// Most bytes of one group, but for a single record that is larger.
    pub group_bytes: usize,
}

/// Who waits for a record that is durable.
#[derive(Debug)]
struct Waiting {
    lsn: Lsn,
    done: Done,
    repeats: Vec<Answer<Appended>>,
    /// What the repeats are told.
    note: Option<Note>,
}

/// The owner's own state; nobody else has it.
#[derive(Debug)]
pub struct Owner {
    settings: Settings,
    shared: Arc<Shared>,
    pool: Arc<Pool>,
    /// Retained segments in LSN order; the last one is written to.
    segments: VecDeque<Segment>,
    /// Where the next group goes.
    head: Lsn,
    /// What every group says of the segments that may be gone.
    kept_from: Lsn,
    /// Whether the position behind the last group tells that it was synced.
    marked: bool,
}

impl Owner {
    /// An owner that goes on at `head`, in the last of `segments`; the log below `checkpoint` is not needed.
    pub fn new(
        mut settings: Settings,
        shared: Arc<Shared>,
        pool: Arc<Pool>,
        segments: VecDeque<Segment>,
        head: Lsn,
        checkpoint: Lsn,
    ) -> Self {
        // A group of many small records is cut to what a regular segment holds: only a single large record needs one of its own.
        let most = settings.segment_bytes.saturating_sub(2 * GROUP_ALIGN);
        settings.group_bytes = settings.group_bytes.min(usize::try_from(most).unwrap_or(usize::MAX));
        let owner = Self { settings, shared, pool, segments, head, kept_from: checkpoint, marked: false };
        owner.publish_segments();
        owner
    }

    /// Runs until the queue is closed. A panic or an early end answers everybody who waits.
    pub fn run(mut self) {
        let guard = PoisonOnDrop(Arc::clone(&self.shared));
        if let Err(error) = self.serve() {
            let reason = error.to_string();
            tracing::error!(shard = self.settings.shard, reason, "the log stopped");
            self.shared.poison(&reason);
        }
        drop(guard);
    }

    fn serve(&mut self) -> io::Result<()> {
        loop {
            let patience = if self.marked { LAZY_PATIENCE } else { MARK_AFTER };
            match self.shared.queue.take(self.settings.group_bytes, patience) {
                Batch::Requests(requests) => self.serve_requests(requests)?,
                Batch::Idle if !self.marked => self.leave_mark()?,
                Batch::Idle => {}
                Batch::Closed => return self.leave_mark(),
            }
        }
    }

    fn serve_requests(&mut self, requests: Vec<Request>) -> io::Result<()> {
        let mut group = Group::default();
        let began = Instant::now();
        {
            let Settings { shard, incarnation, .. } = self.settings;
            let shared = Arc::clone(&self.shared);
            let mut state = shared.state.read();
            for request in requests {
                match request {
                    // Between two groups: what has been applied is what lies below the head, neither more nor less.
                    Request::Swap { done } => {
                        let swap = RwLockReadGuard::unlocked(&mut state, || self.swap());
                        drop(done.send(Ok(swap)));
                    }
                    Request::Release { below, done } => drop(done.send(Ok(self.release(below)))),
                    request => group.stage(request, shard, incarnation, &state),
                }
            }
        }
        self.shared.counters.bookkeeping.count(began.elapsed());
        if let Err(no_segment) = self.make_room_or_refuse_rows(&mut group)? {
            group.refuse(&AppendError::NoSpace(no_segment.0));
        }
        if group.is_empty() { Ok(()) } else { self.commit_group(group) }
    }

    /// Rows give way first: seals and commits are what empties a full disk.
    fn make_room_or_refuse_rows(&mut self, group: &mut Group) -> io::Result<Result<(), NoSegment>> {
        if group.has_rows() {
            let room = match self.pool.check_reserve() {
                Ok(()) => self.make_room_or_poison(group)?,
                refused => refused,
            };
            let Err(no_segment) = room else { return Ok(Ok(())) };
            // Segments that nobody needs any more may be waiting for the next checkpoint.
            self.shared.trigger.log_is_long();
            group.refuse_rows(&AppendError::NoSpace(no_segment.0));
        }
        if group.is_empty() { Ok(Ok(())) } else { self.make_room_or_poison(group) }
    }

    fn make_room_or_poison(&mut self, group: &mut Group) -> io::Result<Result<(), NoSegment>> {
        self.make_room(group.len() as u64, !group.has_rows()).inspect_err(|error| self.poison(error, group))
    }

    /// Makes one group durable and visible. The active segment has room for it.
    fn commit_group(&mut self, mut group: Group) -> io::Result<()> {
        self.write_group(&mut group.staged).inspect_err(|error| self.poison(error, &mut group))?;
        self.publish(group.staged)
    }

    /// Nobody whose record was staged may be told anything but this: it may be on disk all the same.
    fn poison(&self, error: &io::Error, group: &mut Group) {
        group.refuse(&self.shared.poison(&error.to_string()));
    }

    /// Sees to it that the active segment has room for a group of `bytes`, and a page behind it.
    fn make_room(&mut self, bytes: u64, from_reserve: bool) -> io::Result<Result<(), NoSegment>> {
        let needed = align_group(bytes) + GROUP_ALIGN;
        let active = self.segments.back().expect("should have an active segment");
        if self.head.0 + needed <= active.limit().0 {
            return Ok(Ok(()));
        }
        let is_regular = needed <= self.settings.segment_bytes;
        // An oversized segment is rare, and not worth keeping: it is made for this one group.
        let capacity = if is_regular { self.settings.segment_bytes } else { needed };
        let taken = if is_regular { self.pool.take(from_reserve) } else { self.make_oversized(capacity) };
        let spare = match taken {
            Ok(spare) => spare,
            Err(no_segment) => return Ok(Err(no_segment)),
        };
        let header = segment::Header {
            shard: self.settings.shard,
            base: self.head,
            salt: rand::random(),
            capacity,
            node: self.settings.node,
            incarnation: self.settings.incarnation,
            kept_from: self.kept_from,
        };
        let segment = segment::activate(&*self.settings.fs, &self.settings.dir, header, &spare.path, spare.file, &[])?;
        if self.segments.back().is_some_and(|s| s.header.base == header.base) {
            // An empty segment has just lost its name to the new one. MUST BEFORE any recycling, which goes by name: it would take
            // the new segment's file, and the rows in it.
            self.segments.pop_back();
        } else {
            // MUST AFTER the new segment's name is durable: a log that says it goes on, and does not, is refused as damaged.
            self.leave_note(Kind::Onward)?;
        }
        self.segments.push_back(segment);
        self.publish_segments();
        Ok(Ok(()))
    }

    fn make_oversized(&self, capacity: u64) -> Result<Spare, NoSegment> {
        let fs = &*self.settings.fs;
        let path = self.settings.dir.join(OVERSIZED_NAME);
        let make = |path: &Path| -> io::Result<_> {
            remove_if_there(fs, path)?;
            let file = fs.create(path)?;
            file.allocate(segment::HEADER_LEN + capacity)?;
            Ok(file)
        };
        match make(&path) {
            Ok(file) => Ok(Spare { path, file }),
            Err(error) => {
                // Half a file would keep the room that others need.
                if let Err(error) = fs.remove(&path) {
                    tracing::debug!(path = %path.display(), %error, "an oversized log segment was not removed");
                }
                Err(NoSegment(error.to_string()))
            }
        }
    }

    /// Writes and syncs the group at the head.
    fn write_group(&mut self, staged: &mut [Staged]) -> io::Result<()> {
        let segment = self.segments.back().expect("should have an active segment");
        let salt = segment.header.salt;
        let start = self.head;
        let mut at = start.0 + group::HEADER_LEN as u64;
        for s in staged.iter_mut() {
            s.lsn = Lsn(at);
            s.encoded.seal(s.lsn, salt);
            at += s.encoded.padded_len() as u64;
        }
        let len = at - start.0;
        let header = group::Header {
            lsn: start,
            durable_lsn: start,
            kept_from: self.kept_from,
            len: u32::try_from(len).map_err(|_| io::Error::other("a group of over 4 GiB"))?,
            frames: u32::try_from(staged.len()).map_err(|_| io::Error::other("a group of over 4 G frames"))?,
            kind: Kind::Group,
        }
        .encode(salt);
        // The padding is written too: a partial page would first have to be read back from the disk.
        static ZEROS: [u8; GROUP_ALIGN as usize] = [0; GROUP_ALIGN as usize];
        let padded = align_group(len);
        let mut parts = Vec::with_capacity(staged.len() + 2);
        parts.push(IoSlice::new(&header));
        parts.extend(staged.iter().flat_map(|s| s.encoded.parts()).map(IoSlice::new));
        parts.push(IoSlice::new(&ZEROS[..(padded - len) as usize]));
        let offset = segment.offset_of(start);
        // The handle knows the file by the name it had as a spare one.
        let at = |e: io::Error| io::Error::new(e.kind(), format!("{} at byte {offset}: {e}", segment.path.display()));
        let began = Instant::now();
        segment.file.write_vectored_at(&parts, offset).map_err(at)?;
        let written = Instant::now();
        // MUST BEFORE any answer: an ack that precedes the sync is lost with the power.
        segment.file.sync_data().map_err(at)?;
        let counters = &self.shared.counters;
        counters.write_nanos.fetch_add((written - began).as_nanos() as u64, Ordering::Relaxed);
        counters.syncs.count(written.elapsed());
        counters.groups.fetch_add(1, Ordering::Relaxed);
        counters.group_records.count_size(staged.len() as u64);
        counters.records.fetch_add(staged.len() as u64, Ordering::Relaxed);
        counters.log_records.fetch_add(staged.len() as u64, Ordering::Relaxed);
        counters.written_bytes.fetch_add(padded, Ordering::Relaxed);
        self.head = Lsn(start.0 + padded);
        self.marked = false;
        Ok(())
    }

    /// Makes a durable group visible, then answers its callers.
    fn publish(&mut self, staged: Vec<Staged>) -> io::Result<()> {
        let began = Instant::now();
        let mut payload_bytes = 0;
        let mut waiting = Vec::with_capacity(staged.len());
        let mut records = Vec::with_capacity(staged.len());
        for Staged { record, lsn, done, repeats, .. } in staged {
            let mut note = None;
            if let Record::Slices(rows) = &record {
                payload_bytes += rows.slices.iter().map(|s| s.payload.len() as u64).sum::<u64>();
                note = rows.mark.map(|mark| mark.note);
            }
            waiting.push(Waiting { lsn, done, repeats, note });
            records.push((lsn, record));
        }
        let applied: Result<Vec<Applied>, _> = {
            let mut state = self.shared.state.write();
            state.touch(records.iter().map(|(_, record)| record));
            let applied = records.into_iter().map(|(lsn, record)| state.apply(lsn, record)).collect();
            self.shared.publish_unflushed(&state);
            applied
        };
        let applied = match applied {
            Ok(applied) => applied,
            Err(contradiction) => {
                let refusal = self.shared.poison(&contradiction.to_string());
                for Waiting { done, repeats, .. } in waiting {
                    done.refuse(refusal.clone());
                    repeats.into_iter().for_each(|done| drop(done.send(Err(refusal.clone()))));
                }
                return Err(io::Error::other(contradiction));
            }
        };
        self.shared.counters.payload_bytes.fetch_add(payload_bytes, Ordering::Relaxed);
        // MUST AFTER the apply: a caller that was answered and then reads has to see its rows.
        self.shared.counters.durable_lsn.store(self.head.0, Ordering::Release);
        if self.head.0 - self.kept_from.0 >= self.shared.rhythm.log_bytes() {
            self.shared.trigger.log_is_long();
        }
        for (Waiting { lsn, done, repeats, note: repeat_of }, applied) in waiting.into_iter().zip(applied) {
            let shard = self.settings.shard;
            done.answer(shard, lsn, applied);
            repeats.into_iter().for_each(|done| drop(done.send(Ok(Appended { shard, lsn, repeat_of }))));
        }
        self.shared.counters.bookkeeping.count(began.elapsed());
        Ok(())
    }

    /// Leaves word, unsynced, that everything below the head is durable.
    fn leave_mark(&mut self) -> io::Result<()> {
        self.marked = true;
        let segment = self.segments.back().expect("should have an active segment");
        // An empty segment says the same by being there.
        if self.head == segment.header.base { Ok(()) } else { self.leave_note(Kind::Mark) }
    }

    fn leave_note(&self, kind: Kind) -> io::Result<()> {
        let segment = self.segments.back().expect("should have an active segment");
        if self.head.0 + GROUP_ALIGN > segment.limit().0 {
            return Ok(());
        }
        let mut page = vec![0; GROUP_ALIGN as usize];
        let header = group::Header::note(kind, self.head, self.kept_from);
        page[..group::HEADER_LEN].copy_from_slice(&header.encode(segment.header.salt));
        segment.file.write_all_at(&page, segment.offset_of(self.head))?;
        self.shared.counters.written_bytes.fetch_add(GROUP_ALIGN, Ordering::Relaxed);
        Ok(())
    }

    /// **One moment**: LSN and changes belong together. Taken at two, a record would be in both lane file and replay, or in neither.
    fn swap(&self) -> Swap {
        let segment = self.segments.back().expect("should have an active segment").header.base;
        let records = self.shared.counters.log_records.load(Ordering::Relaxed);
        Swap { checkpoint: self.head, segment, records, dirty: self.shared.state.write().take_dirty() }
    }

    /// Gives away the segments that end at or below a durable checkpoint.
    fn release(&mut self, below: Lsn) -> Vec<Segment> {
        self.kept_from = self.kept_from.max(below);
        // The next mark says so; without one, an idle log would not tell that it has been checkpointed.
        self.marked = false;
        let mut released = Vec::new();
        while self.segments.len() > 1 && self.segments[1].header.base <= below {
            released.extend(self.segments.pop_front());
        }
        self.publish_segments();
        released
    }

    fn publish_segments(&self) {
        let base = |segment: Option<&Segment>| segment.expect("should have an active segment").header.base;
        self.shared.publish_segments(base(self.segments.front()), base(self.segments.back()));
    }
}

/// Answers everybody if the owner ends in any way but by being closed.
struct PoisonOnDrop(Arc<Shared>);

impl Drop for PoisonOnDrop {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison("the log's owner thread panicked");
        }
        let error = self.0.poisoned().unwrap_or(AppendError::Closed);
        self.0.queue.refuse_all(&error);
    }
}
