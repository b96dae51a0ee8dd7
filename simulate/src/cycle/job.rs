//! The redundant butterfly as an algorithm of an allreduce, or of a loop of them: the cycles of a job.

use crate::{
    job::Job,
    noise::{Model, Noise},
};

use super::config::{Config, CycleError};

/// The name of the algorithm used in the command line and in JSON.
pub const NAME: &str = "redundant-butterfly";

/// The cycles of a job with this algorithm under this noise. They follow the rules of this module, not those
/// of the other collectives, so what they cannot express is an error.
pub fn config_of(job: &Job, noise: &Noise) -> Result<Config, CycleError> {
    let params = job.params();
    let unsupported = [
        (job.reduction() > 0, "reductions that take time: omit --reduction"),
        (job.overlap().is_some(), "overlap with compute: omit --nonblocking"),
        (job.local().is_some(), "two networks: omit --net-local"),
        (job.barrier().is_some(), "ranks that start apart: omit --after-barrier"),
        (params.sizes.is_some(), "measured times of the bytes: specify G, and no sizes"),
        (noise.has_latencies(), "latencies that vary: omit --latency"),
        (
            !noise.is_none() && noise.model() != Model::Preempt,
            "other noise models than preempt: omit --noise-model",
        ),
        (
            job.body()[0].shape().bytes > params.eager_limit,
            "messages larger than S: reduce --size, or use a network with a larger S",
        ),
    ];
    if let Some((_, what)) = unsupported.iter().find(|(applies, _)| *applies) {
        return Err(CycleError::Unsupported(what));
    }
    let config = Config {
        // No detours but those of the noise.
        duration: 0,
        work: job.compute(),
        cycles: u32::try_from(job.iterations()).map_err(|_| CycleError::TooLong)?,
        latency: params.latency,
        overhead: params.send_overhead,
        gap_per_byte_fs: params.gap_per_byte_fs,
        bytes: job.body()[0].shape().bytes,
        ..Config::paper(job.ranks())
    };
    config.checked()?;
    Ok(config)
}
