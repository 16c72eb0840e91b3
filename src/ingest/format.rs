//! The formats a post may be in.

/// The format of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One JSON object a line: `application/x-ndjson`.
    Ndjson,
    /// An array of objects, or one object: `application/json`.
    Json,
    /// An Arrow IPC stream: `application/vnd.apache.arrow.stream`.
    ArrowStream,
}

impl Format {
    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ndjson => "ndjson",
            Self::Json => "json",
            Self::ArrowStream => "arrow",
        }
    }

    /// The format of a `Content-Type` header, whatever its parameters; none where it is not one of ours.
    pub fn from_content_type(header: &str) -> Option<Self> {
        let media = header.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match media.as_str() {
            "application/x-ndjson" | "application/ndjson" | "application/jsonl" | "application/x-jsonlines" => {
                Some(Self::Ndjson)
            }
            "application/json" => Some(Self::Json),
            "application/vnd.apache.arrow.stream" => Some(Self::ArrowStream),
            _ => None,
        }
    }
}
