//! An MPI with the ABI of MPI 5.0, which no distribution has yet: a library that translates it to the installed
//! MPICH (`programs/standard/libmpi_abi.c`). Its functions are written here, from MPICH's prototypes: what has to
//! be translated follows from the types of the parameters and, for plain numbers, from their names.

use super::{Mpi, fresh, run, source};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

/// Types of handles; a function that uses another type of MPI, such as a session or a callback, is left out.
const HANDLES: [&str; 10] =
    ["Comm", "Group", "Datatype", "Op", "Request", "Message", "Win", "File", "Info", "Errhandler"];
/// Types that are the same in both ABIs.
const SAME: [&str; 6] = ["int", "char", "void", "MPI_Aint", "MPI_Count", "MPI_Offset"];

/// The library and the directory of the headers.
pub struct Standard {
    library: PathBuf,
    headers: PathBuf,
}

impl Standard {
    /// Builds the library.
    pub fn new(mpich: Mpi) -> Standard {
        let headers = fresh("standard");
        let include = headers.join("include.c");
        std::fs::write(&include, "#include <mpi.h>\n").unwrap();
        let compiler = || Command::new(format!("mpicc.{}", mpich.name));
        let output = run(compiler().args(["-E", "-P"]).arg(&include));
        let (mut prototypes, mut functions) = (String::new(), String::new());
        for (name, parameters) in declarations(&String::from_utf8_lossy(&output.stdout)) {
            if name == "Pcontrol" {
                prototypes += "int MPI_Pcontrol(const int level, ...);\n";
                functions +=
                    "TRANSLATED(Pcontrol, (int level)) { return REAL(Pcontrol)(level); }\n";
            } else if let Some(function) = translated(&name, &parameters) {
                writeln!(prototypes, "int MPI_{name}({});", parameters.join(", ")).unwrap();
                functions += &function;
            }
        }
        std::fs::write(headers.join("prototypes.h"), prototypes).unwrap();
        std::fs::write(headers.join("functions.h"), functions).unwrap();
        let library = headers.join("libmpi_abi.so.0");
        // The header of MPICH, not the one of the same name beside the source.
        let copy = headers.join("libmpi_abi.c");
        std::fs::copy(source("standard/libmpi_abi.c"), &copy).unwrap();
        std::fs::copy(source("standard/handles.h"), headers.join("handles.h")).unwrap();
        run(Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-w", "-DLIBRARY=\"libmpich.so.12\""])
            .arg("-Wl,-soname,libmpi_abi.so.0")
            .args(include_options(mpich))
            .arg(&copy)
            .arg("-o")
            .arg(&library));
        Standard { library, headers }
    }

    /// Compiles a C program with the header of the standard ABI.
    pub fn compile(&self, name: &str, options: &[&str]) -> PathBuf {
        let program = self.headers.join(name.replace('.', "-"));
        run(Command::new("cc")
            .args(["-w", "-O1", "-I"])
            .arg(source("standard"))
            .arg("-I")
            .arg(&self.headers)
            .arg(source(name))
            .arg(&self.library)
            .arg(format!("-Wl,-rpath,{}", self.headers.display()))
            .args(options)
            .arg("-o")
            .arg(&program));
        program
    }
}

