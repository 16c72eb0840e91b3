//! What the rows of a first post have in common: which columns there are, and a type that holds every value of each.

use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::not_an_object;
use super::rows::{Context, RowSink};
use super::scalar::Scalar;
use crate::ingest::Limits;
use crate::ingest::number::DOUBLE_EXACT;
use crate::ingest::reject::{Fault, Reject, excerpt};
use crate::ingest::text_time::Epochs;
use crate::schema::{ColumnSpec, ColumnType, TimeUnit};

/// The columns of all rows so far.
#[derive(Debug)]
pub(in crate::ingest) struct RowShapes {
    pub columns: Shapes,
    rows: u64,
    unit: Option<TimeUnit>,
    /// Columns that may be the event time; their values are read as times too.
    time_names: &'static [&'static str],
    /// Columns and fields that may still be added.
    columns_left: usize,
    limits: Limits,
    context: Context,
    /// Whether the last row has left something behind.
    touched: bool,
    /// Where rows were taken back, by the number that each would have had.
    undone: Vec<u64>,
}

/// The columns of rows, or the fields of objects, in the order of their first appearance.
#[derive(Debug, Default)]
pub(in crate::ingest) struct Shapes {
    named: Vec<(String, Shape)>,
    index: HashMap<String, usize>,
}

/// What the values of one column have been. Each kind keeps the first row that had it.
#[derive(Debug, Default)]
struct Shape {
    boolean: Option<u64>,
    integer: Option<u64>,
    /// An integer above a long's range.
    unsigned: Option<u64>,
    /// An integer that a double does not hold.
    inexact: Option<(u64, String)>,
    fraction: Option<u64>,
    string: Option<u64>,
    list: Option<(u64, Box<Shape>)>,
    object: Option<(u64, Box<Shapes>)>,
    times: TimeValues,
}

/// How the values of a column read as times.
#[derive(Debug, Default)]
struct TimeValues {
    /// Rows from the first one on that all have a value.
    present: u64,
    fault: Option<(u64, Fault)>,
}

impl RowShapes {
    pub fn new(unit: Option<TimeUnit>, time_names: &'static [&'static str], limits: &Limits) -> Self {
        Self {
            columns: Shapes::default(),
            rows: 0,
            unit,
            time_names,
            columns_left: limits.max_columns,
            limits: *limits,
            context: Context::default(),
            touched: false,
            undone: Vec::new(),
        }
    }

    /// The number of a row in the post, those that were taken back included.
    pub fn number(&self, row: u64) -> u64 {
        row + self.undone.iter().filter(|undone| **undone <= row).count() as u64
    }

    /// Whether a column can be the event time: a time in every row.
    pub fn check_event_time(&self, name: &str) -> Result<(), Reject> {
        let Some(shape) = self.columns.get(name) else {
            return Ok(());
        };
        if let Some((row, fault)) = &shape.times.fault {
            return Err(fault.clone().within(name).at(self.number(*row), ""));
        }
        if shape.times.present == self.rows {
            return Ok(());
        }
        Err(Fault::missing_value().within(name).at(self.number(shape.times.present + 1), ""))
    }
}

impl Shapes {
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.named.iter().map(|(name, _)| name.as_str())
    }

    fn get(&self, name: &str) -> Option<&Shape> {
        self.index.get(name).map(|at| &self.named[*at].1)
    }

    /// The columns with their types, or the row and the reason why one has none. `override_type` names the type of
    /// a column whatever its values are.
    pub fn column_specs(
        &self,
        override_type: impl Fn(&str) -> Option<ColumnSpec>,
    ) -> Result<Vec<ColumnSpec>, (u64, Fault)> {
        self.named
            .iter()
            .map(|(name, shape)| match override_type(name) {
                Some(spec) => Ok(spec),
                None => {
                    let kind = shape.column_type().map_err(|(row, fault)| (row, fault.within(name)))?;
                    Ok(ColumnSpec { name: name.clone(), kind, nullable: true })
                }
            })
            .collect()
    }
}

