//! What the rows of a first post have in common: which columns there are, and the type that holds the most values of each. What it does
//! not hold rejects its row, when the rows are decoded. Values are counted, so that the order of rows decides nothing.

use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::not_an_object;
use super::rows::{Context, RowSink};
use super::scalar::Scalar;
use crate::ingest::number::{self, DOUBLE_EXACT};
use crate::ingest::reject::{Fault, Reject, excerpt};
use crate::ingest::text_time::Epochs;
use crate::ingest::{Limits, names};
use crate::schema::{ColumnSpec, ColumnType, TimeUnit, spec};

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
    /// Keys of rows for which there was no column left.
    pub overflows: bool,
}

/// The columns of rows, or the fields of objects, in the order of their first appearance.
#[derive(Debug, Default)]
pub(in crate::ingest) struct Shapes {
    named: Vec<(String, Shape)>,
    index: HashMap<String, usize>,
}

/// How many values of each kind a column has had. Only numbers, so that the order of rows changes nothing.
#[derive(Debug, Default)]
struct Shape {
    boolean: u64,
    long: u64,
    /// Of these, the ones that a double holds too.
    exact: u64,
    /// Integers above a long's range.
    unsigned: u64,
    fraction: u64,
    text: u64,
    /// Of these, the ones that a long reads; that only a decimal of 20 digits reads; that are NaN or infinite.
    long_text: u64,
    wide_text: u64,
    no_number: u64,
    list: u64,
    items: Option<Box<Shape>>,
    object: u64,
    fields: Option<Box<Shapes>>,
    /// It had a value of no type.
    unfit: bool,
    times: TimeValues,
}

/// How the values of a column read as times.
#[derive(Debug, Default)]
struct TimeValues {
    /// Whether any does.
    readable: bool,
    /// Whether any has nanoseconds.
    nanos: bool,
    /// Why the first one that does not does not.
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
            overflows: false,
        }
    }

    /// The number of a row in the post, those that were taken back included.
    pub fn number(&self, row: u64) -> u64 {
        row + self.undone.iter().filter(|undone| **undone <= row).count() as u64
    }

    /// Whether a column can be the event time: a time in any row. The rows without one do not fit the table then.
    pub fn check_event_time(&self, name: &str) -> Result<(), Reject> {
        let Some(shape) = self.columns.get(name).filter(|shape| !shape.times.readable) else {
            return Ok(());
        };
        let (row, fault) = shape.times.fault.clone().unwrap_or_else(|| (1, Fault::missing_value()));
        Err(fault.within(name).at(self.number(row), ""))
    }
}

impl RowShapes {
    /// Whether times in a column that may be the event time have nanoseconds.
    pub fn has_nanos(&self, name: &str) -> bool {
        self.columns.get(name).is_some_and(|shape| shape.times.nanos)
    }
}

impl Shapes {
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.named.iter().map(|(name, _)| name.as_str())
    }

    fn get(&self, name: &str) -> Option<&Shape> {
        self.index.get(name).map(|at| &self.named[*at].1)
    }

    /// Each column that has had a value, with the type that holds most of them, and how many values it has had.
    pub fn column_specs(&self) -> Vec<(ColumnSpec, u64)> {
        let typed = |(name, shape): &(String, Shape)| {
            let spec = ColumnSpec { name: name.clone(), kind: shape.column_type()?, nullable: true };
            Some((spec, shape.values()))
        };
        self.named.iter().filter_map(typed).collect()
    }

    /// The same for fields of objects, which a struct cannot get later: those without a value are text.
    fn field_specs(&self) -> Vec<(ColumnSpec, u64)> {
        let typed = |(name, shape): &(String, Shape)| {
            let kind = shape.column_type().unwrap_or(ColumnType::String);
            (ColumnSpec { name: name.clone(), kind, nullable: true }, shape.values())
        };
        self.named.iter().map(typed).collect()
    }

    /// Adds a value of a column, as JSON text.
    pub fn add(&mut self, name: &str, value: &str, limits: &Limits) {
        let at = *self.index.entry(name.to_owned()).or_insert_with(|| {
            self.named.push((name.to_owned(), Shape::default()));
            self.named.len() - 1
        });
        let (mut columns_left, mut context) = (limits.max_columns, Context::default());
        let scan = Scan {
            row: 1,
            depth_left: limits.max_depth,
            columns_left: &mut columns_left,
            limits,
            context: &mut context,
        };
        let shape = &mut self.named[at].1;
        let read = ShapeVisitor { shape, scan }.deserialize(&mut serde_json::Deserializer::from_str(value));
        shape.unfit |= read.is_err();
    }

    /// The columns in the order of their first values, and the type that holds the values of each, if there is one.
    pub fn types(&self) -> impl Iterator<Item = (&str, Option<ColumnType>)> {
        self.named.iter().map(|(name, shape)| {
            let kind = if shape.unfit { None } else { shape.column_type() };
            (name.as_str(), kind)
        })
    }
}

impl Shape {
    fn values(&self) -> u64 {
        self.boolean + self.long + self.unsigned + self.fraction + self.text + self.list + self.object
    }