/// Where MPICH's header is; the compiler wrapper would link MPICH.
fn include_options(mpich: Mpi) -> Vec<String> {
    let output = run(Command::new(format!("mpicc.{}", mpich.name)).arg("-show"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace().filter(|word| word.starts_with("-I")).map(str::to_owned).collect()
}

/// Functions and their parameters.
fn declarations(header: &str) -> Vec<(String, Vec<String>)> {
    let text = header.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut found = vec![];
    for statement in text.split(';') {
        let Some((name, rest)) = statement
            .trim_start()
            .strip_prefix("int MPI_")
            .and_then(|statement| statement.split_once('('))
        else {
            continue;
        };
        let Some((parameters, _)) = rest.split_once(')') else { continue };
        let parameters = match parameters.trim() {
            "void" => vec![],
            parameters => parameters.split(',').map(|text| text.trim().to_owned()).collect(),
        };
        found.push((name.to_owned(), parameters));
    }
    found
}

/// A parameter of the translated function: its declaration, what precedes the call, what is passed, what
/// follows.
struct Parameter {
    declared: String,
    before: String,
    passed: String,
    after: String,
}

/// The function in C; None if it has types that are not translated.
fn translated(name: &str, parameters: &[String]) -> Option<String> {
    let all = parameters
        .iter()
        .map(|text| parameter(name, parameters, text))
        .collect::<Option<Vec<_>>>()?;
    let join = |part: fn(&Parameter) -> &String, with: &str| {
        all.iter().map(|parameter| part(parameter).as_str()).collect::<Vec<_>>().join(with)
    };
    let declared = join(|parameter| &parameter.declared, ", ");
    let declared = if declared.is_empty() { "void".to_owned() } else { declared };
    Some(format!(
        "TRANSLATED({name}, ({declared})) {{ {} int own = REAL({name})({}); {} return own; }}\n",
        join(|parameter| &parameter.before, " "),
        join(|parameter| &parameter.passed, ", "),
        join(|parameter| &parameter.after, " "),
    ))
}

fn parameter(function: &str, all: &[String], text: &str) -> Option<Parameter> {
    let bare = text.trim_end_matches("[]");
    let list = bare.len() < text.len();
    let start = bare.rfind(|letter: char| !letter.is_alphanumeric() && letter != '_')? + 1;
    let (kind, name) = (bare[..start].trim(), &bare[start..]);
    let constant = kind.starts_with("const ");
    let kind = kind.trim_start_matches("const ");
    let pointer = kind.ends_with('*');
    let base = kind.trim_end_matches(['*', ' ']);
    let plain = |passed: String| Parameter {
        declared: text.to_owned(),
        before: String::new(),
        passed,
        after: String::new(),
    };
    if SAME.contains(&base) {
        let meaning = |meaning: &str| Some(plain(format!("to_{meaning}({name})")));
        return match (base, pointer || list, name) {
            ("int", false, "dest" | "source" | "root" | "rank" | "target_rank") => meaning("rank"),
            ("int", false, "tag" | "sendtag" | "recvtag") => meaning("tag"),
            ("int", false, "required") => meaning("level"),
            ("int", false, "split_type") => meaning("split"),
            ("int", false, "lock_type") => meaning("lock"),
            ("int", false, "whence") => meaning("seek"),
            ("int", false, "amode") => meaning("mode"),
            ("int", true, "weights" | "sourceweights" | "destweights") => meaning("weights"),
            ("void", true, "sendbuf" | "recvbuf") => meaning("buffer"),
            ("int", true, "provided" | "status" | "rank_source" | "rank_dest") => {
                let meaning = match name {
                    "provided" => "level",
                    "status" => "topology",
                    _ => "rank",
                };
                let after = format!("*{name} = of_{meaning}(*{name});");
                Some(Parameter { after, ..plain(name.to_owned()) })
            }
            _ => Some(plain(name.to_owned())),
        };
    }
    let count = all.first()?.rsplit(' ').next()?;
    if base == "MPI_Status" {
        let (declared, before, passed, after) = match (constant, list) {
            (true, _) => (
                format!("const Status *{name}"),
                format!("MPI_Status own_{name} = to_status({name});"),
                format!("&own_{name}"),
                String::new(),
            ),
            (false, false) => (
                format!("Status *{name}"),
                format!("MPI_Status own_{name} = {{0}};"),
                format!("{name} ? &own_{name} : MPI_STATUS_IGNORE"),
                format!("if ({name}) *{name} = of_status(own_{name});"),
            ),
            (false, true) => (
                format!("Status *{name}"),
                format!("MPI_Status *own_{name} = calloc({count} + 1, sizeof *own_{name});"),
                format!("{name} ? own_{name} : MPI_STATUSES_IGNORE"),
                format!(
                    "if ({name}) for (int i = 0; i < {count}; i++) {name}[i] = of_status(own_{name}[i]); \
                     free(own_{name});"
                ),
            ),
        };
        return Some(Parameter { declared, before, passed, after });
    }
    let handle = base.strip_prefix("MPI_").filter(|handle| HANDLES.contains(handle))?;
    let (declared, before, passed, after) = match (pointer, list) {
        (false, false) => {
            (format!("Word {name}"), String::new(), format!("to_{handle}({name})"), String::new())
        }
        (true, false) => (
            format!("Word *{name}"),
            format!("MPI_{handle} own_{name} = to_{handle}(*{name});"),
            format!("&own_{name}"),
            format!("*{name} = of_{handle}(own_{name});"),
        ),
        (false, true) if handle == "Request" => (
            format!("Word *{name}"),
            format!(
                "MPI_{handle} *own_{name} = calloc({count} + 1, sizeof *own_{name}); \
                 for (int i = 0; i < {count}; i++) own_{name}[i] = to_{handle}({name}[i]);"
            ),
            format!("own_{name}"),
            format!(
                "for (int i = 0; i < {count}; i++) {name}[i] = of_{handle}(own_{name}[i]); \
                 free(own_{name});"
            ),
        ),
        (false, true) if matches!(name, "sendtypes" | "recvtypes") => {
            let neighbors = u8::from(function.contains("eighbor"));
            let sends = u8::from(name == "sendtypes");
            // In place, the list for sending is not looked at.
            let length = format!("peers(to_Comm(comm), {neighbors}, {sends})");
            let length = match sends {
                1 => format!("sendbuf == (void *)1 ? 0 : {length}"),
                _ => length,
            };
            (
                format!("const Word *{name}"),
                String::new(),
                format!("to_types({name}, {length})"),
                String::new(),
            )
        }
        _ => return None,
    };
    Some(Parameter { declared, before, passed, after })
}
