//! Runs a loaded program once with synthetic arguments, on a chosen CPU: tests see what it does without
//! waiting for the kernel to trigger it.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

use aya::programs::Program;

use crate::kernel::bpf::Bpf;

/// `BPF_PROG_TEST_RUN`, and its flag to choose a CPU.
const COMMAND: libc::c_long = 10;
const ON_CPU: u32 = 1;

/// The part of `union bpf_attr` that the command reads.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
    ctx_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    padding: u32,
}

impl Bpf {
    /// Runs a raw tracepoint program. Requires Linux 5.10.
    pub fn run_raw(&self, program: &str, arguments: &[u64], cpu: u32) -> io::Result<()> {
        let Some(Program::RawTracePoint(program)) = self.program(program) else {
            return Err(io::Error::other(format!("no raw tracepoint program {program}")));
        };
        let fd = program.fd().map_err(io::Error::other)?;
        let attributes = Attributes {
            prog_fd: fd.as_fd().as_raw_fd() as u32,
            ctx_size_in: size_of_val(arguments) as u32,
            ctx_in: arguments.as_ptr() as u64,
            flags: ON_CPU,
            cpu,
            ..Attributes::default()
        };
        // SAFETY: the pointers are to live values of the given lengths, which the kernel only reads.
        let result = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                COMMAND,
                &raw const attributes,
                size_of::<Attributes>() as libc::c_long,
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}
