//! What to do about it: what each source costs a job, remedies, and recordings or runs compared.

pub mod action;
pub mod advice;
pub mod compare;
pub mod decision;
pub mod fleet;
pub mod isolation;
pub mod programs;
pub mod projection;
pub mod whatif;
