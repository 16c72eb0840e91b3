//! An object store as it can be: calls are slow, refused, answered wrongly, not answered at all, carried out without an answer, or
//! carried out long after the client has given them up.
//!
//! - [`Bucket`] is the server: it outlives its clients, and what was sent to it may still arrive after they are dead;
//! - [`Rough`] is one client's connection to it, with a [`Weather`]. What happens to which call is drawn from a seed; which call is
//!   the next one is decided by the machine's timing, so a seed repeats the weather and not the run.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::stream::{BoxStream, StreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::runtime::Handle;

/// The server's side.
#[derive(Debug)]
pub struct Bucket {
    pub objects: Arc<InMemory>,
    /// Where it lives: its clients' runtimes end with them.
    runtime: Handle,
    down_until: Mutex<Option<Instant>>,
    /// PUTs on their way that nobody waits for any more.
    late: AtomicU64,
    /// How often each thing happened.
    happened: Mutex<BTreeMap<&'static str, u64>>,
}

impl Bucket {
    /// An empty one, for the life of this runtime.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            objects: Arc::default(),
            runtime: Handle::current(),
            down_until: Mutex::default(),
            late: AtomicU64::new(0),
            happened: Mutex::default(),
        })
    }

    /// Nothing is answered for a while.
    pub fn outage(&self, length: Duration) {
        *self.down_until.lock() = Some(Instant::now() + length);
        self.note("outage");
    }

    /// Waits until nothing is on its way any more.
    pub async fn quiet(&self) {
        while self.late.load(Ordering::SeqCst) > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// How often each thing happened.
    pub fn happened(&self) -> BTreeMap<&'static str, u64> {
        self.happened.lock().clone()
    }

    fn note(&self, what: &'static str) {
        *self.happened.lock().entry(what).or_default() += 1;
    }

    fn is_down(&self) -> bool {
        self.down_until.lock().is_some_and(|until| Instant::now() < until)
    }
}

/// What a connection does to calls.
#[derive(Debug, Clone, PartialEq)]
pub struct Weather {
    /// Of each call.
    pub latency: Range<Duration>,
    /// Of what is sent and received.
    pub bytes_per_second: u64,
    /// Share of PUTs to which something happens.
    pub faults: f64,
    /// The same of reads, which a client repeats by itself before anybody hears of it: a table is opened with one for each entry.
    pub read_faults: f64,
    /// How late a PUT may arrive that was given up.
    pub late: Range<Duration>,
}

const fn millis(range: Range<u64>) -> Range<Duration> {
    Duration::from_millis(range.start)..Duration::from_millis(range.end)
}

impl Weather {
    /// Something happens, and everything succeeds in the end.
    pub fn mild() -> Self {
        let late = millis(10..800);
        Self { latency: millis(0..3), bytes_per_second: 64 << 20, faults: 0.03, read_faults: 0.000_5, late }
    }

    /// Nothing happens.
    pub fn calm() -> Self {
        Self { latency: millis(0..1), faults: 0.0, read_faults: 0.0, ..Self::mild() }
    }

    /// Some weather.
    pub fn draw(random: &mut StdRng) -> Self {
        Self {
            latency: millis(0..random.random_range(1..8)),
            bytes_per_second: random.random_range(1..20) << 20,
            faults: random.random_range(0.01..0.15),
            read_faults: random.random_range(0.0..0.004),
            late: millis(10..random.random_range(50..1_500)),
        }
    }
}

/// What happens to a PUT.
#[derive(Debug, Clone, Copy)]
enum PutFault {
    /// 503; not carried out.
    Unavailable,
    /// 429; not carried out.
    TooMany,
    /// 409, "a conflicting operation is going on"; not carried out.
    Conflict,
    /// Carried out, the answer was lost, the client's own retry is told that it exists: 412.
    OwnRetry,
    /// Carried out; the connection breaks before the answer.
    LostAnswer,
    /// Carried out; no answer.
    NoAnswer,
    /// Dropped; no answer.
    Dropped,
    /// No answer; carried out long after.
    Late,
}

