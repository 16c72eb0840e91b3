//! Schema versions: a table's definition may get columns, and nothing else about it changes.
//!
//! Columns are added behind those that are there, and may be null. So a definition of any version is a prefix of the newest
//! one, which says by itself how rows of every version are to be read, and rows of an older version fit a newer one with
//! nulls at the end.
//!
//! Absent here: widening a type (what readers follow is written down in `lake::schema`), columns inside structs, dropping.

use super::{ColumnSpec, EventTime, TableSpec};

/// What a declaration asks of a table that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Nothing: it is what is there.
    None,
    /// More columns: the definition with them, one schema version on.
    Columns(Box<TableSpec>),
    /// Something that a table cannot become; each reason says what to do.
    Refused(Vec<String>),
}

impl TableSpec {
    /// How many of the columns rows of a schema version have; none for a version that is not known here.
    pub fn columns_at(&self, version: u32) -> Option<usize> {
        let known = (1..=self.schema_version).contains(&version);
        let earlier = usize::try_from(version).ok()?.checked_sub(1).and_then(|at| self.history.get(at));
        known.then(|| earlier.map_or(self.columns.len(), |count| *count as usize))
    }

    /// The definition as it was at a schema version; none for a version that is not known here.
    pub fn at(&self, version: u32) -> Option<Self> {
        let columns = self.columns_at(version)?;
        if version == self.schema_version {
            return Some(self.clone());
        }
        let history = self.history.iter().take(version as usize - 1).copied().collect();
        let columns = self.columns.iter().take(columns).cloned().collect();
        Some(Self { schema_version: version, columns, history, ..self.clone() })
    }

    /// What it takes to become `wanted`, whose own version says nothing.
    pub fn change_to(&self, wanted: &Self) -> Change {
        let mut reasons = Vec::new();
        for column in &self.columns {
            match wanted.columns.iter().find(|other| other.name == column.name) {
                None => reasons.push(format!(
                    "column {:?} is missing: a column cannot be dropped; leave it in, rows {}",
                    column.name,
                    if column.nullable { "may leave it out" } else { "need it" }
                )),
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
        match (reasons.is_empty(), added.is_empty()) {
            (false, _) => Change::Refused(reasons),
            (true, true) => Change::None,
            (true, false) => self.extended(added),
        }
    }

    fn extended(&self, added: Vec<ColumnSpec>) -> Change {
        let mut next = self.clone();
        // A definition of an older build has a version and no history: its earlier versions had the same columns.
        let count = u32::try_from(self.columns.len()).unwrap_or(u32::MAX);
        next.history.resize(self.schema_version as usize, count);
        next.schema_version += 1;
        next.columns.extend(added);
        match next.validate() {
            Ok(()) => Change::Columns(Box::new(next)),
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
        reasons.push(format!("column {name:?} is {is} and cannot become {wanted}: add a column of another name"));
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
