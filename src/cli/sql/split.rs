//! Splits text into statements at the `;` that stand outside quotes and comments.

/// What the characters at hand are part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Within {
    Code,
    /// `'text'` or `"name"`; a doubled quote closes and opens again, which comes to the same.
    Quoted(u8),
    /// `--` to the end of the line.
    Line,
    /// `/* */`, nested this deep.
    Block(u32),
}

/// The complete statements of `text`, without their `;`, and what is left behind the last one. Statements of nothing
/// but space and comments are left out.
pub fn split(text: &str) -> (Vec<&str>, &str) {
    let mut statements = Vec::new();
    let mut start = 0;
    scan(text, |at| {
        let statement = &text[start..at];
        if !is_blank(statement) {
            statements.push(statement.trim());
        }
        start = at + 1;
    });
    (statements, &text[start..])
}

/// Whether there is nothing to run in `text`.
pub fn is_blank(text: &str) -> bool {
    !scan(text, |_| {})
}

/// Calls `end` with the position of each `;` in code; says whether there is any code besides.
fn scan(text: &str, mut end: impl FnMut(usize)) -> bool {
    let bytes = text.as_bytes();
    let mut within = Within::Code;
    let mut has_code = false;
    let mut at = 0;
    while at < bytes.len() {
        let byte = bytes[at];
        let pair = (byte, bytes.get(at + 1).copied().unwrap_or(0));
        let mut width = 1;
        within = match within {
            Within::Code if pair == (b'-', b'-') => Within::Line,
            Within::Code if pair == (b'/', b'*') => {
                width = 2;
                Within::Block(1)
            }
            Within::Code => {
                has_code |= byte != b';' && !byte.is_ascii_whitespace();
                match byte {
                    b';' => {
                        end(at);
                        Within::Code
                    }
                    b'\'' | b'"' => Within::Quoted(byte),
                    _ => Within::Code,
                }
            }
            Within::Quoted(quote) if byte == quote => Within::Code,
            Within::Line if byte == b'\n' => Within::Code,
            Within::Block(depth) if pair == (b'*', b'/') => {
                width = 2;
                if depth == 1 { Within::Code } else { Within::Block(depth - 1) }
            }
            Within::Block(depth) if pair == (b'/', b'*') => {
                width = 2;
                Within::Block(depth + 1)
            }
            other => other,
        };
        at += width;
    }
    has_code
}
