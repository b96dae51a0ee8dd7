//! The hash tables on the path of every record. Keys are small numbers assigned by the kernel, so a fast
//! hash suffices; std's is designed to resist adversarial keys.

pub type HashMap<Key, Value> = std::collections::HashMap<Key, Value, rustc_hash::FxBuildHasher>;
