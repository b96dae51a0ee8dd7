//! The offline side: what a trace of detours does to work.
#![forbid(unsafe_code)]
