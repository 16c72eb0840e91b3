//! The reading of one value that is neither an array nor an object.

use std::borrow::Cow;

use crate::ingest::base64;
use crate::ingest::number::{self, NumberError};
use crate::ingest::reject::{Fault, excerpt};
use crate::ingest::text_time::{self, Epochs, Time};

/// A value as its JSON text says.
#[derive(Debug)]
pub(super) enum Scalar<'a> {
    Null,
    Boolean(bool),
    Text(Cow<'a, str>),
    Number(&'a str),
    /// An array or an object, where none belongs.
    Nested(&'a str),
}

impl<'a> Scalar<'a> {
    /// Reads a JSON value that the parser has passed over.
    pub fn read(raw: &'a str) -> Result<Self, serde_json::Error> {
        Ok(match raw.as_bytes().first() {
            Some(b'n') => Self::Null,
            Some(b't') => Self::Boolean(true),
            Some(b'f') => Self::Boolean(false),
            Some(b'"') if raw.len() >= 2 && !raw.contains('\\') => Self::Text(Cow::Borrowed(&raw[1..raw.len() - 1])),
            Some(b'"') => Self::Text(Cow::Owned(serde_json::from_str(raw)?)),
            Some(b'[' | b'{') => Self::Nested(raw),
            _ => Self::Number(raw),
        })
    }

    fn mismatch(&self, wanted: impl std::fmt::Display) -> Fault {
        let found = match self {
            Self::Null => "null".to_owned(),
            Self::Boolean(value) => value.to_string(),
            Self::Text(text) => format!("{:?}", excerpt(text)),
            Self::Number(text) | Self::Nested(text) => excerpt(text),
        };
        Fault::type_mismatch(&found, wanted)
    }

    pub fn boolean(&self) -> Result<bool, Fault> {
        match self {
            Self::Boolean(value) => Ok(*value),
            other => Err(other.mismatch("boolean")),
        }
    }

    pub fn int(&self) -> Result<i32, Fault> {
        match self {
            Self::Number(text) => number::integer(text).map_err(|e| e.fault(text, "int")),
            other => Err(other.mismatch("int")),
        }
    }

    /// 64-bit numbers also come as decimal strings, because a JavaScript number holds 53 bits.
    pub fn long(&self) -> Result<i64, Fault> {
        match self {
            Self::Number(text) => match text.parse() {
                Ok(value) => Ok(value),
                Err(_) => number::integer(text).map_err(|e| e.fault(text, "long")),
            },
            Self::Text(text) => number::integer(text).map_err(|e| self.number_fault(e, text, "long")),
            other => Err(other.mismatch("long")),
        }
    }

    /// The values that are no numbers have no form in JSON, and come as text.
    pub fn float(&self) -> Result<f32, Fault> {
        match self {
            Self::Number(text) => number::float(text).map_err(|e| e.fault(text, "float")),
            Self::Text(text) => number::no_number(text).ok_or_else(|| self.mismatch("float")),
            other => Err(other.mismatch("float")),
        }
    }

    pub fn double(&self) -> Result<f64, Fault> {
        match self {
            Self::Number(text) => number::double(text).map_err(|e| e.fault(text, "double")),
            Self::Text(text) => number::no_number(text).map(f64::from).ok_or_else(|| self.mismatch("double")),
            other => Err(other.mismatch("double")),
        }
    }

    pub fn decimal(&self, precision: u8, scale: i8) -> Result<i128, Fault> {
        let wanted = format_args!("decimal({precision},{scale})");
        match self {
            Self::Number(text) => number::decimal(text, precision, scale).map_err(|e| e.fault(text, wanted)),
            Self::Text(text) => number::decimal(text, precision, scale).map_err(|e| self.number_fault(e, text, wanted)),
            other => Err(other.mismatch(wanted)),
        }
    }

    /// A text that is no number at all is shown as the text it is.
    fn number_fault(&self, error: NumberError, text: &str, wanted: impl std::fmt::Display) -> Fault {
        match error {
            NumberError::Syntax => self.mismatch(wanted),
            _ => error.fault(text, wanted),
        }
    }

    pub fn date(&self) -> Result<i32, Fault> {
        match self {
            Self::Text(text) => text_time::date(text),
            other => Err(other.mismatch("date")),
        }
    }

    pub fn binary(&self) -> Result<Vec<u8>, Fault> {
        match self {
            Self::Text(text) => base64::decode(text).ok_or_else(|| {
                Fault::new(
                    "invalid_base64",
                    format!("{:?} is not base64", excerpt(text)),
                    "send the bytes as one base64 string, in the standard alphabet",
                )
            }),
            other => Err(other.mismatch("binary, sent as a base64 string")),
        }
    }

    /// The text of a number or a string.
    pub fn shown(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Number(text) | Self::Nested(text) => text,
            Self::Null | Self::Boolean(_) => "",
        }
    }

    pub fn timestamp(&self, epochs: Epochs) -> Result<Time, Fault> {
        match self {
            Self::Number(text) => epochs.read_number(text),
            Self::Text(text) => epochs.read_text(text),
            other => Err(other.mismatch("timestamp")),
        }
    }
}