impl Shape {
    fn column_type(&self) -> Result<ColumnType, (u64, Fault)> {
        let number = [self.integer, self.unsigned, self.fraction].into_iter().flatten().min();
        let mut kinds: Vec<(u64, &str)> = [
            (self.boolean, "a boolean"),
            (number, "a number"),
            (self.string, "a string"),
            (self.list.as_ref().map(|l| l.0), "an array"),
            (self.object.as_ref().map(|o| o.0), "an object"),
        ]
        .into_iter()
        .filter_map(|(row, kind)| Some((row?, kind)))
        .collect();
        kinds.sort_by_key(|(row, _)| *row);
        if let [(first, one), (second, other), ..] = kinds[..] {
            return Err((second, mixed_types(first, one, second, other)));
        }
        if let Some((_, items)) = &self.list {
            return Ok(ColumnType::List(Box::new(items.column_type()?)));
        }
        if let Some((_, fields)) = &self.object {
            // Objects without any key say nothing about their keys; a map holds them and what may come.
            if fields.named.is_empty() {
                return Ok(ColumnType::Map(Box::new(ColumnType::String)));
            }
            return Ok(ColumnType::Struct(fields.column_specs(|_| None)?));
        }
        if number.is_some() {
            return self.number_type();
        }
        Ok(if self.boolean.is_some() { ColumnType::Boolean } else { ColumnType::String })
    }

    fn number_type(&self) -> Result<ColumnType, (u64, Fault)> {
        match (self.fraction, &self.inexact) {
            (Some(fraction), Some((row, value))) => {
                let detail = format!("{value} cannot be held by double without loss, which row {fraction} asks for");
                let fault = Fault { detail, ..Fault::inexact(value, "double") };
                Err((*row, fault))
            }
            (Some(_), None) => Ok(ColumnType::Double),
            (None, _) if self.unsigned.is_some() => Ok(ColumnType::Decimal { precision: 20, scale: 0 }),
            (None, _) => Ok(ColumnType::Long),
        }
    }

    fn add_integer(&mut self, row: u64, value: i128) {
        self.integer.get_or_insert(row);
        if value > i128::from(i64::MAX) {
            self.unsigned.get_or_insert(row);
        }
        if value.abs() > DOUBLE_EXACT {
            self.inexact.get_or_insert_with(|| (row, value.to_string()));
        }
    }
}

impl TimeValues {
    fn add(&mut self, row: u64, value: &Scalar<'_>, unit: Option<TimeUnit>) {
        if matches!(value, Scalar::Null) {
            return;
        }
        if self.present + 1 == row {
            self.present = row;
        }
        if let Err(fault) = value.timestamp(unit.map_or(Epochs::None, Epochs::Unit)) {
            self.fault.get_or_insert((row, fault));
        }
    }
}

fn mixed_types(first: u64, one: &str, second: u64, other: &str) -> Fault {
    Fault::new(
        "mixed_types",
        format!("row {first} has {one} and row {second} has {other}; a column has one type"),
        "send one type a column, or declare the table and say which type it is",
    )
}

impl RowSink for RowShapes {
    const SYNTAX_FIRST: bool = true;

    fn context(&mut self) -> &mut Context {
        &mut self.context
    }

    fn row<'de, D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error> {
        self.rows += 1;
        let mut scan = Scan {
            row: self.rows,
            depth_left: self.limits.max_depth,
            columns_left: &mut self.columns_left,
            limits: &self.limits,
            context: &mut self.context,
        };
        let times = Times { names: self.time_names, unit: self.unit };
        self.touched = false;
        deserializer.deserialize_any(RowVisitor {
            touched: &mut self.touched,
            object: ObjectVisitor { shapes: &mut self.columns, scan: scan.again(), times: Some(times) },
        })
    }

    fn undo(&mut self) -> bool {
        if self.touched {
            return false;
        }
        self.undone.push(self.rows);
        self.rows -= 1;
        true
    }

    fn passed_over(&mut self) {
        self.undone.push(self.rows + 1);
    }

    fn restart(&mut self) {
        unreachable!("rows whose syntax is checked first are read once")
    }
}

/// Which columns of an object to read as times.
#[derive(Clone, Copy)]
struct Times {
    names: &'static [&'static str],
    unit: Option<TimeUnit>,
}

/// Where the scan is and what it may still do.
struct Scan<'a> {
    row: u64,
    depth_left: usize,
    columns_left: &'a mut usize,
    limits: &'a Limits,
    context: &'a mut Context,
}

