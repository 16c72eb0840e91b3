//! Refusals. Each tells programs what to do by its status and code, and people by its message and help. Overload never looks
//! permanent: 429 (the table's own share), 503 (the node) or 507 (a full disk), with `Retry-After`.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use penstock_store::{AppendError, CheckpointError};

use crate::admission::Refusal;
use crate::flush::FlushError;
use crate::ingest::post::{CreateError, PostError};
use crate::ingest::{Reject, RejectKind, Rejected, RejectedRow};
use crate::schema::name::NameError;
use crate::{catalog, lake, query};

/// What a request gets instead of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    pub status: StatusCode,
    /// A stable word for programs.
    pub code: &'static str,
    pub message: String,
    pub help: Option<Box<str>>,
    /// Row and column at fault.
    pub row: Option<u64>,
    pub column: Option<Box<str>>,
    pub retry_after: Option<Duration>,
    /// Of a post.
    pub rejected: Option<Box<Told>>,
}

/// How many rows of a post were rejected, how many of them are kept as dead letters, and why the first of them were.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    pub rejected: usize,
    pub letters: usize,
    pub errors: Vec<serde_json::Value>,
}

/// Most rejected rows that a reply tells about.
const MAX_ROW_ERRORS: usize = 10;

/// Wait after a refusal that ends by itself within moments.
pub const SHORTLY: Duration = Duration::from_secs(1);
/// Wait after one that ends once somebody has made room, or by chance.
const LATER: Duration = Duration::from_secs(5);
const STOPPED_HELP: &str = "the operator has to look at the disk and restart the server";

