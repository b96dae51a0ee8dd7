//! Two processes connected by TCP as the ends of a link. Both ends poll, as MPI libraries do, and send every
//! message immediately (TCP_NODELAY).

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{TcpListener, TcpStream, ToSocketAddrs},
    time::{Duration, Instant},
};

use crate::{LARGEST, Link, LinkError, Pattern, Result};

/// Port of the server unless another is given.
pub const PORT: u16 = 7172;
/// First bytes in both directions, so that another program on the port is noticed.
const GREETING: &[u8; 16] = b"detour net 1\0\0\0\0";
/// Without any progress for so long, the other end is gone.
const PATIENCE: Duration = Duration::from_secs(30);
/// Repetitions at the beginning that are not kept.
const WARM_UP: usize = 2;

/// A connection.
#[derive(Debug)]
pub struct TcpLink {
    stream: TcpStream,
    /// What is sent back is what was received: data that never changes would stay in the caches of both processors.
    buffer: Vec<u8>,
    /// Names of the hosts, this one first.
    pub hosts: [String; 2],
}

fn failed(what: impl Into<String>) -> impl FnOnce(io::Error) -> LinkError {
    let what = what.into();
    move |source| LinkError::Socket { what, source }
}

/// `HOST` or `HOST:PORT`, with the usual port added.
#[must_use]
pub fn with_port(address: &str) -> String {
    let is_plain = address.parse::<std::net::Ipv6Addr>().is_ok();
    match address.rsplit_once(':') {
        _ if is_plain => format!("[{address}]:{PORT}"),
        Some((_, port)) if port.parse::<u16>().is_ok() => address.to_owned(),
        _ => format!("{address}:{PORT}"),
    }
}

impl TcpLink {
    /// Connects to a listening process.
    ///
    /// # Errors
    /// If there is none.
    pub fn connect(address: &str, host: &str) -> Result<TcpLink> {
        let address = with_port(address);
        let cannot = || {
            format!("cannot connect to {address} (is `detour net --tcp --listen` running there?)")
        };
        let addresses = address.to_socket_addrs().map_err(failed(cannot()))?;
        let mut last = io::Error::new(ErrorKind::NotFound, "no such host");
        for address in addresses {
            match TcpStream::connect_timeout(&address, Duration::from_secs(10)) {
                Ok(stream) => return TcpLink::greet(stream, host),
                Err(error) => last = error,
            }
        }
        Err(failed(cannot())(last))
    }

    /// Waits for one process to connect.
    ///
    /// # Errors
    /// If the address cannot be used.
    pub fn accept(listener: &TcpListener, host: &str) -> Result<TcpLink> {
        let (stream, _) = listener.accept().map_err(failed("cannot accept a connection"))?;
        TcpLink::greet(stream, host)
    }

    fn greet(stream: TcpStream, host: &str) -> Result<TcpLink> {
        let set = stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true));
        set.map_err(failed("cannot set up the connection"))?;
        let hosts = [host.to_owned(), String::new()];
        let mut link = TcpLink { stream, buffer: Vec::new(), hosts };
        let mut name = [0u8; 64];
        name.iter_mut().zip(host.bytes()).for_each(|(place, byte)| *place = byte);
        link.send(GREETING)?;
        link.send(&name)?;
        if link.receive(GREETING.len())? != GREETING {
            return Err(LinkError::Wrong(
                "protocol mismatch: use the same version of detour on both hosts".into(),
            ));
        }
        let name = link.receive(name.len())?;
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        link.hosts[1] = String::from_utf8_lossy(name).into_owned();
        Ok(link)
    }

    fn put(&mut self, bytes: usize) -> Result<()> {
        let mut done = 0;
        let mut patience = Patience::new();
        while done < bytes {
            match self.stream.write(&self.buffer[done..bytes]) {
                Ok(0) => return Err(gone()),
                Ok(count) => {
                    done += count;
                    patience = Patience::new();
                }
                Err(error) => patience.or_fail(error)?,
            }
        }
        Ok(())
    }

    fn get(&mut self, bytes: usize) -> Result<()> {
        let mut done = 0;
        let mut patience = Patience::new();
        while done < bytes {
            match self.stream.read(&mut self.buffer[done..bytes]) {
                Ok(0) => return Err(gone()),
                Ok(count) => {
                    done += count;
                    patience = Patience::new();
                }
                Err(error) => patience.or_fail(error)?,
            }
        }
        Ok(())
    }
}

fn gone() -> LinkError {
    LinkError::Wrong("connection closed by peer".to_owned())
}

/// Polls, and looks at the clock only now and then.
struct Patience {
    polls: u32,
    since: Option<Instant>,
}

impl Patience {
    fn new() -> Patience {
        Patience { polls: 0, since: None }
    }

