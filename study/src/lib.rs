//! Studies: recordings become noise, noise meets a job, and each question has one answer.
//!
//! In: files and requests. Out: results, each a documented struct that serialises to the JSON of its
//! command; text, CSV and pages are views of the same struct (`report`). Nothing here parses options or prints
//! messages, although errors name the options that help: a caller passes a [`Work`](work::Work) with seed,
//! threads and memory, and watches the progress through [`Watch`](work::Watch).
//!
//! - Input: [`open`], [`recorded`], [`noise`], [`samples`], [`network`], [`goal`], [`units`].
//! - Studies: [`collective`], [`schedule`], [`exchange`], [`alltoall`], [`cycle`], [`projection`],
//!   [`whatif`], [`compare`].
//! - Explanations of simulated runs: [`blame`], [`picture`]. Remedies: [`advice`].
//! - Other tools' files: [`mod@import`], [`export`].
//! - Long simulations: [`shard`] and [`shards`] divide them, [`resume`] continues them.

#![forbid(unsafe_code)]

pub mod action;
pub mod advice;
pub mod alltoall;
pub mod blame;
pub mod collective;
pub mod compare;
pub mod cycle;
pub mod decision;
pub mod derived;
pub mod error;
pub mod exchange;
pub mod export;
pub mod files;
pub mod fleet;
pub mod goal;
pub mod import;
pub mod isolation;
pub mod job;
pub mod json;
pub mod longest;
pub mod network;
pub mod noise;
pub mod open;
pub mod picture;
pub mod place;
pub mod placement;
pub mod point;
pub mod projection;
pub mod recorded;
pub mod resume;
pub mod samples;
pub mod schedule;
pub mod shard;
pub mod shards;
pub mod sources;
pub mod summary;
pub mod support;
pub mod units;
pub mod whatif;
pub mod work;
pub mod workload;
