//! Schema versions: a table's definition may get columns, some of its types may become wider, new files may get other Bloom filters, and
//! what it takes may change; nothing else about it does.
//!
//! Columns are added behind those that are there, and may be null. The newest definition says by itself how rows of every
//! version are to be read, and rows of an older version fit a newer one with nulls at the end and the same values in wider
//! types.
//!
//! Absent here: columns inside structs, dropping.

use super::spec::Earlier;
use super::{ColumnSpec, EventTime, TableSpec};

/// What a declaration asks of a table that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Nothing: it is what is there.
    None,
    /// More columns, wider types, other Bloom filters or rules: the definition with them, one schema version on.
    Next(Box<TableSpec>),
    /// Something that a table cannot become; each reason says what to do.
    Refused(Vec<String>),
}

impl TableSpec {
    /// The definition as it was at a schema version; none for a version that is not known here.
    pub fn at(&self, version: u32) -> Option<Self> {
        if !(1..=self.schema_version).contains(&version) {
            return None;
        }
        let at = usize::try_from(version - 1).ok()?;
        let mut then = Self { schema_version: version, ..self.clone() };
        // A definition of an older build has no history, and had its columns and types from the start.
        if let Some(earlier) = self.history.get(at) {
            then.columns.truncate(earlier.columns as usize);
        }
        for earlier in self.history.iter().skip(at).rev() {
            for column in &mut then.columns {
                if let Some(kind) = earlier.types.get(&column.name) {
                    column.kind.clone_from(kind);
                }
            }
        }
        then.history.truncate(at);
        Some(then)
    }

    /// What it takes to become `wanted`, whose own version says nothing.
    pub fn change_to(&self, wanted: &Self) -> Change {
        let (mut reasons, mut next) = (Vec::new(), self.clone());
        let mut before = Earlier::of(u32::try_from(self.columns.len()).unwrap_or(u32::MAX));
        for column in &mut next.columns {
            match wanted.columns.iter().find(|other| other.name == column.name) {
                None => reasons.push(format!(
                    "column {:?} is missing: a column cannot be dropped; leave it in, rows {}",
                    column.name,
                    if column.nullable { "may leave it out" } else { "need it" }
                )),
                Some(other) if column.kind.widens_to(&other.kind) && column.nullable == other.nullable => {
                    before.types.insert(column.name.clone(), std::mem::replace(&mut column.kind, other.kind.clone()));
                }
                Some(other) => compare(column, other, &mut reasons),
            }
        }
        let added: Vec<ColumnSpec> =
            wanted.columns.iter().filter(|c| self.column_index(&c.name).is_none()).cloned().collect();
        for column in added.iter().filter(|column| !column.nullable) {
            let name = &column.name;
            reasons.push(format!("new column {name:?} must be nullable: the rows that are there do not have it"));
        }
        self.compare_roles(wanted, &added, &mut reasons);
        let same_rest = self.bloom == wanted.bloom && self.rules == wanted.rules;
        let same = added.is_empty() && before.types.is_empty() && same_rest;
        match (reasons.is_empty(), same) {
            (false, _) => return Change::Refused(reasons),
            (true, true) => return Change::None,
            (true, false) => {}
        }
        // A definition of an older build has a version and no history: its earlier versions had the same columns.
        next.history.resize(self.schema_version as usize - 1, Earlier::of(before.columns));
        next.history.push(before);
        next.schema_version += 1;
        next.columns.extend(added);
        next.bloom.clone_from(&wanted.bloom);
        next.rules.clone_from(&wanted.rules);
        match next.validate() {
            Ok(()) => Change::Next(Box::new(next)),
            Err(error) => Change::Refused(vec![error.to_string()]),
        }
    }

    fn compare_roles(&self, wanted: &Self, added: &[ColumnSpec], reasons: &mut Vec<String>) {
        if self.event_time != wanted.event_time {
            let (ours, theirs) = (shown(&self.event_time), shown(&wanted.event_time));
            reasons.push(format!("the event time is {ours} and not {theirs}, and cannot change"));
        }
        if self.bucket_seconds != wanted.bucket_seconds {
            let (ours, theirs) = (self.bucket_seconds, wanted.bucket_seconds);
            reasons.push(format!("the bucket is {ours}s and not {theirs}s, and cannot change"));
        }
        if self.sort != wanted.sort {
            reasons.push(format!(
                "the rows are sorted by {:?} and not by {:?}, and that cannot change",
                self.sort, wanted.sort
            ));
        }
        match (&self.partition, &wanted.partition) {
            (ours, theirs) if ours == theirs => {}
            (Some(ours), Some(_)) if added.iter().any(|column| column.name.eq_ignore_ascii_case(ours)) => {
                reasons.push(format!(
                    "{ours:?} is the column that the table is partitioned by; give the new one another name"
                ));
            }
            (ours, theirs) => {
                reasons.push(format!(
                    "the table is partitioned by {ours:?} and not by {theirs:?}, and that cannot change"
                ));
            }
        }
    }
}

fn compare(ours: &ColumnSpec, theirs: &ColumnSpec, reasons: &mut Vec<String>) {
    let name = &ours.name;
    if ours.kind != theirs.kind {
        let (is, wanted) = (&ours.kind, &theirs.kind);
        reasons.push(format!(
            "column {name:?} is {is} and cannot become {wanted}, which not all readers would follow in the files that are \
             there (int to long and float to double are followed): add a column of another name"
        ));
    }
    if ours.nullable != theirs.nullable {
        let may = |nullable: bool| if nullable { "may be null" } else { "must not be null" };
        reasons.push(format!("column {name:?} {}, and that cannot change", may(ours.nullable)));
    }
}

fn shown(time: &EventTime) -> String {
    match time {
        EventTime::Column { name, unit: None } => format!("{name:?}"),
        EventTime::Column { name, unit: Some(unit) } => format!("{name:?} in {unit}"),
        EventTime::Receipt { .. } => "that of receipt".to_owned(),
    }
}
