//! Which CPUs are measured, and which are left to the recorder's own threads.

use crate::{
    cpulist::{self, CpuSet},
    machine,
    options::Options,
    record_error::RecordError,
};

/// CPUs to measure and CPUs for the recorder's own threads.
pub fn choose_cpus(options: &Options) -> Result<(CpuSet, CpuSet), RecordError> {
    let (allowed, online) = (machine::allowed(), machine::online());
    let check = |cpus: &CpuSet| {
        for &cpu in cpus {
            if !online.contains(&cpu) {
                return Err(RecordError::UnknownCpu { cpu, online: cpulist::format(&online) });
            }
            if !allowed.contains(&cpu) {
                let allowed = cpulist::format(&allowed);
                return Err(RecordError::OutsideCpuset { cpu, allowed });
            }
        }
        Ok(())
    };
    let asked = options.housekeeping.clone().unwrap_or_default();
    check(&asked)?;
    let measured = match &options.cpus {
        Some(cpus) => {
            check(cpus)?;
            if let Some(&both) = cpus.intersection(&asked).next() {
                return Err(RecordError::BothWays(both));
            }
            cpus.clone()
        }
        None => allowed.difference(&asked).copied().collect(),
    };
    if measured.is_empty() {
        return Err(RecordError::NothingToMeasure);
    }
    let housekeeping = match &options.housekeeping {
        Some(cpus) => cpus.clone(),
        None => allowed.difference(&measured).copied().collect(),
    };
    Ok((measured, housekeeping))
}
