//! What a recording says: its detours with their sources, and the node.

pub mod derived;
pub mod export;
pub mod import;
pub mod inject;
pub mod load;
pub mod longest;
pub mod open;
pub mod place;
pub mod recorded;
pub mod sources;
pub mod summary;
