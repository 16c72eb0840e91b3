//! Standard base64 (RFC 4648, section 4), with padding or without.

/// The bytes a text encodes; none if it is not base64. Bits that encode nothing must be zero, so that every accepted
/// text stands for exactly one byte string.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let (digits, padding) = strip_padding(text.as_bytes());
    let leftover = digits.len() % 4;
    if leftover == 1 || (padding > 0 && (digits.len() + padding) % 4 != 0) {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for group in digits.chunks(4) {
        let mut bits = 0_u32;
        for &digit in group {
            bits = bits << 6 | u32::from(value(digit)?);
        }
        bits <<= 6 * (4 - group.len());
        let [_, three @ ..] = bits.to_be_bytes();
        let whole = group.len() * 6 / 8;
        if three[whole..].iter().any(|b| *b != 0) {
            return None;
        }
        bytes.extend_from_slice(&three[..whole]);
    }
    Some(bytes)
}

fn strip_padding(text: &[u8]) -> (&[u8], usize) {
    let digits = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text);
    (digits, text.len() - digits.len())
}

fn value(digit: u8) -> Option<u8> {
    Some(match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

/// The text of bytes, with padding.
pub(super) fn encode(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let value = (bits >> (18 - 6 * digit) & 63) as usize;
            text.push(if digit <= group.len() { char::from(DIGITS[value]) } else { '=' });
        }
    }
    text
}
