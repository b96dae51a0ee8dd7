//! A rank of an MPI job that does what this process asks for. The command may be statically linked and unable to
//! load an MPI library; so it starts a shell, into which the worker is preloaded in place of the shell's `main`.
//!
//! Both talk over a socket. A request is eight words ([`Request`]), perhaps followed by bytes; an answer is two
//! words, a state and a length, followed by so many bytes. Words have the byte order of the machine, on which both
//! run.

use std::{
    ffi::{OsStr, OsString},
    io::{self, Read, Write},
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
};

use thiserror::Error;

use crate::{
    DIRECTORY,
    executable::{self, Unsuitable},
    library::Placed,
};

/// The library, for the target that this crate was built for.
pub const WORKER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/worker.so"));

/// Environment variable with the names of the MPI libraries to try. Without it the worker does nothing.
const LIBRARIES: &str = "DETOUR_MPI_WORKER";

/// Why there is no worker, or no answer.
#[derive(Debug, Error)]
pub enum WorkerError {
    #[error("cannot start a process for MPI: {0}")]
    Start(io::Error),
    #[error(transparent)]
    Host(#[from] Unsuitable),
    #[error(
        "cannot load an MPI library: {0} (start the command with mpirun, mpiexec or srun, and name the \
         library with --mpi, such as --mpi /usr/lib/libmpi.so.40)"
    )]
    Refused(String),
    #[error("the MPI process ended ({0}): see what MPI wrote above")]
    Ended(String),
}

/// What a worker does. Delays are in its ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    Finish,
    /// All ranks.
    Barrier,
    /// Sends the bytes that follow.
    Send {
        to: u32,
        bytes: usize,
    },
    Receive {
        from: u32,
        bytes: usize,
    },
    /// The same moment in ticks and in ns.
    Anchor,
    /// Ticks that reading the clock takes.
    Timer {
        repeats: usize,
    },
    /// `messages` sent one after another, and one back; ticks of the rank that begins.
    RoundTrip {
        pair: Pair,
        messages: usize,
        repeats: usize,
    },
    /// Messages with a delay after each, and one back; ticks inside of the sends.
    Delayed {
        pair: Pair,
        messages: usize,
        delay: u64,
        repeats: usize,
    },
    /// The receiver waits before each receive; ticks inside of the send or of the receive.
    Late {
        pair: Pair,
        delay: u64,
        repeats: usize,
    },
    /// The same, but while the receiver waits, MPI makes progress.
    Polling {
        pair: Pair,
        delay: u64,
        repeats: usize,
    },
    /// Both send and receive at the same time: ticks of this rank, of the other, and of the clock.
    Exchange {
        peer: u32,
        bytes: usize,
        repeats: usize,
    },
}

/// The other rank, and whether this one sends first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    pub peer: u32,
    pub first: bool,
    pub bytes: usize,
}

impl Request {
    fn words(self) -> [u64; 8] {
        let of = |kind: u64, pair: Pair, messages: usize, delay: u64, repeats: usize| {
            let Pair { peer, first, bytes } = pair;
            let (bytes, messages) = (bytes as u64, messages as u64);
            [kind, peer.into(), first.into(), bytes, messages, delay, repeats as u64, 0]
        };
        let with = |peer: u32, bytes: usize| Pair { peer, first: true, bytes };
        match self {
            Request::Finish => of(1, with(0, 0), 0, 0, 0),
            Request::Barrier => of(2, with(0, 0), 0, 0, 0),
            Request::Send { to, bytes } => of(3, with(to, bytes), 0, 0, 0),
            Request::Receive { from, bytes } => of(4, with(from, bytes), 0, 0, 0),
            Request::Anchor => of(5, with(0, 0), 0, 0, 0),
            Request::Timer { repeats } => of(6, with(0, 0), 0, 0, repeats),
            Request::RoundTrip { pair, messages, repeats } => of(7, pair, messages, 0, repeats),
            Request::Delayed { pair, messages, delay, repeats } => {
                of(8, pair, messages, delay, repeats)
            }
            Request::Late { pair, delay, repeats } => of(9, pair, 1, delay, repeats),
            Request::Polling { pair, delay, repeats } => of(11, pair, 1, delay, repeats),
            Request::Exchange { peer, bytes, repeats } => of(10, with(peer, bytes), 1, 0, repeats),
        }
    }
}

