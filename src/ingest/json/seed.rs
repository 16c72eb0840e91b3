//! Seeds and visitors that carry a value from serde to its column. Recursion follows the types of the columns, which
//! a definition bounds; what nests deeper is refused at the first bracket too many.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::column::{Column, Fields, List, Map, Struct, Values};
use super::not_an_object;
use super::rows::Context;
use super::scalar::Scalar;
use crate::ingest::names;
use crate::ingest::overflow::Overflow;
use crate::ingest::reject::{Fault, excerpt};
use crate::schema::spec::MAX_COLUMN_NAME_LEN;

/// Takes one row.
pub(super) struct ObjectVisitor<'a> {
    pub fields: &'a mut Fields,
    pub reserved: Option<usize>,
    pub overflow: Option<&'a Overflow<'a>>,
    pub context: &'a mut Context,
}

impl<'de> Visitor<'de> for ObjectVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a row, which is an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        read_object(self.fields, self.reserved, self.overflow, self.context, map)
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Err(self.context.fail(not_an_object("null")))
    }
}

/// Reads the keys and values of an object; columns without a value are left to the caller.
fn read_object<'de, A: MapAccess<'de>>(
    fields: &mut Fields,
    reserved: Option<usize>,
    overflow: Option<&Overflow<'_>>,
    context: &mut Context,
    mut map: A,
) -> Result<(), A::Error> {
    fields.begin();
    while let Some(found) = map.next_key_seed(KeySeed { fields, reserved, overflow, context })? {
        let at = match found {
            Key::Column(at) => at,
            Key::Overflow(at, key) => {
                let raw = map.next_value::<&RawValue>()?.get();
                if raw != "null" {
                    fields.append_overflow(at, &key, raw);
                }
                continue;
            }
            Key::Reserved(_) | Key::None(_) => {
                map.next_value_seed(NothingSeed { found, fields, context })?;
                continue;
            }
        };
        let column = &mut fields.columns[at];
        let value = map.next_value_seed(ValueSeed { column, context });
        value.inspect_err(|_| context.within(&fields.columns[at].name))?;
    }
    Ok(())
}

/// Whose value follows.
enum Key {
    Column(usize),
    /// One that goes to the overflow column.
    Overflow(usize, String),
    /// That of a column which the server fills.
    Reserved(usize),
    /// That of no column, by this name.
    None(String),
}

/// Passes over a value that belongs nowhere. A null is none.
struct NothingSeed<'a> {
    found: Key,
    fields: &'a Fields,
    context: &'a mut Context,
}

impl<'de> DeserializeSeed<'de> for NothingSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?;
        if raw.get() == "null" {
            return Ok(());
        }
        let (name, fault) = match self.found {
            Key::None(name) => {
                let fault = names::no_column(&name, self.fields.columns.iter().map(|column| column.name.as_str()));
                (excerpt(&name), fault)
            }
            Key::Reserved(at) => (self.fields.columns[at].name.clone(), Fault::reserved_column()),
            Key::Column(_) | Key::Overflow(..) => return Ok(()),
        };
        self.context.within(&name);
        Err(self.context.fail(fault.of(raw.get())))
    }
}

/// Finds the column of a key.
struct KeySeed<'a> {
    fields: &'a mut Fields,
    reserved: Option<usize>,
    overflow: Option<&'a Overflow<'a>>,
    context: &'a mut Context,
}

impl<'de> DeserializeSeed<'de> for KeySeed<'_> {
    type Value = Key;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Key, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed<'_> {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Key, E> {
        let overflow = self.overflow.and_then(|overflow| overflow.at);
        match self.fields.locate(key) {
            Ok(Some(at)) if Some(at) == self.reserved || Some(at) == overflow => Ok(Key::Reserved(at)),
            Ok(Some(at)) => Ok(Key::Column(at)),
            Ok(None) => match overflow.filter(|_| self.overflow.is_some_and(|overflow| overflow.takes(key))) {
                Some(at) => Ok(Key::Overflow(at, key.to_owned())),
                // One character more than a name may have tells that it is too long.
                None => Ok(Key::None(key.chars().take(MAX_COLUMN_NAME_LEN + 1).collect())),
            },
            Err(fault) => {
                self.context.within(&excerpt(key));
                Err(self.context.fail(fault))
            }
        }
    }
}

/// Carries one value to its column.
struct ValueSeed<'a> {
    column: &'a mut Column,
    context: &'a mut Context,
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.column.values {
            Values::String(_) | Values::List(_) | Values::Struct(_) | Values::Map(_) => {
                deserializer.deserialize_any(self)
            }
            // The text of the value, because a number that went through a double has lost what made it exact.
            _ => {
                let raw = <&RawValue>::deserialize(deserializer)?;
                let scalar = Scalar::read(raw.get()).map_err(D::Error::custom)?;
                self.column.append_scalar(&scalar).map_err(|fault| self.context.fail(fault))
            }
        }
    }
}

/// Strings and nested values; what the column's type does not take is serde's "invalid type" error.
impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.column.values {
            Values::String(_) => "a string",
            Values::List(_) => "an array",
            _ => "an object",
        })
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.column.append_null().map_err(|fault| self.context.fail(fault))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        match &mut self.column.values {
            Values::String(values) => {
                values.append_value(text);
                Ok(())
            }
            _ => Err(E::invalid_type(serde::de::Unexpected::Str(text), &self)),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<(), A::Error> {
        match &mut self.column.values {
            Values::List(list) => read_list(list, self.context, items),
            _ => Err(A::Error::invalid_type(serde::de::Unexpected::Seq, &self)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        match &mut self.column.values {
            Values::Struct(inner) => read_struct(inner, self.context, map),
            Values::Map(entries) => read_map(entries, self.context, map),
            _ => Err(A::Error::invalid_type(serde::de::Unexpected::Map, &self)),
        }
    }
}

fn read_list<'de, A: SeqAccess<'de>>(list: &mut List, context: &mut Context, mut items: A) -> Result<(), A::Error> {
    while items.next_element_seed(ValueSeed { column: &mut list.item, context })?.is_some() {
        context.charge::<A::Error>(list.item_bytes)?;
    }
    list.close(true);
    Ok(())
}

fn read_struct<'de, A: MapAccess<'de>>(inner: &mut Struct, context: &mut Context, map: A) -> Result<(), A::Error> {
    read_object(&mut inner.fields, None, None, context, map)?;
    if let Err((at, fault)) = inner.fields.fill_missing(None) {
        context.within(&inner.fields.columns[at].name);
        return Err(context.fail(fault));
    }
    inner.close();
    Ok(())
}

fn read_map<'de, A: MapAccess<'de>>(entries: &mut Map, context: &mut Context, mut map: A) -> Result<(), A::Error> {
    while map.next_key_seed(MapKeySeed(entries))?.is_some() {
        context.charge::<A::Error>(entries.entry_bytes)?;
        map.next_value_seed(ValueSeed { column: &mut entries.value, context })?;
    }
    if entries.close_unique() { Ok(()) } else { Err(context.fail(Fault::duplicate_key())) }
}

/// Adds a key to a map.
struct MapKeySeed<'a>(&'a mut Map);

impl<'de> DeserializeSeed<'de> for MapKeySeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for MapKeySeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<(), E> {
        self.0.keys.append_value(key);
        Ok(())
    }
}
