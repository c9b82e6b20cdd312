//! Requests as raw bytes on a connection, with as little work for the client as possible. The client shares the cores
//! with the measured side, and every microsecond that it uses makes the two sides of a comparison look more alike.

use std::{io, net::SocketAddr};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// Protocol of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Protocol {
    /// HTTP/1.1, one response per request.
    Http,
    /// Redis, one reply per command.
    Redis,
}

#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
    body_at: usize,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, received: Vec::with_capacity(16 * 1024), body_at: 0 })
    }

    /// Sends a request and reads the whole response. Returns its status; for Redis 200, or 500 for an error.
    pub(crate) async fn exchange(&mut self, protocol: Protocol, request: &[u8]) -> io::Result<u16> {
        self.stream.write_all(request).await?;
        self.received.clear();
        loop {
            if self.stream.read_buf(&mut self.received).await? == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed"));
            }
            let whole = match protocol {
                Protocol::Http => http_answer(&self.received)?,
                Protocol::Redis => redis_reply(&self.received).map(|(length, fine)| {
                    let status = if fine { 200 } else { 500 };
                    Answer { status, body_at: 0, length }
                }),
            };
            match whole {
                Some(answer) if self.received.len() >= answer.length => {
                    self.body_at = answer.body_at;
                    return Ok(answer.status);
                }
                _ => {}
            }
        }
    }

    /// Body of the last response.
    pub(crate) fn body(&self) -> &[u8] {
        &self.received[self.body_at..]
    }
}

struct Answer {
    status: u16,
    body_at: usize,
    length: usize,
}

/// Parses the response at the start of the buffer; `None` until its head is complete.
fn http_answer(received: &[u8]) -> io::Result<Option<Answer>> {
    let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let mut headers = [httparse::EMPTY_HEADER; 48];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(body_at) =
        response.parse(received).map_err(|error| invalid(&format!("invalid response: {error}")))?
    else {
        return Ok(None);
    };
    let status = response.code.unwrap_or_default();
    let length = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|header| std::str::from_utf8(header.value).ok()?.parse::<usize>().ok());
    let length = match (status, length) {
        (204 | 304, _) => 0,
        (_, Some(length)) => length,
        (_, None) => return Err(invalid("a response without a length")),
    };
    Ok(Some(Answer { status, body_at, length: body_at + length }))
}

/// Length of the reply at the start of the buffer, and whether it is a success; `None` until it is complete.
fn redis_reply(received: &[u8]) -> Option<(usize, bool)> {
    let line = received.windows(2).position(|two| two == b"\r\n")?;
    let number = || std::str::from_utf8(&received[1..line]).ok()?.parse::<i64>().ok();
    let after = line + 2;
    match received[0] {
        b'-' => Some((after, false)),
        b'$' => match usize::try_from(number()?) {
            Ok(length) => (received.len() >= after + length + 2).then_some((after + length + 2, true)),
            Err(_) => Some((after, true)),
        },
        b'*' => {
            let mut at = after;
            for _ in 0..number()? {
                at += redis_reply(received.get(at..).filter(|rest| !rest.is_empty())?)?.0;
            }
            Some((at, true))
        }
        _ => Some((after, true)),
    }
}

/// Writes a request with a token and, unless it is empty, a JSON body.
pub(crate) fn write_http(into: &mut Vec<u8>, method: &str, path: &str, token: &str, body: &str) {
    use std::io::Write as _;
    into.clear();
    // Writing to memory cannot fail.
    let _ = write!(into, "{method} {path} HTTP/1.1\r\nhost: bench\r\n");
    if !token.is_empty() {
        let _ = write!(into, "authorization: Bearer {token}\r\n");
    }
    if !body.is_empty() {
        let _ = write!(into, "content-type: application/json\r\ncontent-length: {}\r\n", body.len());
    }
    let _ = write!(into, "\r\n{body}");
}

/// Writes a POST request as our client sends it: with an `Idempotency-Key`, which must differ between requests.
pub(crate) fn write_post(into: &mut Vec<u8>, path: &str, token: &str, key: (u64, u64), body: &str) {
    use std::io::Write as _;
    into.clear();
    // The length of a UUID, like the keys of our client.
    let (first, second) = key;
    let _ = write!(
        into,
        "POST {path} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {token}\r\n\
         idempotency-key: {first:016x}-{second:019x}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
}

/// Writes a Redis command.
pub(crate) fn write_redis(into: &mut Vec<u8>, words: &[&[u8]]) {
    use std::io::Write as _;
    into.clear();
    let _ = write!(into, "*{}\r\n", words.len());
    for word in words {
        let _ = write!(into, "${}\r\n", word.len());
        into.extend_from_slice(word);
        into.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_is_complete_when_its_body_is() {
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        let answer = http_answer(text).expect("valid").expect("whole head");
        assert_eq!((answer.status, answer.body_at, answer.length), (200, text.len() - 5, text.len()));
        assert!(http_answer(&text[..20]).expect("valid so far").is_none());
        assert!(http_answer(b"HTTP/1.1 200 OK\r\n\r\n").is_err(), "a response needs a length");
    }

    #[test]
    fn parses_length_and_outcome_of_redis_replies() {
        for (reply, length, fine) in [
            (&b":42\r\n"[..], 5, true),
            (b"$-1\r\n", 5, true),
            (b"$2\r\nab\r\nrest", 8, true),
            (b"*2\r\n$1\r\na\r\n:1\r\n", 15, true),
            (b"-ERR no\r\n", 9, false),
        ] {
            assert_eq!(redis_reply(reply), Some((length, fine)));
        }
        for part in [&b"$2\r\nab"[..], b"*2\r\n:1\r\n", b":4"] {
            assert_eq!(redis_reply(part), None);
        }
    }
}
