//! Distributions of samples: moments, quantiles, modes, fits and tails. Pure functions: samples come in
//! as slices, nothing is read or printed, and everything random takes a seed.

#![forbid(unsafe_code)]

pub mod bins;
pub mod blocks;
pub mod excess;
pub mod extremal;
pub mod fit;
pub mod grid;
pub mod modes;
pub mod moments;
pub mod pareto;
pub mod peaks;
pub mod rare;
pub mod shift;
pub mod sketch;
pub mod text;

/// A number of the standard normal distribution from 64 random bits, by the inverse of its
/// distribution function: one draw each, so that any of them can be drawn again.
pub fn normal(bits: u64) -> f64 {
    // Never 0 or 1.
    let unit = ((bits >> 12) as f64 + 0.5) / (1u64 << 52) as f64;
    std::f64::consts::SQRT_2 * -statrs::function::erf::erfc_inv(2.0 * unit)
}
