//! The headers by which a sender makes a post safe to repeat.

use axum::http::{HeaderMap, HeaderName};
use penstock_store::PostId;

use super::reply::ApiError;
use crate::ingest::repeat::{self, Said};

/// A key of the post's own.
pub const KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Who numbers its posts.
pub const PRODUCER: HeaderName = HeaderName::from_static("penstock-producer");
/// The producer's life.
pub const EPOCH: HeaderName = HeaderName::from_static("penstock-epoch");
/// The post's number.
pub const SEQUENCE: HeaderName = HeaderName::from_static("penstock-sequence");
/// In the reply: the post is a repeat, and this is what the first one was answered.
pub const REPEATED: HeaderName = HeaderName::from_static("penstock-repeated");

/// By what a repeat of the post is known.
///
/// # Errors
/// 400 for headers that make no sense.
pub fn id(headers: &HeaderMap) -> Result<Option<PostId>, ApiError> {
    let said = Said {
        key: one(headers, &KEY)?,
        producer: one(headers, &PRODUCER)?,
        epoch: one(headers, &EPOCH)?,
        sequence: one(headers, &SEQUENCE)?,
    };
    repeat::id(said).map_err(|error| {
        ApiError::bad_request("bad_post_id", error.to_string())
            .help("send Idempotency-Key, or Penstock-Producer with Penstock-Sequence and perhaps Penstock-Epoch, or none of them")
    })
}

fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a [u8]>, ApiError> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(_), Some(_)) => Err(ApiError::bad_request("bad_post_id", format!("the header {name} is there twice"))),
        (value, _) => Ok(value.map(axum::http::HeaderValue::as_bytes)),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_header_that_is_there_twice_is_refused() {
        let mut headers = HeaderMap::new();
        assert_eq!(id(&headers), Ok(None));
        headers.append(KEY, HeaderValue::from_static("a"));
        assert!(matches!(id(&headers), Ok(Some(PostId::Key(_)))));
        headers.append(KEY, HeaderValue::from_static("b"));
        assert_eq!(id(&headers).map_err(|e| (e.status.as_u16(), e.code)), Err((400, "bad_post_id")));
    }
}