    /// The type that holds the most values without loss; none if there is no value. Of several that hold as many the first one
    /// here, so that text of digits alone stays text, and numbers get the narrowest type.
    fn column_type(&self) -> Option<ColumnType> {
        let integers = self.long + self.long_text;
        let held = [
            (ColumnType::String, self.text),
            (ColumnType::Long, integers),
            (ColumnType::Decimal { precision: 20, scale: 0 }, integers + self.unsigned + self.wide_text),
            (ColumnType::Double, self.exact + self.fraction + self.no_number),
            (ColumnType::Boolean, self.boolean),
        ];
        let (mut kind, mut most) = (None, 0);
        for (plain, count) in held {
            if count > most {
                (kind, most) = (Some(plain), count);
            }
        }
        if let Some(items) = self.items.as_deref().filter(|_| self.list > most) {
            most = self.list;
            kind = Some(ColumnType::List(Box::new(items.column_type().unwrap_or(ColumnType::String))));
        }
        match self.fields.as_deref().filter(|_| self.object > most) {
            Some(fields) => Some(fields.object_type()),
            None => kind,
        }
    }

    fn add_integer(&mut self, value: i128) {
        if value > i128::from(i64::MAX) {
            self.unsigned += 1;
        } else {
            self.long += 1;
            self.exact += u64::from(value.abs() <= DOUBLE_EXACT);
        }
    }

    fn add_text(&mut self, text: &str) {
        self.text += 1;
        if number::no_number(text).is_some() {
            self.no_number += 1;
        } else if !text.starts_with(['-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']) {
        } else if number::integer::<i64>(text).is_ok() {
            self.long_text += 1;
        } else if number::decimal(text, 20, 0).is_ok() {
            self.wide_text += 1;
        }
    }
}

impl Shapes {
    /// Objects without any key that can be a field say nothing about their keys; a map holds them and what may come.
    fn object_type(&self) -> ColumnType {
        let fields = names::usable(self.field_specs(), spec::check_field_name);
        if fields.is_empty() { ColumnType::Map(Box::new(ColumnType::String)) } else { ColumnType::Struct(fields) }
    }
}

impl TimeValues {
    fn add(&mut self, row: u64, value: &Scalar<'_>, unit: Option<TimeUnit>) {
        if matches!(value, Scalar::Null) {
            return;
        }
        match value.timestamp(unit.map_or(Epochs::None, Epochs::Unit)) {
            Ok(time) => {
                self.readable = true;
                self.nanos |= time.nanos != 0;
            }
            Err(fault) => drop(self.fault.get_or_insert((row, fault))),
        }
    }
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
            object: ObjectVisitor {
                shapes: &mut self.columns,
                scan: scan.again(),
                times: Some(times),
                overflows: Some(&mut self.overflows),
            },
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
    /// Of a row: keys that are too many are passed over, and it is noted.
    overflows: Option<&'a mut bool>,
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
        let times = self.times.map_or(&[] as &[&str], |times| times.names);
        loop {
            let may_overflow = self.overflows.is_some();
            let key = KeySeed { shapes: self.shapes, scan: self.scan.again(), times, may_overflow };
            let Some(found) = map.next_key_seed(key)? else { return Ok(()) };
            let Some(at) = found else {
                map.next_value::<IgnoredAny>()?;
                self.overflows.iter_mut().for_each(|overflows| **overflows = true);
                continue;
            };
            let (name, shape) = &mut self.shapes.named[at];
            let read = match self.times {
                Some(times) if times.names.contains(&name.as_str()) => {
                    map.next_value_seed(TimeSeed { shape, scan: self.scan.again(), unit: times.unit })
                }
                _ => map.next_value_seed(ShapeVisitor { shape, scan: self.scan.again() }),
            };
            read.inspect_err(|_| self.scan.context.within(name))?;
        }
    }
}

struct KeySeed<'a, 'b> {
    shapes: &'a mut Shapes,
    scan: Scan<'b>,
    /// Names that there is always room for.
    times: &'static [&'static str],
    may_overflow: bool,
}

impl<'de> DeserializeSeed<'de> for KeySeed<'_, '_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<usize>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed<'_, '_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Option<usize>, E> {
        if let Some(at) = self.shapes.index.get(key) {
            return Ok(Some(*at));
        }
        let left = self.scan.columns_left.checked_sub(1).or(self.times.contains(&key).then_some(0));
        let Some(left) = left else {
            if self.may_overflow {
                return Ok(None);
            }
            let limit = Reject::too_many_columns(self.scan.limits.max_columns);
            return Err(self.scan.context.fail(Fault::new(limit.code, limit.message, limit.help)));
        };
        *self.scan.columns_left = left;
        let at = self.shapes.named.len();
        self.shapes.named.push((key.to_owned(), Shape::default()));
        self.shapes.index.insert(key.to_owned(), at);
        Ok(Some(at))
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
        self.shape.boolean += 1;
        Ok(())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.shape.add_integer(i128::from(value));
        Ok(())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.shape.add_integer(i128::from(value));
        Ok(())
    }

    /// Integers beyond 64 bits arrive here as well; the double column they ask for then refuses them by name.
    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.shape.fraction += 1;
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.shape.add_text(text);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        self.scan.deeper()?;
        self.shape.list += 1;
        let shape = self.shape.items.get_or_insert_default();
        while items.next_element_seed(ShapeVisitor { shape, scan: self.scan.again() })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, map: A) -> Result<(), A::Error> {
        self.scan.deeper()?;
        self.shape.object += 1;
        let shapes = self.shape.fields.get_or_insert_default();
        ObjectVisitor { shapes, scan: self.scan, times: None, overflows: None }.visit_map(map)
    }
}
