//! What sweeps of jobs have in common: a series for each network, noise, size and speed, and the noise that it
//! meets.

use anyhow::Result;
use simulate::{
    loggops::Params,
    noise::{Noise, Offsets},
};

use crate::{
    network::{self, variation::Variation},
    noise::{self, Loaded},
    run::point::Series,
};

/// A series, and what it chooses from the lists of a request.
#[derive(Clone)]
pub(crate) struct Choice<'a> {
    pub series: Series,
    pub net: &'a Params,
    /// Number of the variant.
    pub noise: usize,
}

/// All of them, in the order in which they are simulated; `alike` is what they have in common.
pub(crate) fn choices<'a>(
    alike: &Series,
    nets: &'a [Params],
    noises: &[noise::Request],
    sizes: &[u64],
    net_scales: &[f64],
    with_coscheduled: bool,
) -> Vec<Choice<'a>> {
    let both: &[bool] = if with_coscheduled { &[false, true] } else { &[false] };
    let mut choices = Vec::new();
    for net in nets {
        for (noise, of_noise) in noises.iter().enumerate() {
            for &size in sizes {
                for &net_scale in net_scales {
                    choices.extend(both.iter().map(|&coscheduled| {
                        let series = Series {
                            size,
                            net_scale,
                            coscheduled,
                            // Only what differs distinguishes series.
                            net: (nets.len() > 1).then(|| network::name(net)),
                            noise: (noises.len() > 1).then(|| of_noise.specs()),
                            ..alike.clone()
                        };
                        Choice { series, net, noise }
                    }));
                }
            }
        }
    }
    choices
}

/// What a series meets: noise, and a network that varies, if it does.
pub(crate) fn met(
    series: &Series,
    loaded: &Loaded,
    variation: Option<&Variation>,
    params: &Params,
) -> Result<Noise> {
    let latencies = variation.map(|all| all.of(params)).transpose()?;
    let noise = loaded.noise.clone().with_latencies(latencies);
    Ok(if series.coscheduled { noise.with_offsets(Offsets::Shared) } else { noise })
}