const PUT_FAULTS: [PutFault; 8] = [
    PutFault::Unavailable,
    PutFault::TooMany,
    PutFault::Conflict,
    PutFault::OwnRetry,
    PutFault::LostAnswer,
    PutFault::NoAnswer,
    PutFault::Dropped,
    PutFault::Late,
];

/// One client's connection.
#[derive(Debug)]
pub struct Rough {
    bucket: Arc<Bucket>,
    weather: Weather,
    random: Mutex<StdRng>,
    dead: AtomicBool,
}

impl fmt::Display for Rough {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rough")
    }
}

fn failed(reason: &'static str) -> Error {
    Error::Generic { store: "rough", source: reason.into() }
}

fn exists(location: &Path, reason: &'static str) -> Error {
    Error::AlreadyExists { path: location.to_string(), source: reason.into() }
}

async fn never<T>() -> T {
    std::future::pending().await
}

impl Rough {
    pub fn new(bucket: &Arc<Bucket>, weather: Weather, seed: u64) -> Arc<Self> {
        let random = Mutex::new(StdRng::seed_from_u64(seed));
        Arc::new(Self { bucket: Arc::clone(bucket), weather, random, dead: AtomicBool::new(false) })
    }

    /// The client is killed: it sends and hears nothing any more. What it has sent is under way.
    pub fn kill(&self) {
        self.dead.store(true, Ordering::SeqCst);
    }

    fn draw<T>(&self, from: impl FnOnce(&mut StdRng) -> T) -> T {
        from(&mut self.random.lock())
    }

    fn fault_due(&self) -> bool {
        self.draw(|random| random.random_bool(self.weather.faults))
    }

    fn read_fault_due(&self) -> bool {
        self.draw(|random| random.random_bool(self.weather.read_faults))
    }

    /// The way there, or back.
    async fn travel(&self, bytes: usize) -> Result<()> {
        let latency = self.draw(|random| random.random_range(self.weather.latency.clone()));
        let transfer = Duration::from_secs_f64(bytes as f64 / self.weather.bytes_per_second as f64);
        tokio::time::sleep(latency + transfer).await;
        if self.dead.load(Ordering::SeqCst) {
            return never().await;
        }
        match self.bucket.is_down() {
            false => Ok(()),
            // Refused at once, or not answered.
            true if self.draw(|random| random.random_bool(0.5)) => Err(failed("connection refused")),
            true => never().await,
        }
    }

    /// What may happen to a call that changes nothing.
    async fn disturb(&self) -> Result<()> {
        if !self.read_fault_due() {
            return Ok(());
        }
        match self.draw(|random| random.random_range(0..3)) {
            0 => {
                self.bucket.note("read: 503");
                Err(failed("503 Slow Down"))
            }
            1 => {
                self.bucket.note("read: connection broken");
                Err(failed("connection reset by peer"))
            }
            _ => {
                self.bucket.note("read: no answer");
                never().await
            }
        }
    }

    fn send_late(&self, location: &Path, payload: PutPayload, opts: PutOptions) {
        let delay = self.draw(|random| random.random_range(self.weather.late.clone()));
        let (bucket, location) = (Arc::clone(&self.bucket), location.clone());
        bucket.late.fetch_add(1, Ordering::SeqCst);
        self.bucket.runtime.spawn(async move {
            tokio::time::sleep(delay).await;
            let landed = bucket.objects.put_opts(&location, payload, opts).await.is_ok();
            bucket.note(if landed { "late PUT landed" } else { "late PUT found its key taken" });
            bucket.late.fetch_sub(1, Ordering::SeqCst);
        });
    }

