//! What is wrong for every rank of a node is said once.
//!
//! The first rank to come holds a socket whose name stands for the message and keeps it for a while; the others
//! find the name taken. Nothing is left behind, and no rank has to know about the others.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    io::{ErrorKind, Read},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
    time::{Duration, Instant},
};

use mpi_recorder::launcher::Task;

/// How much later the other ranks may start.
const WHILE: Duration = Duration::from_secs(3);

/// Says an error of this rank, unless another rank of the node has said the same.
pub fn say(message: &str, task: Task) {
    let address = task.rank.and_then(|_| address(message));
    let Some(address) = address else {
        tell!("{message}");
        return;
    };
    match UnixListener::bind_addr(&address) {
        Ok(held) => {
            tell!("{message}");
            answer(&held);
        }
        // The launcher ends all ranks when the first one fails: not before it was said.
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            if let Ok(mut other) = UnixStream::connect_addr(&address) {
                let _ = other.read(&mut [0]);
            }
        }
        Err(_) => tell!("{message}"),
    }
}

/// Lets the other ranks go on, since it was said.
fn answer(held: &UnixListener) {
    let start = Instant::now();
    if held.set_nonblocking(true).is_err() {
        return;
    }
    while start.elapsed() < WHILE {
        while held.accept().is_ok() {}
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn address(message: &str) -> Option<SocketAddr> {
    let mut hasher = DefaultHasher::new();
    // Ranks have traces and processes with different numbers.
    message.chars().filter(|letter| !letter.is_ascii_digit()).for_each(|c| c.hash(&mut hasher));
    let launcher = super::launcher();
    let name = format!("detour-said-{launcher}-{:x}", hasher.finish());
    SocketAddr::from_abstract_name(name).ok()
}
