use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

const SOON: Duration = Duration::from_millis(200);

#[tokio::test]
async fn connections_beyond_the_limit_wait_for_one_that_ends() {
    let inner = TcpListener::bind("127.0.0.1:0").await.expect("should listen");
    let address = inner.local_addr().expect("should have an address");
    let mut listener = Limited::new(inner, 2);
    let _clients = [
        TcpStream::connect(address).await.expect("should connect"),
        TcpStream::connect(address).await.expect("should connect"),
        TcpStream::connect(address).await.expect("should connect"),
    ];
    let first = listener.accept().await;
    let _second = listener.accept().await;
    assert!(tokio::time::timeout(SOON, listener.accept()).await.is_err(), "a third one is too many");
    drop(first);
    tokio::time::timeout(SOON * 20, listener.accept()).await.expect("should be let in");
}

#[tokio::test]
async fn a_connection_on_which_nothing_moves_is_closed() {
    let inner = TcpListener::bind("127.0.0.1:0").await.expect("should listen");
    let mut client =
        TcpStream::connect(inner.local_addr().expect("should have an address")).await.expect("should connect");
    let (stream, _) = inner.accept().await.expect("should accept");
    let mut connection = Connection::new(stream, None);
    connection.reading = Patience::new(SOON);
    let mut byte = [0];
    for _ in 0..3 {
        tokio::time::sleep(SOON / 2).await;
        client.write_all(b"x").await.expect("should write");
        connection.read_exact(&mut byte).await.expect("it is alive");
    }
    let error = connection.read_exact(&mut byte).await.expect_err("should give up");
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
}

#[tokio::test]
async fn a_client_that_does_not_read_is_given_up() {
    let inner = TcpListener::bind("127.0.0.1:0").await.expect("should listen");
    let client = TcpStream::connect(inner.local_addr().expect("should have an address")).await.expect("should connect");
    let (stream, _) = inner.accept().await.expect("should accept");
    let mut connection = Connection::new(stream, None);
    connection.writing = Patience::new(SOON);
    let much = vec![0; 1 << 20];
    let error = loop {
        if let Err(error) = connection.write_all(&much).await {
            break error;
        }
    };
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    drop(client);
}