    async fn put_badly(
        &self,
        fault: PutFault,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        let create = opts.mode == PutMode::Create;
        match fault {
            PutFault::Unavailable => Err(failed("503 Slow Down")),
            PutFault::TooMany => Err(failed("429 Too Many Requests")),
            PutFault::Conflict if create => Err(exists(location, "409 ConditionalRequestConflict")),
            PutFault::OwnRetry if create => {
                self.bucket.objects.put_opts(location, payload, opts).await?;
                Err(exists(location, "412 Precondition Failed"))
            }
            PutFault::Conflict | PutFault::OwnRetry => Err(failed("409 OperationAborted")),
            PutFault::LostAnswer => {
                self.bucket.objects.put_opts(location, payload, opts).await?;
                if create && self.draw(|random| random.random_bool(0.3)) {
                    // Whoever asks what became of it hears nothing either, for longer than anybody asks.
                    self.bucket.outage(Duration::from_millis(self.draw(|random| random.random_range(800..1_200))));
                }
                Err(failed("connection reset by peer"))
            }
            PutFault::NoAnswer => {
                self.bucket.objects.put_opts(location, payload, opts).await?;
                never().await
            }
            PutFault::Dropped => never().await,
            PutFault::Late => {
                self.send_late(location, payload, opts);
                never().await
            }
        }
    }
}

impl PutFault {
    fn name(self) -> &'static str {
        match self {
            Self::Unavailable => "PUT: 503",
            Self::TooMany => "PUT: 429",
            Self::Conflict => "PUT: 409, not carried out",
            Self::OwnRetry => "PUT: 412 for its own retry",
            Self::LostAnswer => "PUT: carried out, connection broken",
            Self::NoAnswer => "PUT: carried out, no answer",
            Self::Dropped => "PUT: dropped",
            Self::Late => "PUT: late",
        }
    }
}

#[async_trait]
impl ObjectStore for Rough {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.travel(payload.content_length()).await?;
        if self.fault_due() {
            let fault = PUT_FAULTS[self.draw(|random| random.random_range(0..PUT_FAULTS.len()))];
            self.bucket.note(fault.name());
            return self.put_badly(fault, location, payload, opts).await;
        }
        let result = self.bucket.objects.put_opts(location, payload, opts).await;
        self.travel(0).await?;
        result
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.travel(0).await?;
        self.disturb().await?;
        let inner = self.bucket.objects.put_multipart_opts(location, opts).await?;
        let broken = self.fault_due();
        Ok(Box::new(Upload { inner, broken }) as Box<dyn MultipartUpload>)
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.travel(0).await?;
        self.disturb().await?;
        let mut result = self.bucket.objects.get_opts(location, options).await?;
        self.travel(usize::try_from(result.range.end - result.range.start).unwrap_or(0)).await?;
        if self.read_fault_due() {
            self.bucket.note("read: broken off in the body");
            let body = futures::stream::once(async { Err(failed("connection reset by peer")) });
            result.payload = GetResultPayload::Stream(body.boxed());
        }
        Ok(result)
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        if self.fault_due() {
            self.bucket.note("DELETE: 503");
            return futures::stream::once(async { Err(failed("503 Slow Down")) }).boxed();
        }
        self.bucket.objects.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let listed = self.bucket.objects.list(prefix);
        if self.bucket.is_down() || self.read_fault_due() {
            self.bucket.note("LIST: broken off");
            let some = self.draw(|random| random.random_range(0..4));
            let broken = futures::stream::once(async { Err(failed("connection reset by peer")) });
            return listed.take(some).chain(broken).boxed();
        }
        listed
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.travel(0).await?;
        self.disturb().await?;
        self.bucket.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.travel(0).await?;
        self.disturb().await?;
        self.bucket.objects.copy_opts(from, to, options).await
    }
}

/// Parts arrive; a broken one fails at its end, and nothing is there.
#[derive(Debug)]
struct Upload {
    inner: Box<dyn MultipartUpload>,
    broken: bool,
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.inner.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        if self.broken { Err(failed("503 Slow Down")) } else { self.inner.complete().await }
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}