/// What a worker does is recorded, with this directory and as this command.
#[derive(Clone, Copy, Debug)]
pub struct Recording<'a> {
    pub directory: &'a Path,
    pub command: &'a [OsString],
}

/// A running worker.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    socket: UnixStream,
    /// Until the worker has loaded them.
    _libraries: Vec<Placed>,
    pub rank: u32,
    pub size: u32,
    /// As the library describes itself.
    pub version: String,
    /// Whether ticks are those of the processor's counter, not ns.
    pub counter: bool,
}

impl Worker {
    /// Starts a worker, which calls `MPI_Init`: returns when all ranks have.
    ///
    /// # Errors
    /// If there is no MPI library, or no process to load it.
    pub fn start(library: Option<&OsStr>) -> Result<Worker, WorkerError> {
        Worker::of(WORKER, library)
    }

    /// With the worker as built for another C library.
    ///
    /// # Errors
    /// As [`Worker::start`].
    pub fn of(worker: &[u8], library: Option<&OsStr>) -> Result<Worker, WorkerError> {
        Worker::with(worker, library, None)
    }

    /// Starts a worker that plays a script: what it does is recorded.
    ///
    /// # Errors
    /// As [`Worker::start`].
    pub fn player(
        library: Option<&OsStr>,
        recording: &Recording<'_>,
    ) -> Result<Worker, WorkerError> {
        Worker::with(WORKER, library, Some(recording))
    }