impl Scan<'_> {
    fn again(&mut self) -> Scan<'_> {
        Scan {
            row: self.row,
            depth_left: self.depth_left,
            columns_left: self.columns_left,
            limits: self.limits,
            context: self.context,
        }
    }

    /// Enters an array or an object.
    fn deeper<E: Error>(&mut self) -> Result<(), E> {
        // The plain value at the bottom is a level too.
        if self.depth_left <= 1 {
            return Err(self.context.fail(Fault::new(
                "too_deep",
                format!("arrays and objects nest deeper than {} levels", self.limits.max_depth),
                "send the value as a string, or flatter",
            )));
        }
        self.depth_left -= 1;
        Ok(())
    }
}

/// Notes that a row is an object.
struct RowVisitor<'a, 'b> {
    touched: &'a mut bool,
    object: ObjectVisitor<'a, 'b>,
}

impl<'de> Visitor<'de> for RowVisitor<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.object.expecting(f)
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.object.visit_unit()
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        *self.touched = true;
        self.object.visit_map(map)
    }
}

struct ObjectVisitor<'a, 'b> {
    shapes: &'a mut Shapes,
    scan: Scan<'b>,
    times: Option<Times>,
}

impl<'de> Visitor<'de> for ObjectVisitor<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a row, which is an object")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Err(self.scan.context.fail(not_an_object("null")))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(at) = map.next_key_seed(KeySeed { shapes: self.shapes, scan: self.scan.again() })? {
            let (name, shape) = &mut self.shapes.named[at];
            let read = match self.times {
                Some(times) if times.names.contains(&name.as_str()) => {
                    map.next_value_seed(TimeSeed { shape, scan: self.scan.again(), unit: times.unit })
                }
                _ => map.next_value_seed(ShapeVisitor { shape, scan: self.scan.again() }),
            };
            read.inspect_err(|_| self.scan.context.within(name))?;
        }
        Ok(())
    }
}

struct KeySeed<'a, 'b> {
    shapes: &'a mut Shapes,
    scan: Scan<'b>,
}

impl<'de> DeserializeSeed<'de> for KeySeed<'_, '_> {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed<'_, '_> {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<usize, E> {
        if let Some(at) = self.shapes.index.get(key) {
            return Ok(*at);
        }
        let Some(left) = self.scan.columns_left.checked_sub(1) else {
            let limit = Reject::too_many_columns(self.scan.limits.max_columns);
            return Err(self.scan.context.fail(Fault::new(limit.code, limit.message, limit.help)));
        };
        *self.scan.columns_left = left;
        let at = self.shapes.named.len();
        self.shapes.named.push((key.to_owned(), Shape::default()));
        self.shapes.index.insert(key.to_owned(), at);
        Ok(at)
    }
}

/// Reads a value as a time and by its shape; only the end of the scan tells which of the two counts.
struct TimeSeed<'a, 'b> {
    shape: &'a mut Shape,
    scan: Scan<'b>,
    unit: Option<TimeUnit>,
}

impl<'de> DeserializeSeed<'de> for TimeSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?.get();
        let scalar = Scalar::read(raw).map_err(|e| D::Error::custom(excerpt(&e.to_string())))?;
        self.shape.times.add(self.scan.row, &scalar, self.unit);
        let visitor = ShapeVisitor { shape: self.shape, scan: self.scan };
        serde_json::Deserializer::from_str(raw).deserialize_any(visitor).map_err(D::Error::custom)
    }
}

struct ShapeVisitor<'a, 'b> {
    shape: &'a mut Shape,
    scan: Scan<'b>,
}

impl<'de> DeserializeSeed<'de> for ShapeVisitor<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ShapeVisitor<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.shape.boolean.get_or_insert(self.scan.row);
        Ok(())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.shape.add_integer(self.scan.row, i128::from(value));
        Ok(())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.shape.add_integer(self.scan.row, i128::from(value));
        Ok(())
    }

    /// Integers beyond 64 bits arrive here as well; the double column they ask for then refuses them by name.
    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.shape.fraction.get_or_insert(self.scan.row);
        Ok(())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        self.shape.string.get_or_insert(self.scan.row);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        self.scan.deeper()?;
        let (_, shape) = self.shape.list.get_or_insert_with(|| (self.scan.row, Box::default()));
        while items.next_element_seed(ShapeVisitor { shape, scan: self.scan.again() })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, map: A) -> Result<(), A::Error> {
        self.scan.deeper()?;
        let (_, shapes) = self.shape.object.get_or_insert_with(|| (self.scan.row, Box::default()));
        ObjectVisitor { shapes, scan: self.scan, times: None }.visit_map(map)
    }
}
