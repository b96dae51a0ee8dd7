//! What is wrong for every rank of a node is said once.
//!
//! The first rank to come holds a socket whose name stands for the message and keeps it for a while; the others
//! find the name taken. Nothing is left behind, and no rank has to know about the others.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    io::ErrorKind,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
    time::Duration,
};

use mpi_recorder::launcher::Task;

/// How much later the other ranks may start.
const WHILE: Duration = Duration::from_secs(3);

/// Says an error of this rank, unless another rank of the node has said the same.
pub fn say(message: &str, task: Task) {
    if task.rank.is_none() {
        tell!("{message}");
        return;
    }
    let held = hold(message);
    if held.as_ref().is_err_and(|error| *error == ErrorKind::AddrInUse) {
        return;
    }
    tell!("{message}");
    if held.is_ok() {
        std::thread::sleep(WHILE);
    }
}

fn hold(message: &str) -> Result<UnixListener, ErrorKind> {
    let mut hasher = DefaultHasher::new();
    // Ranks have traces and processes with different numbers.
    message.chars().filter(|letter| !letter.is_ascii_digit()).for_each(|c| c.hash(&mut hasher));
    // All ranks of a node are started by one process, and no other job on this node is.
    let launcher = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    let name = format!("detour-said-{launcher}-{:x}", hasher.finish());
    let address = SocketAddr::from_abstract_name(name).map_err(|error| error.kind())?;
    UnixListener::bind_addr(&address).map_err(|error| error.kind())
}
