//! Drives every decoder with damaged samples: cut, flipped, spliced, with numbers that cannot be.

use std::path::Path;

use penstock_store::checkpoint::lanes;
use penstock_store::fs::MemoryFileSystem;
use penstock_store::{Commit, Options, ProducerId, Stamp, Store};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::decoders::TARGETS;
use crate::kit::{self, bucket, slice, table};

/// Real files of a node that has lived: everything a start reads.
fn samples() -> Vec<Vec<u8>> {
    let fs = MemoryFileSystem::new();
    let options = Options { shards: 1, segment_bytes: 1 << 16, ..Options::default() };
    let store = Store::open(kit::shared(&fs), Path::new(kit::DIR), &options).expect("should open");
    for n in 1..5 {
        kit::define(&store, table(n));
        for sequence in 0..4 {
            let stamp = Stamp { producer: ProducerId(n), epoch: 1, sequence };
            let slices = vec![slice(table(n), bucket(sequence as i64 % 2), vec![n as u8; 100])];
            let pending = store.append_stamped(stamp, slices).expect("should be encodable");
            pending.wait_blocking().expect("should be durable");
        }
        let sealed = kit::seal(&store).ok();
        if let Some(sealed) = sealed.filter(|_| n == 1) {
            let (incarnation, sequence) = (sealed.seal.incarnation, sealed.seal.sequence);
            let commit = Commit { table: table(1), incarnation, sequence, version: 1 };
            store.commit(commit).wait_blocking().expect("should be durable");
            kit::append(&store, "open again");
        }
        store.checkpoint().expect("should checkpoint");
        kit::append(&store, "behind the checkpoint");
    }
    drop(store);
    let mut samples: Vec<Vec<u8>> = fs.files().iter().map(|p| fs.dump(p).expect("should be there")).collect();
    samples.iter_mut().for_each(|bytes| bytes.truncate(1 << 16));
    samples.push(lanes::encode_guard(penstock_store::NodeId(uuid::Uuid::nil()), 3));
    // The parts that lie within files.
    let parts: Vec<Vec<u8>> =
        samples.iter().filter(|s| s.len() > 4200).flat_map(|s| [s[4096..].to_vec(), s[72..4000].to_vec()]).collect();
    samples.extend(parts);
    samples
}

fn damage(rng: &mut StdRng, samples: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = samples[rng.random_range(0..samples.len())].clone();
    let from = rng.random_range(0..bytes.len().clamp(1, 200));
    bytes.drain(..from.min(bytes.len()));
    bytes.truncate(rng.random_range(0..bytes.len().clamp(1, 9000)));
    for _ in 0..rng.random_range(0..8) {
        if bytes.is_empty() {
            break;
        }
        let at = rng.random_range(0..bytes.len());
        match rng.random_range(0..4) {
            0 => bytes[at] ^= 1 << rng.random_range(0..8),
            1 => bytes[at] = [0, 1, 0x7F, 0xFF][rng.random_range(0..4)],
            2 => {
                let value: u64 = [0, 1, u64::from(u32::MAX), u64::MAX, 1 << 63][rng.random_range(0..5)];
                let end = (at + 8).min(bytes.len());
                bytes[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
            }
            _ => {
                let other = &samples[rng.random_range(0..samples.len())];
                let from = rng.random_range(0..other.len().max(1));
                let len = rng.random_range(0..64).min(other.len().saturating_sub(from)).min(bytes.len() - at);
                bytes[at..at + len].copy_from_slice(&other[from..from + len]);
            }
        }
    }
    bytes
}

#[test]
fn no_bytes_make_a_decoder_panic() {
    let rounds = std::env::var("PENSTOCK_FUZZ_ROUNDS").ok().and_then(|v| v.parse().ok()).unwrap_or(20_000);
    let samples = samples();
    let mut rng = StdRng::seed_from_u64(rounds);
    for round in 0..rounds {
        let bytes = damage(&mut rng, &samples);
        for (name, target) in TARGETS {
            // The one that writes a file is slow.
            if name == "edits" && round % 50 > 0 {
                continue;
            }
            let survived = std::panic::catch_unwind(|| target(&bytes));
            assert!(survived.is_ok(), "{name} panicked on {bytes:?}");
        }
    }
    // And whole samples, of which each decoder accepts its own.
    for sample in &samples {
        TARGETS.iter().for_each(|(_, target)| target(sample));
    }
}
