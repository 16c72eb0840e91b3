//! From the bytes of a post to slices for the log.
//!
//! In the order a post passes them:
//!
//! - [`body`]: content encodings undone, bounded;
//! - [`format`]: which format the body is in;
//! - [`infer`]: the definition of a table that does not exist yet, from its first post;
//! - [`decode`]: the body as one Arrow batch of the table's columns, by `json` or `arrow`;
//! - [`cut`], [`evolve`], [`overflow`]: what came of a post under its table, and what the table becomes;
//! - [`slices`]: the batch cut by event-time bucket, each slice encoded;
//! - [`letters`]: the rows that were rejected, into the dead-letter table and back;
//! - [`post`]: all of it for one post, up to the [`receipt`]; [`repeat`]: what makes another post a repeat of it; [`declare`]: a table
//!   made, or given columns, without rows.
//!
//! Shared by these: [`limits`], [`reject`] (how a refusal is told), [`rejected`] (the rows that are), `window` (event times that a table takes),
//! `number` and `text_time` (exact readings of numbers and times), `base64`.
//!
//! Accepted or rejected is decided row by row, in [`rejected`], by the same rules for every format: a value that the table cannot hold
//! without loss rejects its row and is named. Nothing is rounded, wrapped, cut or left out.
//!
//! Absent here: HTTP.

mod arrow;
mod base64;
pub mod body;
mod cut;
pub mod declare;
pub mod decode;
mod evolve;
pub mod format;
pub mod infer;
mod json;
pub mod letters;
pub mod limits;
mod names;
mod number;
mod overflow;
pub mod post;
pub mod receipt;
pub mod reject;
pub mod rejected;
pub mod repeat;
pub mod room;
pub mod slices;
mod text_time;
mod window;

#[cfg(test)]
pub(crate) mod tests;

pub use body::{ContentEncoding, decompress, decompress_in};
pub use decode::{Decoded, decode, decode_in};
pub use format::Format;
pub use infer::infer;
pub use limits::Limits;
pub use receipt::Receipt;
pub use reject::{Reject, RejectKind};
pub use rejected::{OnError, Rejected, RejectedRow};
pub use slices::slices;
