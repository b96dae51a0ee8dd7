//! Studies: recordings become noise, noise meets a job, and each question has one answer.
//!
//! In: files and requests. Out: results, each a documented struct that serialises to the JSON of its
//! command; text, CSV and pages are views of the same struct (`report`). Nothing here parses options or prints
//! messages, although errors name the options that help: a caller passes a [`Work`](run::work::Work) with seed,
//! threads and memory, and watches the progress through [`Watch`](run::work::Watch).
//!
//! From input to answer:
//!
//! - [`recording`]: what was recorded, and other tools' files.
//! - [`noise`] and [`network`]: what ranks and messages meet, recorded, measured or by parameters.
//! - [`jobs`]: what is simulated. [`run`]: how.
//! - [`explain`]: why it took as long as it did. [`decide`]: what to do about it.
//! - [`dist`]: distributions of any samples.

#![forbid(unsafe_code)]

pub mod decide;
pub mod dist;
pub mod error;
pub mod explain;
pub mod files;
pub mod jobs;
pub mod json;
pub mod network;
pub mod noise;
pub mod recording;
pub mod run;
pub mod units;
