//! Numbers as their decimal text says, not as a double would round them.

use super::reject::Fault;

/// Integers up to this are all exact in a double.
pub(super) const DOUBLE_EXACT: i128 = 1 << 53;

/// Integers up to this are all exact in a float.
pub(super) const FLOAT_EXACT: i128 = 1 << 24;

/// Exponents beyond this are out of every column's range; also keeps arithmetic on them from overflowing.
const MAX_EXPONENT: i32 = 100_000;

/// `digits * 10^exponent`, with no trailing zero in `digits`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exact {
    pub digits: i128,
    pub exponent: i32,
}

/// Why a text is not a number of the wanted kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NumberError {
    /// Not a JSON number.
    Syntax,
    /// Has digits below the last place that is kept.
    Inexact,
    /// Beyond what the type holds.
    Range,
}

impl NumberError {
    /// The fault of a value that should have been of type `wanted`.
    pub fn fault(self, value: &str, wanted: impl std::fmt::Display) -> Fault {
        match self {
            Self::Syntax => Fault::type_mismatch(&super::reject::excerpt(value), wanted),
            Self::Inexact => Fault::inexact(value, wanted),
            Self::Range => Fault::out_of_range(value, wanted),
        }
    }
}

impl Exact {
    /// Reads a number in JSON's grammar. [`NumberError::Range`] where it has more digits than 128 bits hold.
    pub fn parse(text: &str) -> Result<Self, NumberError> {
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
            Some(at) => (&unsigned[..at], parse_exponent(&unsigned[at + 1..])?),
            None => (unsigned, 0),
        };
        let (whole, fraction) = match mantissa.split_once('.') {
            Some((_, "")) => return Err(NumberError::Syntax),
            Some(parts) => parts,
            None => (mantissa, ""),
        };
        if whole.is_empty() || (whole.len() > 1 && whole.starts_with('0')) {
            return Err(NumberError::Syntax);
        }
        let mut digits = Digits::default();
        whole.bytes().chain(fraction.bytes()).try_for_each(|b| digits.push(b))?;
        let Some(value) = digits.value else {
            return Err(NumberError::Range);
        };
        if value == 0 {
            return Ok(Self { digits: 0, exponent: 0 });
        }
        let places = i32::try_from(fraction.len()).map_err(|_| NumberError::Range)?;
        let zeros = i32::try_from(digits.zeros).map_err(|_| NumberError::Range)?;
        let value = if negative { -value } else { value };
        Ok(Self { digits: value, exponent: exponent.saturating_sub(places).saturating_add(zeros) })
    }

    /// The number in units of `10^-scale`.
    pub fn scaled(self, scale: i32) -> Result<i128, NumberError> {
        if self.digits == 0 {
            return Ok(0);
        }
        let shift = self.exponent.saturating_add(scale);
        if shift < 0 {
            return Err(NumberError::Inexact);
        }
        let factor = 10_i128.checked_pow(shift.unsigned_abs()).ok_or(NumberError::Range)?;
        self.digits.checked_mul(factor).ok_or(NumberError::Range)
    }
}

/// Significant digits so far; zeros at the end are only counted until a digit follows them.
struct Digits {
    /// None once the digits exceed 128 bits.
    value: Option<i128>,
    zeros: usize,
}

impl Default for Digits {
    fn default() -> Self {
        Self { value: Some(0), zeros: 0 }
    }
}

impl Digits {
    fn push(&mut self, byte: u8) -> Result<(), NumberError> {
        if !byte.is_ascii_digit() {
            return Err(NumberError::Syntax);
        }
        if byte == b'0' {
            // Zeros in front of the first digit carry nothing.
            self.zeros += usize::from(self.value != Some(0));
            return Ok(());
        }
        let factor = u32::try_from(self.zeros + 1).ok().and_then(|n| 10_i128.checked_pow(n));
        let shifted = self.value.and_then(|v| if v == 0 { Some(0) } else { v.checked_mul(factor?) });
        self.value = shifted.and_then(|v| v.checked_add(i128::from(byte - b'0')));
        self.zeros = 0;
        Ok(())
    }
}

fn parse_exponent(text: &str) -> Result<i32, NumberError> {
    let (sign, digits) = match text.as_bytes() {
        [b'-', ..] => (-1, &text[1..]),
        [b'+', ..] => (1, &text[1..]),
        _ => (1, text),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(NumberError::Syntax);
    }
    Ok(sign * digits.parse::<i32>().unwrap_or(MAX_EXPONENT).min(MAX_EXPONENT))
}

/// A whole number that fits `T`.
pub(super) fn integer<T: TryFrom<i128>>(text: &str) -> Result<T, NumberError> {
    let value = Exact::parse(text)?.scaled(0)?;
    T::try_from(value).map_err(|_| NumberError::Range)
}

/// A double. Decimal fractions become the nearest one, as everywhere; whole numbers must be exact.
pub(super) fn double(text: &str) -> Result<f64, NumberError> {
    check_whole(text, DOUBLE_EXACT)?;
    let value: f64 = text.parse().map_err(|_| NumberError::Syntax)?;
    if value.is_finite() { Ok(value) } else { Err(NumberError::Range) }
}

/// A float, by the rules of [`double`].
pub(super) fn float(text: &str) -> Result<f32, NumberError> {
    check_whole(text, FLOAT_EXACT)?;
    let value: f32 = text.parse().map_err(|_| NumberError::Syntax)?;
    if value.is_finite() { Ok(value) } else { Err(NumberError::Range) }
}

/// NaN and the infinities, in the spelling that Protocol Buffers' JSON gave them.
pub(super) fn no_number(text: &str) -> Option<f32> {
    match text {
        "NaN" => Some(f32::NAN),
        "Infinity" => Some(f32::INFINITY),
        "-Infinity" => Some(f32::NEG_INFINITY),
        _ => None,
    }
}

/// Refuses texts that are not JSON numbers, and whole numbers above `exact`.
fn check_whole(text: &str, exact: i128) -> Result<(), NumberError> {
    let whole = !text.bytes().any(|b| matches!(b, b'.' | b'e' | b'E'));
    // Fifteen digits are exact in a double whatever they are; floats take the longer way.
    if !whole || (exact == DOUBLE_EXACT && text.len() <= 15) {
        return Ok(());
    }
    match text.parse::<i128>() {
        Ok(value) if value.abs() <= exact => Ok(()),
        _ => Err(NumberError::Inexact),
    }
}

/// A decimal in units of `10^-scale`, of at most `precision` digits.
pub(super) fn decimal(text: &str, precision: u8, scale: i8) -> Result<i128, NumberError> {
    decimal_in_range(Exact::parse(text)?.scaled(i32::from(scale))?, precision)
}

/// The unscaled value again, if it has at most `precision` digits.
pub(super) fn decimal_in_range(unscaled: i128, precision: u8) -> Result<i128, NumberError> {
    let bound = 10_u128.pow(u32::from(precision.min(38)));
    if unscaled.unsigned_abs() < bound { Ok(unscaled) } else { Err(NumberError::Range) }
}
