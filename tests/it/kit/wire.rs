//! Requests byte by byte, for what no client sends.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longest wait for the server to say something or to hang up.
const LIMIT: Duration = Duration::from_secs(20);

/// A plain connection.
#[derive(Debug)]
pub struct Wire(TcpStream);

impl Wire {
    /// Connects to `host:port`.
    pub async fn to(address: &str) -> Self {
        Self(TcpStream::connect(address).await.expect("should connect"))
    }

    /// Sends bytes; an error means that the server has hung up, which is its right.
    pub async fn send(&mut self, bytes: &[u8]) {
        let _ = self.0.write_all(bytes).await;
    }

    /// Everything that comes until the server hangs up or a whole response has come.
    pub async fn answer(&mut self) -> String {
        let mut answer = Vec::new();
        let mut chunk = [0; 4096];
        let reading = async {
            while !is_whole(&answer) {
                match self.0.read(&mut chunk).await {
                    Ok(0) | Err(_) => break,
                    Ok(n) => answer.extend_from_slice(&chunk[..n]),
                }
            }
        };
        tokio::time::timeout(LIMIT, reading).await.expect("should get an answer in time");
        String::from_utf8_lossy(&answer).into_owned()
    }
}

/// Whether this is a response with all of the body that it declares.
fn is_whole(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer).to_ascii_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    length.is_some_and(|length| body.len() >= length)
}

/// The head of a post of NDJSON rows; `more` are further header lines, each with its line end.
pub fn post_head(table: &str, more: &str) -> String {
    format!(
        "POST /v1/tables/{table}/rows HTTP/1.1\r\nhost: penstock\r\ncontent-type: application/x-ndjson\r\n{more}\r\n"
    )
}
