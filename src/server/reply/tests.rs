use penstock_store::TableId;

use super::*;

fn shown(error: impl Into<ApiError>) -> (u16, &'static str, bool) {
    let error: ApiError = error.into();
    let (status, code) = (error.status.as_u16(), error.code);
    let response = error.into_response();
    assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
    (status, code, response.headers().contains_key(header::RETRY_AFTER))
}

#[test]
fn overload_and_outages_look_temporary() {
    let wait = Duration::from_millis(1500);
    let store = || object_store::Error::Generic { store: "s3", source: "reset".into() };
    let lake = || lake::Error::Store { action: "reading", path: "x".to_owned(), source: store() };
    let poisoned = || AppendError::Poisoned { shard: 0, reason: "EIO".to_owned() };
    for (error, wanted) in [
        (Refusal::Unflushed { unflushed: 2, limit: 1, retry_after: wait }.into(), (503, "over_unflushed_limit")),
        (Refusal::InFlight { in_flight: 2, limit: 1, retry_after: wait }.into(), (503, "over_in_flight_limit")),
        (AppendError::QueueFull.into(), (503, "log_queue_full")),
        (AppendError::Closed.into(), (503, "shutting_down")),
        (poisoned().into(), (503, "log_stopped")),
        (AppendError::NoSpace("full".to_owned()).into(), (507, "no_space")),
        (PostError::Log(AppendError::QueueFull).into(), (503, "log_queue_full")),
        (PostError::Create(CreateError::Log(poisoned())).into(), (503, "log_stopped")),
        (
            CreateError::Catalog(catalog::Error::Database(sqlx::Error::PoolTimedOut)).into(),
            (503, "catalog_unavailable"),
        ),
        (query::Error::Busy("8 queries".to_owned()).into(), (503, "queries_busy")),
        (query::Error::Unavailable("reset".to_owned()).into(), (503, "lake_unavailable")),
        (lake().into(), (503, "lake_unavailable")),
        (FlushError::Log(poisoned()).into(), (503, "log_stopped")),
        (AppendError::TooManyProducers.into(), (503, "too_many_producers")),
        (CheckpointError::Postponed("no space".to_owned()).into(), (503, "checkpoint_postponed")),
        (CheckpointError::Broken("EIO".to_owned()).into(), (503, "log_stopped")),
        (CheckpointError::Stopped("EIO".to_owned()).into(), (503, "log_stopped")),
    ] {
        let error: ApiError = error;
        assert_eq!(shown(error), (wanted.0, wanted.1, true));
    }
}

#[test]
fn what_will_fail_again_says_so() {
    let name = || "cpu".parse().expect("should be a name");
    let text = || "text".to_owned();
    let reject = |kind| Reject::new(kind, "code", "message", "help");
    let refused = lake::Error::NotOurs { location: text(), found: text(), expected: TableId(uuid::Uuid::nil()) };
    for (error, wanted) in [
        (reject(RejectKind::Invalid).into(), (400, "code")),
        (reject(RejectKind::TooLarge).into(), (413, "code")),
        (reject(RejectKind::UnsupportedMedia).into(), (415, "code")),
        (reject(RejectKind::Unprocessable).into(), (422, "code")),
        (Refusal::NeverFits { bytes: 2, limit: 1 }.into(), (413, "body_too_large")),
        (PostError::UnknownTable(name()).into(), (404, "unknown_table")),
        (PostError::Decoder(text()).into(), (500, "internal")),
        (CreateError::Differs { table: name(), reasons: vec![] }.into(), (409, "table_differs")),
        (AppendError::TooLarge { len: 2, max: 1 }.into(), (413, "body_too_large")),
        (AppendError::MixedShards.into(), (500, "internal")),
        (AppendError::UnknownSequence(1).into(), (409, "unknown_sequence")),
        (AppendError::Fenced { newest: 2 }.into(), (409, "fenced")),
        (query::Error::Invalid(text()).into(), (400, "bad_query")),
        (query::Error::Values(text()).into(), (422, "bad_value")),
        (query::Error::Limit(text()).into(), (422, "query_limit")),
        (query::Error::Failed(text()).into(), (500, "internal")),
        (query::Error::Lake { table: name(), source: Box::new(refused) }.into(), (500, "lake_refused")),
        (FlushError::Timeout { left: 1, reason: text() }.into(), (504, "flush_timeout")),
    ] {
        let error: ApiError = error;
        assert_eq!(shown(error), (wanted.0, wanted.1, false));
    }
}

#[test]
fn waits_are_rounded_up_to_whole_seconds() {
    for (wait, seconds) in [(Duration::ZERO, "1"), (Duration::from_millis(1001), "2"), (Duration::from_secs(10), "10")]
    {
        let response = ApiError::bad_request("code", "message").retry_after(wait).into_response();
        assert_eq!(response.headers()[header::RETRY_AFTER], seconds);
    }
}

#[tokio::test]
async fn a_refusal_tells_programs_and_people() {
    let reject = Reject { row: Some(3), column: Some("a.b".into()), ..Reject::new(RejectKind::Invalid, "c", "m", "h") };
    let body = ApiError::from(reject).into_response().into_body();
    let bytes = axum::body::to_bytes(body, 1 << 16).await.expect("should be a body");
    let value: serde_json::Value = serde_json::from_slice(&bytes).expect("should be JSON");
    let wanted = serde_json::json!({"error": {"code": "c", "message": "m", "help": "h", "row": 3, "column": "a.b"}});
    assert_eq!(value, wanted);
}
