use std::time::Duration;

use super::*;

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(5)
}

fn headers(told: Option<u64>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Some(told) = told {
        headers.insert(header::CONTENT_LENGTH, told.into());
    }
    headers
}

fn pieces(pieces: &'static [&'static str]) -> Body {
    let pieces = pieces.iter().map(|p| Ok::<_, std::io::Error>(Bytes::from_static(p.as_bytes())));
    Body::from_stream(futures::stream::iter(pieces))
}

fn at_most(limit: u64) -> impl FnMut(Ask) -> Result<(), ApiError> {
    move |ask| {
        let refused = ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", ask.bytes().to_string());
        if ask.bytes() > limit { Err(refused) } else { Ok(()) }
    }
}

#[tokio::test]
async fn a_body_arrives_whole_in_however_many_pieces() {
    for (parts, wanted) in [(&[][..], ""), (&["abc"], "abc"), (&["a", "bc", "", "d"], "abcd")] {
        for told in [None, Some(wanted.len() as u64)] {
            assert_eq!(
                receive(&headers(told), pieces(parts), soon(), at_most(4)).await.expect("should arrive"),
                wanted
            );
        }
    }
}

#[tokio::test]
async fn limits_hold_for_what_is_told_and_for_what_comes() {
    let told = receive(&headers(Some(5)), pieces(&["a"]), soon(), at_most(4)).await.expect_err("should refuse");
    assert_eq!((told.status, told.message.as_str()), (StatusCode::PAYLOAD_TOO_LARGE, "5"));
    let come = receive(&headers(None), pieces(&["abc", "de"]), soon(), at_most(4)).await.expect_err("should refuse");
    assert_eq!((come.status, come.message.as_str()), (StatusCode::PAYLOAD_TOO_LARGE, "5"));
}

#[tokio::test]
async fn a_body_that_stalls_or_breaks_off_is_refused() {
    let stalled = Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>());
    let error = receive(&expecting(), stalled, Instant::now(), at_most(4)).await.expect_err("should refuse");
    assert_eq!(error.status, StatusCode::REQUEST_TIMEOUT);
    let broken = Body::from_stream(futures::stream::iter([Err::<Bytes, _>(std::io::Error::other("reset"))]));
    let error = receive(&headers(None), broken, soon(), at_most(4)).await.expect_err("should refuse");
    assert_eq!((error.status, error.code), (StatusCode::BAD_REQUEST, "broken_body"));
}

fn expecting() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::EXPECT, axum::http::HeaderValue::from_static("100-continue"));
    headers
}

#[tokio::test]
async fn the_rest_of_a_refused_body_is_read_unless_the_sender_waits_for_a_go_ahead() {
    for (headers, wanted) in [(headers(None), 3), (expecting(), 1)] {
        let read = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = Arc::clone(&read);
        let pieces = futures::stream::iter(["aaa", "bbb", "ccc"]).map(move |piece| {
            count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            Ok::<_, std::io::Error>(Bytes::from_static(piece.as_bytes()))
        });
        receive(&headers, Body::from_stream(pieces), soon(), at_most(2)).await.expect_err("should refuse");
        assert_eq!(read.load(std::sync::atomic::Ordering::SeqCst), wanted);
    }
}
