//! The tools' answers as JSON. LSNs, counts and bytes are numbers; ids are text as elsewhere in the API.

use penstock_store::PostId;
use penstock_store::tools::inspect::{GenerationInspection, SegmentInspection, ShardInspection};
use penstock_store::tools::repair::Loss;
use penstock_store::tools::verify::Affected;
use penstock_store::tools::{Finding, Inspection, RecordInfo, RepairReport, Severity, VerifyReport};
use serde_json::{Value, json};

pub fn inspection(found: &Inspection) -> Value {
    json!({
        "node": found.node.to_string(),
        "incarnation": found.incarnation.to_string(),
        "starts": found.starts,
        "format_version": found.format_version,
        "lanes": found.lanes,
        "replay_rates": found.replay_rates,
        "shards": found.shards.iter().map(shard).collect::<Vec<_>>(),
    })
}

fn shard(shard: &ShardInspection) -> Value {
    let lane_files = shard.lane_files.iter().map(|f| {
        json!({
            "id": f.id, "lane": f.lane, "path": f.path, "bytes": f.bytes, "live_bytes": f.live_bytes,
            "extents": f.extents, "live_extents": f.live_extents, "damaged": f.damaged,
        })
    });
    let watermarks = shard.watermarks.iter().map(|w| {
        let (table, incarnation) = (w.table.to_string(), w.incarnation.to_string());
        json!({ "table": table, "incarnation": incarnation, "sealed": w.sealed, "committed": w.committed })
    });
    let definitions = shard
        .definitions
        .iter()
        .map(|d| json!({ "table": d.table.to_string(), "schema_version": d.schema_version, "bytes": d.bytes }));
    json!({
        "shard": shard.shard,
        "manifest_file": shard.manifest_file,
        "edits": shard.edits,
        "checkpoint_lsn": shard.checkpoint.0,
        "end_lsn": shard.end.0,
        "torn": shard.torn,
        "damaged": shard.damaged,
        "segments": shard.segments.iter().map(segment).collect::<Vec<_>>(),
        "generations": shard.generations.iter().map(generation).collect::<Vec<_>>(),
        "lane_files": lane_files.collect::<Vec<_>>(),
        "watermarks": watermarks.collect::<Vec<_>>(),
        "definitions": definitions.collect::<Vec<_>>(),
        "producers": shard.producers, "keys": shard.keys,
    })
}

fn segment(s: &SegmentInspection) -> Value {
    let r = s.records;
    json!({
        "file": s.file, "base_lsn": s.base.0, "capacity": s.capacity, "used": s.used, "groups": s.groups,
        "incarnation": format!("{:016x}", s.incarnation), "damage": s.damage,
        "records": { "slices": r.slices, "seals": r.seals, "commits": r.commits, "defines": r.defines },
    })
}

fn generation(g: &GenerationInspection) -> Value {
    let seal = g.seal.map(|(incarnation, sequence, lsn)| {
        json!({ "incarnation": incarnation.to_string(), "sequence": sequence, "lsn": lsn.0 })
    });
    json!({
        "table": g.table.to_string(), "bucket_start": g.bucket.start, "bucket_width": g.bucket.width,
        "lsn": g.generation.0, "seal": seal, "slices": g.slices, "rows": g.rows, "bytes": g.bytes,
        "extents": g.extents, "log_slices": g.log_slices,
    })
}

pub fn record(record: &RecordInfo) -> Value {
    let (stamp, key) = match record.id {
        Some(PostId::Sequence(s)) => {
            (Some(json!({ "producer": s.producer.to_string(), "epoch": s.epoch, "sequence": s.sequence })), None)
        }
        Some(PostId::Key(key)) => (None, Some(key.to_string())),
        None => (None, None),
    };
    json!({
        "shard": record.shard, "lsn": record.lsn.0, "kind": record.kind, "rows": record.rows, "bytes": record.bytes,
        "tables": record.tables.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "stamp": stamp, "key": key, "in_doubt": record.in_doubt,
    })
}

pub fn verified(report: &VerifyReport) -> Value {
    let c = report.checked;
    json!({
        "checked": {
            "files": c.files, "bytes": c.bytes, "groups": c.groups, "records": c.records, "extents": c.extents,
            "edits": c.edits,
        },
        "errors": report.errors().count(),
        "findings": report.findings.iter().map(finding).collect::<Vec<_>>(),
    })
}

fn finding(f: &Finding) -> Value {
    json!({
        "severity": if f.severity == Severity::Error { "error" } else { "note" },
        "shard": f.shard, "path": f.path, "offset": f.offset, "what": f.what,
        "lsns": f.lsns.map(|(from, to)| [from.0, to.0]),
        "rows": f.rows.iter().map(affected).collect::<Vec<_>>(),
    })
}

fn affected(rows: &Affected) -> Value {
    json!({
        "table": rows.table.to_string(), "bucket_start": rows.bucket.start, "bucket_width": rows.bucket.width,
        "rows": rows.rows, "lsns": [rows.lsns.0.0, rows.lsns.1.0], "guess": rows.is_guess,
    })
}

pub fn repaired(report: &RepairReport) -> Value {
    json!({
        "dry_run": report.dry_run, "refusals": report.refusals, "damaged": report.damaged, "actions": report.actions,
        "quarantined": report.quarantined, "losses": report.losses.iter().map(loss).collect::<Vec<_>>(),
    })
}

fn loss(loss: &Loss) -> Value {
    match loss {
        Loss::Log(s) => {
            let records = s.records.iter().map(|r| {
                let slices = r.slices.iter().map(|(table, bucket, rows)| {
                    json!({ "table": table.to_string(), "bucket_start": bucket.start, "rows": rows })
                });
                let slices: Vec<Value> = slices.collect();
                json!({ "lsn": r.lsn.0, "bytes": r.len, "kind": r.kind, "slices_as_they_read": slices })
            });
            json!({
                "kind": "log", "path": s.path, "offset": s.offset, "lsns": [s.from.0, s.to.0], "what": s.what,
                "records": records.collect::<Vec<_>>(),
                "unknown": s.unknown.iter().map(|(from, to)| [from.0, to.0]).collect::<Vec<_>>(),
            })
        }
        Loss::Extent { path, offset, generation, rows } => json!({
            "kind": "extent", "path": path, "offset": offset, "generation": generation.0, "rows": affected(rows),
        }),
        Loss::LaneFile { path, extents, bytes, what } => json!({
            "kind": "lane_file", "path": path, "extents": extents, "bytes": bytes, "what": what,
        }),
    }
}
