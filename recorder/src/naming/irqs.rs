//! The purpose of IRQ lines. On x86 the timer and IPIs have their own vectors; on other processors they
//! are ordinary IRQs, identified by the names of their actions.

use std::{collections::HashMap, fs};

/// The kind of an IRQ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Irq {
    /// The processor's own timer.
    Timer,
    /// An IPI from another CPU.
    Ipi(String),
    /// A device interrupt, by the name of its driver's action.
    Device(String),
}

/// The action of every IPI.
const IPI: &str = "IPI";

#[derive(Default)]
pub struct Irqs {
    /// By line and index of the action.
    known: HashMap<(u32, usize), Irq>,
}

impl Irqs {
    /// The action at an index of a shared line.
    pub fn get(&mut self, irq: u32, place: usize) -> &Irq {
        self.known.entry((irq, place)).or_insert_with(|| {
            let actions = actions(irq);
            let names: Vec<&str> = actions.split(',').collect();
            match names.get(place).or(names.first()).copied().unwrap_or_default() {
                "" => Irq::Device(format!("irq {irq}")),
                "arch_timer" => Irq::Timer,
                IPI => Irq::Ipi(ipi(irq)),
                name => Irq::Device(name.to_owned()),
            }
        })
    }
}

fn actions(irq: u32) -> String {
    let text = fs::read_to_string(format!("/sys/kernel/irq/{irq}/actions"));
    text.unwrap_or_default().trim().to_owned()
}

/// Their lines are in the order in which /proc/interrupts lists them.
fn ipi(irq: u32) -> String {
    let place = (0..irq).filter(|&before| actions(before) == IPI).count();
    let interrupts = fs::read_to_string("/proc/interrupts").unwrap_or_default();
    ipi_name(&interrupts, place).unwrap_or_else(|| format!("IPI{place}"))
}

/// `IPI0:  1036  832  Rescheduling interrupts`: the name used on other processors.
fn ipi_name(interrupts: &str, place: usize) -> Option<String> {
    let prefix = format!("IPI{place}:");
    let line = interrupts.lines().find_map(|line| line.trim().strip_prefix(&prefix))?;
    let words = line.split_whitespace().skip_while(|word| word.parse::<u64>().is_ok());
    let words: Vec<&str> = words.filter(|word| *word != "interrupts").collect();
    Some(match words.join("_").to_lowercase().as_str() {
        "rescheduling" => "reschedule".to_owned(),
        "function_call" => "call_function".to_owned(),
        other => other.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_between_cpus_are_called_as_on_other_processors() {
        let text = "           CPU0       CPU1\n 11:  100  200  GICv2  27 Level  arch_timer\n\
                    IPI0:  1036   832       Rescheduling interrupts\n\
                    IPI1:   36    32       Function call interrupts\n\
                    IPI2:    0     0       CPU stop interrupts\n\
                    IPI5:    9     8       IRQ work interrupts\n";
        let names = [0, 1, 2, 5, 6].map(|place| ipi_name(text, place));
        let names: Vec<&str> = names.iter().map(|name| name.as_deref().unwrap_or("-")).collect();
        assert_eq!(names, ["reschedule", "call_function", "cpu_stop", "irq_work", "-"]);
    }
}
