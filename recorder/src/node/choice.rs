//! Which CPUs are measured, and which are reserved for the recorder's own threads.

use crate::{
    cpulist::{self, CpuSet},
    node::machine,
    options::Options,
    record_error::RecordError,
};

/// CPUs to measure and CPUs for the recorder's own threads.
pub fn choose_cpus(options: &Options) -> Result<(CpuSet, CpuSet), RecordError> {
    let allowed = machine::allowed();
    let asked = options.housekeeping.clone().unwrap_or_default();
    check(&asked, &allowed)?;
    let measured = match &options.cpus {
        Some(cpus) => {
            check(cpus, &allowed)?;
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

/// CPUs for the recorder's own threads when recording a program: those given, or else those that -c does
/// not assign to the program. Empty if the program has all CPUs.
pub fn housekeeping(options: &Options) -> Result<CpuSet, RecordError> {
    match (&options.cpus, &options.housekeeping) {
        (Some(_), _) => Ok(choose_cpus(options)?.1),
        (None, asked) => {
            let asked = asked.clone().unwrap_or_default();
            check(&asked, &machine::allowed())?;
            Ok(asked)
        }
    }
}

fn check(cpus: &CpuSet, allowed: &CpuSet) -> Result<(), RecordError> {
    let online = machine::online();
    for &cpu in cpus {
        if !online.contains(&cpu) {
            return Err(RecordError::UnknownCpu { cpu, online: cpulist::format(&online) });
        }
        // Isolated CPUs are in no process's affinity until it asks for them.
        let isolated = || machine::isolated().contains(&cpu) && machine::may_be_pinned_to(cpu);
        if !allowed.contains(&cpu) && !isolated() {
            return Err(RecordError::OutsideCpuset { cpu, allowed: cpulist::format(allowed) });
        }
    }
    Ok(())
}
