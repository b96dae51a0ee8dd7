//! Studies: recordings become noise, noise meets a job, and each question has one answer.
//!
//! In: files and requests. Out: results, each a documented struct that serialises to the JSON of its
//! command; text, CSV and pages are views of the same struct (`report`). Nothing here parses options or prints
//! messages, although errors name the options that help: a caller passes a [`Work`](work::Work) with seed,
//! threads and memory, and watches the progress through [`Watch`](work::Watch).
//!
//! - Measured networks: [`latency`], [`loggops`].
//! - Input: [`blocks`], [`open`], [`recorded`], [`noise`], [`samples`], [`network`], [`goal`], [`units`].
//! - Studies: [`collective`], [`app`], [`skeleton`], [`schedule`], [`exchange`], [`alltoall`], [`cycle`], [`projection`],
//!   [`whatif`], [`compare`], [`tail`]. Distributions of any samples: [`dist`].
//! - Explanations of simulated runs: [`blame`], [`states`], [`picture`]; of real ones: [`traced`]. Remedies: [`advice`].
//! - Other tools' files: [`mod@import`], [`export`]. Detours to be played back: [`inject`].
//! - Long simulations: [`shard`] and [`shards`] divide them, [`resume`] continues them.

#![forbid(unsafe_code)]

pub mod action;
pub mod advice;
pub mod alltoall;
pub mod app;
pub mod blame;
pub mod blocks;
pub mod collective;
pub mod compare;
pub mod cycle;
pub mod decision;
pub mod derived;
pub mod dist;
pub mod error;
pub mod exchange;
pub mod export;
pub mod files;
pub mod fleet;
mod generated;
pub mod goal;
pub mod hypotheses;
pub mod import;
pub mod inject;
pub mod isolation;
pub mod job;
pub mod json;
pub mod latency;
pub mod load;
pub mod loggops;
pub mod longest;
pub mod network;
pub mod noise;
pub mod open;
mod parted;
pub mod picture;
pub mod place;
pub mod placement;
pub mod point;
pub mod programs;
pub mod projection;
pub mod recorded;
pub mod replay;
pub mod resume;
pub mod samples;
pub mod schedule;
pub mod sensitivity;
pub mod shard;
pub mod shards;
pub mod skeleton;
pub mod sources;
pub mod states;
pub mod summary;
pub mod support;
pub mod tail;
pub mod traced;
pub mod units;
pub mod variation;
pub mod whatif;
pub mod work;
pub mod workload;