    fn with(
        worker: &[u8],
        library: Option<&OsStr>,
        recording: Option<&Recording<'_>>,
    ) -> Result<Worker, WorkerError> {
        let shell = executable::find(OsStr::new("sh")).unwrap_or_else(|| "/bin/sh".into());
        executable::check(&shell)?;
        let place =
            |library: &[u8]| Placed::of(library, &std::env::temp_dir()).map_err(WorkerError::Start);
        // The worker is the first, and takes itself out of the list.
        let mut placed = vec![place(worker)?];
        if recording.is_some() {
            placed.push(place(crate::LIBRARY)?);
        }
        let (socket, theirs) = UnixStream::pair().map_err(WorkerError::Start)?;
        let paths: Vec<&OsStr> = placed.iter().map(|placed| placed.path().as_os_str()).collect();
        let mut preload = paths.join(OsStr::new(":"));
        if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
            preload.push(":");
            preload.push(others);
        }
        let libraries = library.map_or_else(libraries, OsStr::to_owned);
        let mut command = Command::new(shell);
        command.args(["-c", ":"]).env("LD_PRELOAD", preload).env(LIBRARIES, libraries);
        if let Some(recording) = recording {
            // The shell's arguments are the command line of the trace.
            command.args(recording.command).env(DIRECTORY, recording.directory);
        }
        // What MPI has to say must not end up in a result.
        let errors = io::stderr();
        let errors = std::os::fd::AsFd::as_fd(&errors).try_clone_to_owned();
        command.stdout(Stdio::from(errors.map_err(WorkerError::Start)?));
        command.stdin(Stdio::from(OwnedFd::from(theirs)));
        let child = command.spawn().map_err(WorkerError::Start)?;
        // Holds the worker's end of the socket, which must end with the worker.
        drop(command);
        let mut worker = Worker {
            child,
            socket,
            _libraries: placed,
            rank: 0,
            size: 0,
            version: String::new(),
            counter: false,
        };
        let hello = worker.answer()?;
        let words = words_of(&hello);
        let [rank, size, _, counter] = words.first_chunk().copied().unwrap_or_default();
        worker.rank = rank as u32;
        worker.size = size as u32;
        worker.counter = counter == 1;
        let version = hello.get(32..).unwrap_or_default();
        worker.version = String::from_utf8_lossy(version).trim().to_owned();
        Ok(worker)
    }

    /// Asks for something and waits for the answer.
    ///
    /// # Errors
    /// If the worker has ended.
    pub fn ask(&mut self, request: Request) -> Result<Vec<u64>, WorkerError> {
        self.write(&request.words(), &[])?;
        Ok(words_of(&self.answer()?))
    }

    /// Sends bytes to another rank, which must receive as many.
    ///
    /// # Errors
    /// As [`Worker::ask`].
    pub fn send(&mut self, to: u32, bytes: &[u8]) -> Result<(), WorkerError> {
        self.write(&Request::Send { to, bytes: bytes.len() }.words(), bytes)?;
        self.answer().map(drop)
    }

    /// Receives bytes from another rank.
    ///
    /// # Errors
    /// As [`Worker::ask`].
    pub fn receive(&mut self, from: u32, bytes: usize) -> Result<Vec<u8>, WorkerError> {
        self.write(&Request::Receive { from, bytes }.words(), &[])?;
        self.answer()
    }

    /// Plays a script ([`mpi_abi::script`]) and calls `MPI_Finalize`: ticks at the beginning and at the end, and
    /// calls made.
    ///
    /// # Errors
    /// As [`Worker::ask`].
    pub fn play(&mut self, script: &[u64]) -> Result<[u64; 3], WorkerError> {
        let bytes: Vec<u8> = script.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.write(&[12, 0, 0, bytes.len() as u64, 0, 0, 0, 0], &bytes)?;
        let words = words_of(&self.answer()?);
        Ok(words.first_chunk().copied().unwrap_or_default())
    }

    /// Calls `MPI_Finalize`, unless a script was played, and waits for the process.
    ///
    /// # Errors
    /// If the worker fails.
    pub fn finish(mut self) -> Result<(), WorkerError> {
        self.ask(Request::Finish)?;
        let status = self.child.wait().map_err(WorkerError::Start)?;
        if status.success() { Ok(()) } else { Err(WorkerError::Ended(said(status))) }
    }

    fn write(&mut self, words: &[u64; 8], bytes: &[u8]) -> Result<(), WorkerError> {
        let head: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let written = self.socket.write_all(&head).and_then(|()| self.socket.write_all(bytes));
        written.map_err(|_| self.ended())
    }

    fn answer(&mut self) -> Result<Vec<u8>, WorkerError> {
        let mut head = [0; 16];
        let mut read = |buffer: &mut [u8]| self.socket.read_exact(buffer);
        if read(&mut head).is_err() {
            return Err(self.ended());
        }
        let words = words_of(&head);
        let [state, length] = words.first_chunk().copied().unwrap_or_default();
        let mut bytes = vec![0; length as usize];
        if self.socket.read_exact(&mut bytes).is_err() {
            return Err(self.ended());
        }
        match state {
            0 => Ok(bytes),
            _ => Err(WorkerError::Refused(String::from_utf8_lossy(&bytes).into_owned())),
        }
    }

    fn ended(&mut self) -> WorkerError {
        let status = self.child.wait();
        WorkerError::Ended(status.map_or_else(|error| error.to_string(), said))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // After an error, the worker may wait for a message for ever. It has ended otherwise.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn said(status: ExitStatus) -> String {
    status.to_string()
}

fn words_of(bytes: &[u8]) -> Vec<u64> {
    let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
    bytes.chunks_exact(8).map(word).collect()
}

const OPEN_MPI: &str = "libmpi.so.40:libmpi.so";
const MPICH: &str = "libmpich.so.12:libmpi.so.12:libmpi.so";

/// Names of libraries in the order to try them: that of the launcher first.
fn libraries() -> OsString {
    let has = |name: &str| std::env::var_os(name).is_some();
    let list = match (has("OMPI_COMM_WORLD_RANK"), has("PMI_RANK")) {
        (true, _) => [OPEN_MPI, MPICH],
        (false, true) => [MPICH, OPEN_MPI],
        (false, false) => [OPEN_MPI, MPICH],
    };
    format!("{}:libmpi_abi.so.0:libmpi_abi.so", list.join(":")).into()
}
