//! `detour goal`: schedules as files. One file per subcommand; `file` reads them for `detour simulate
//! goal`, too.

pub mod file;