impl ApiError {
    /// A refusal without further details.
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { status, code, message, help: None, row: None, column: None, retry_after: None, rejected: None }
    }

    /// Says what to do about it.
    #[must_use]
    pub fn help(mut self, help: impl Into<Box<str>>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Says when to come again.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// 400.
    pub fn bad_request(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message)
    }

    /// 404.
    pub fn not_found(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, code, message)
    }

    /// 405.
    pub fn method_not_allowed() -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "this path does not take this method")
            .help("the Allow header names the methods that it takes")
    }

    /// 404 for a table.
    pub fn unknown_table(name: &impl std::fmt::Display) -> Self {
        Self::not_found("unknown_table", format!("table {name} does not exist"))
            .help("declare it with PUT /v1/tables/{table}, or look at GET /v1/tables for the ones that exist")
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut error = serde_json::json!({ "code": self.code, "message": self.message });
        for (key, value) in [
            ("help", self.help.map(|help| String::from(help).into())),
            ("row", self.row.map(serde_json::Value::from)),
            ("column", self.column.map(|column| String::from(column).into())),
        ] {
            if let Some(value) = value {
                error[key] = value;
            }
        }
        let mut body = serde_json::json!({ "error": error });
        if let Some(Told { rejected, letters, errors }) = self.rejected.map(|told| *told) {
            (body["rows"], body["rejected"]) = (0.into(), rejected.into());
            (body["dead_letters"], body["errors"]) = (letters.into(), errors.into());
        }
        let mut response = json(self.status, &body);
        if let Some(wait) = self.retry_after {
            // Whole seconds, rounded up: earlier than that it would be refused again.
            let seconds = wait.as_secs_f64().ceil().max(1.0) as u64;
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// What a reply says of rejected rows: of the first ones why.
pub fn row_errors(rejected: &Rejected) -> Vec<serde_json::Value> {
    let error = |row: &RejectedRow| {
        let Reject { code, message, help, row, column, value, .. } = &row.reason;
        serde_json::json!({ "row": row, "code": code, "column": column, "value": value, "message": message, "help": help })
    };
    rejected.rows().iter().take(MAX_ROW_ERRORS).map(error).collect()
}

/// A JSON reply.
pub fn json(status: StatusCode, value: &impl serde::Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(bytes) => {
            let mut response = Response::new(Body::from(bytes));
            *response.status_mut() = status;
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        Err(error) => {
            tracing::error!(%error, "a reply cannot be written as JSON");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

impl From<NameError> for ApiError {
    fn from(error: NameError) -> Self {
        Self::bad_request("bad_table_name", error.to_string()).help("for example cpu, or metrics.cpu with a namespace")
    }
}

impl From<Reject> for ApiError {
    fn from(reject: Reject) -> Self {
        let status = match reject.status {
            RejectKind::Invalid => StatusCode::BAD_REQUEST,
            RejectKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            RejectKind::UnsupportedMedia => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            RejectKind::Unprocessable => StatusCode::UNPROCESSABLE_ENTITY,
        };
        let (row, column) = (reject.row, reject.column);
        Self { row, column, ..Self::new(status, reject.code, reject.message).help(reject.help) }
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let (message, code) = (refusal.to_string(), refusal.code());
        let Some(retry_after) = refusal.retry_after() else {
            return Self::new(StatusCode::PAYLOAD_TOO_LARGE, code, message).help(
                "split the rows over several posts, or raise admission.max_in_flight and admission.max_unflushed",
            );
        };
        // Too many for the table is the sender's to know; a full node turns everybody away.
        let status = if refusal.is_own() { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::SERVICE_UNAVAILABLE };
        let help = match refusal {
            Refusal::InFlight { .. } | Refusal::Replay { .. } => "send the same post again after Retry-After",
            _ => "send the same post again after Retry-After; if this lasts, look at last_error in /v1/status",
        };
        Self::new(status, code, message).help(help).retry_after(retry_after)
    }
}

impl From<AppendError> for ApiError {
    fn from(error: AppendError) -> Self {
        let message = error.to_string();
        let unavailable = |code| Self::new(StatusCode::SERVICE_UNAVAILABLE, code, message.clone()).retry_after(SHORTLY);
        match error {
            AppendError::QueueFull => unavailable("log_queue_full"),
            AppendError::Closed => unavailable("shutting_down"),
            AppendError::Poisoned { .. } => unavailable("log_stopped").help(STOPPED_HELP),
            AppendError::NoSpace(_) => Self::new(StatusCode::INSUFFICIENT_STORAGE, "no_space", message)
                .help("appends go on by themselves once the disk has room")
                .retry_after(LATER),
            AppendError::TooManyProducers => unavailable("too_many_producers").retry_after(LATER),
            AppendError::TooManyKeys => unavailable("too_many_keys").retry_after(LATER),
            AppendError::Reused => Self::new(StatusCode::UNPROCESSABLE_ENTITY, "post_id_reused", message)
                .help("each post to a table needs a key, or a sequence, of its own; a repeat has the same body"),
            AppendError::UnknownSequence(_) => Self::new(StatusCode::CONFLICT, "unknown_sequence", message)
                .help("look for the rows in the table; what is not there may be sent with a higher Penstock-Epoch"),
            AppendError::Fenced { .. } => Self::new(StatusCode::CONFLICT, "fenced", message)
                .help("another one has taken over as this producer: stop, or begin a higher Penstock-Epoch"),
            AppendError::TooLarge { .. } | AppendError::Encode(_) => {
                Self::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
                    .help("split the rows over several posts")
            }
            AppendError::Undefined(..) | AppendError::MixedShards => internal(message),
        }
    }
}

impl From<CheckpointError> for ApiError {
    fn from(error: CheckpointError) -> Self {
        let message = error.to_string();
        let unavailable = |code| Self::new(StatusCode::SERVICE_UNAVAILABLE, code, message);
        match error {
            CheckpointError::Postponed(_) => unavailable("checkpoint_postponed")
                .help("nothing is lost: the rows stay in the log, which grows until a checkpoint succeeds; make room in store.lanes")
                .retry_after(LATER),
            CheckpointError::Broken(_) | CheckpointError::Stopped(_) => {
                unavailable("log_stopped").help(STOPPED_HELP).retry_after(SHORTLY)
            }
        }
    }
}

/// 500, for what is our fault; logged, since nobody else may tell.
pub fn internal(message: String) -> ApiError {
    tracing::error!(error = message, "internal error");
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
}

impl From<CreateError> for ApiError {
    fn from(error: CreateError) -> Self {
        let message = error.to_string();
        match error {
            CreateError::Differs { .. } => Self::new(StatusCode::CONFLICT, "table_differs", message).help(
                "GET /v1/tables/{table} shows its definition; declare that with nullable columns added, or choose another name",
            ),
            CreateError::Reserved(_) => Self::new(StatusCode::UNPROCESSABLE_ENTITY, "reserved_table", message),
            CreateError::Spec(_) => Self::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_definition", message),
            CreateError::Log(error) => error.into(),
            CreateError::Catalog(error) => error.into(),
            CreateError::Json(_) => internal(message),
        }
    }
}

impl From<catalog::Error> for ApiError {
    fn from(error: catalog::Error) -> Self {
        let message = error.to_string();
        match error {
            catalog::Error::Database(error) if catalog::is_full(&error) => {
                Self::new(StatusCode::INSUFFICIENT_STORAGE, "no_space", message)
                    .help("it goes on by itself once the disk has room")
                    .retry_after(LATER)
            }
            catalog::Error::Database(_) => {
                tracing::warn!(error = message, "the catalog did not answer");
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "catalog_unavailable", message).retry_after(SHORTLY)
            }
            _ => internal(message),
        }
    }
}

impl From<PostError> for ApiError {
    fn from(error: PostError) -> Self {
        match error {
            PostError::Reject(reject) => reject.into(),
            PostError::NoneTaken { ref rejected, kept, .. } => {
                let message = error.to_string();
                let error = rejected.rows().first().map(|row| row.reason.clone().into());
                let error = error.unwrap_or_else(|| internal("a post was refused without a reason".to_owned()));
                let letters = if kept { rejected.letters().len() } else { 0 };
                let told = Some(Box::new(Told { rejected: rejected.len(), letters, errors: row_errors(rejected) }));
                Self { status: StatusCode::UNPROCESSABLE_ENTITY, message, rejected: told, ..error }
            }
            PostError::TooManyLetters { retry_after, .. } => Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too_many_dead_letters",
                error.to_string(),
            )
            .help("correct the rows, or send the post again after Retry-After; ingest.rejected_per_minute is the limit")
            .retry_after(retry_after),
            PostError::Reserved(_) => Self::new(StatusCode::UNPROCESSABLE_ENTITY, "reserved_table", error.to_string()),
            PostError::UnknownTable(name) => Self::unknown_table(&name),
            PostError::Refused(refusal) => refusal.into(),
            PostError::Log(error) => error.into(),
            PostError::Create(error) => error.into(),
            PostError::Decoder(message) => internal(message),
        }
    }
}

impl From<query::Error> for ApiError {
    fn from(error: query::Error) -> Self {
        let message = error.to_string();
        match error {
            query::Error::Invalid(_) => Self::bad_request("bad_query", message)
                .help("one statement that only reads; `show tables` lists the tables, `describe TABLE` their columns"),
            query::Error::Limit(_) => Self::new(StatusCode::UNPROCESSABLE_ENTITY, "query_limit", message)
                .help("narrow the query, or raise the limits under [query]"),
            query::Error::Values(_) => Self::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_value", message)
                .help("nullif(x, 0) guards a division, try_cast(x as ...) gives null where a cast has no result"),
            query::Error::Busy(_) => Self::new(StatusCode::SERVICE_UNAVAILABLE, "queries_busy", message)
                .help("run the query again after Retry-After, or raise the limits under [query]")
                .retry_after(SHORTLY),
            query::Error::Unavailable(_) => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "lake_unavailable", message).retry_after(SHORTLY)
            }
            query::Error::Failed(_) => internal(message),
            query::Error::Lake { source, .. } => Self { message, ..(*source).into() },
        }
    }
}

impl From<lake::Error> for ApiError {
    fn from(error: lake::Error) -> Self {
        let message = error.to_string();
        match error.kind() {
            lake::Kind::Unavailable | lake::Kind::Stale => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "lake_unavailable", message).retry_after(SHORTLY)
            }
            lake::Kind::Refused | lake::Kind::Settings | lake::Kind::Corrupt | lake::Kind::Rows => {
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "lake_refused", message)
            }
        }
    }
}

impl From<FlushError> for ApiError {
    fn from(error: FlushError) -> Self {
        let message = error.to_string();
        match error {
            FlushError::Timeout { .. } => Self::new(StatusCode::GATEWAY_TIMEOUT, "flush_timeout", message)
                .help("the rows are safe in the log and go on being flushed; /v1/status shows each table's last error"),
            FlushError::Log(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests;
