//! LAMMPS, a real program whose ranks exchange borders in every step and meet in a few collectives.

/// Where Debian's package installs it.
pub const PATH: &str = "/usr/bin/lmp";

/// Melting of a Lennard-Jones crystal: so many steps, with the thermodynamic state, which needs collectives, every
/// `thermo` of them.
pub fn melt(steps: u32, thermo: u32) -> String {
    format!(
        "units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 10 0 10 0 10
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287 loop geom
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
neigh_modify every 20 delay 0 check no
fix 1 all nve
thermo {thermo}
run {steps}
"
    )
}
