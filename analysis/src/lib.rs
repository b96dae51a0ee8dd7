//! What a recording says: sources ranked by the time they took, their distributions and periods.
#![forbid(unsafe_code)]
