//! How results are shown: text tables and JSON.
#![forbid(unsafe_code)]