    fn or_fail(&mut self, error: io::Error) -> Result<()> {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::Interrupted => {}
            _ => return Err(failed("connection failed")(error)),
        }
        self.polls = self.polls.wrapping_add(1);
        if self.polls.is_multiple_of(1 << 16) {
            let since = *self.since.get_or_insert_with(Instant::now);
            if since.elapsed() > PATIENCE {
                let why = format!("no answer for {} s", PATIENCE.as_secs());
                return Err(LinkError::Wrong(format!("connection lost: {why}")));
            }
        }
        std::hint::spin_loop();
        Ok(())
    }
}

fn ns(begin: Instant) -> f64 {
    begin.elapsed().as_nanos() as f64
}

fn wait(delay: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < delay {
        std::hint::spin_loop();
    }
}

impl Link for TcpLink {
    fn run(&mut self, pattern: Pattern, first: bool) -> Result<Vec<f64>> {
        let (bytes, repeats) = match pattern {
            Pattern::Timer { repeats } => (0, repeats),
            Pattern::RoundTrip { bytes, repeats, .. }
            | Pattern::Delayed { bytes, repeats, .. }
            | Pattern::Late { bytes, repeats, .. }
            | Pattern::Polling { bytes, repeats, .. } => (bytes.min(LARGEST) as usize, repeats),
        };
        let room = bytes.max(1);
        self.buffer.resize(self.buffer.len().max(room), 0);
        let mut times = Vec::new();
        for repeat in 0..repeats as usize + WARM_UP {
            if repeat == WARM_UP {
                times.clear();
            }
            match (pattern, first) {
                (Pattern::Timer { .. }, _) => times.push(ns(Instant::now())),
                (Pattern::RoundTrip { messages, .. }, true) => {
                    let begin = Instant::now();
                    for _ in 0..messages {
                        self.put(bytes)?;
                    }
                    self.get(bytes)?;
                    times.push(ns(begin));
                }
                (Pattern::Delayed { messages, delay, .. }, true) => {
                    for _ in 0..messages {
                        let begin = Instant::now();
                        self.put(bytes)?;
                        times.push(ns(begin));
                        wait(delay);
                    }
                    self.get(bytes)?;
                }
                (
                    Pattern::RoundTrip { messages, .. } | Pattern::Delayed { messages, .. },
                    false,
                ) => {
                    for _ in 0..messages {
                        self.get(bytes)?;
                    }
                    self.put(bytes)?;
                }
                (Pattern::Late { .. } | Pattern::Polling { .. }, true) => {
                    self.get(1)?;
                    let begin = Instant::now();
                    self.put(bytes)?;
                    times.push(ns(begin));
                }
                // The kernel makes progress by itself.
                (Pattern::Late { delay, .. } | Pattern::Polling { delay, .. }, false) => {
                    self.put(1)?;
                    wait(delay);
                    let begin = Instant::now();
                    self.get(bytes)?;
                    times.push(ns(begin));
                }
            }
        }
        Ok(times)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.buffer.clear();
        self.buffer.extend_from_slice(bytes);
        self.put(bytes.len())
    }

    fn receive(&mut self, bytes: usize) -> Result<Vec<u8>> {
        self.buffer.resize(self.buffer.len().max(bytes), 0);
        self.get(bytes)?;
        Ok(self.buffer[..bytes].to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Plan, measure, serve};

    #[test]
    fn an_address_has_a_port() {
        assert_eq!(with_port("node1"), "node1:7172");
        assert_eq!(with_port("node1:80"), "node1:80");
        assert_eq!(with_port("10.0.0.1"), "10.0.0.1:7172");
        assert_eq!(with_port("fe80::1"), "[fe80::1]:7172");
        assert_eq!(with_port("[fe80::1]:9"), "[fe80::1]:9");
    }

    #[test]
    fn both_ends_agree_on_what_is_measured() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = std::thread::spawn(move || {
            let mut link = TcpLink::accept(&listener, "b").unwrap();
            serve(&mut link).unwrap();
            link.hosts
        });
        let mut link = TcpLink::connect(&address, "a").unwrap();
        let plan = Plan { duration: Duration::from_millis(1), largest: 64, blocks: 2 };
        let measured = measure(&mut link, &plan, &mut |_| true).unwrap();
        assert_eq!(measured.sizes, [1, 2, 4, 8, 16, 32, 64]);
        assert_eq!(measured.blocks.len(), 2);
        for size in measured.blocks.iter().flatten() {
            let Times { minimum, median } = size.round_trip;
            assert!(0.0 < minimum && minimum <= median, "{size:?}");
        }
        assert_eq!(server.join().unwrap(), ["b", "a"]);
        assert_eq!(link.hosts, ["a", "b"]);
    }

    use crate::measure::Times;

    #[test]
    fn another_protocol_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.write_all(&[b'x'; 200]);
            let _ = stream.read(&mut [0; 80]);
        });
        assert!(TcpLink::connect(&address, "a").is_err());
        server.join().unwrap();
    }
}
