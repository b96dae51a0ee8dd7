//! Result structs as they are written in the sources: fields, types, comments and serde attributes. The
//! sources are formatted, so that lines are enough.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

/// Where results are defined.
const FOLDERS: [&str; 7] = [
    "study/src",
    "analysis/src",
    "trace/src",
    "simulate/src",
    "recorder/src/node",
    "src",
    "program/src",
];

#[derive(Clone, Debug)]
pub struct Field {
    pub key: String,
    /// Readable: `integer or null`.
    pub kind: String,
    pub about: String,
    rust: String,
    flattened: bool,
}

#[derive(Clone, Debug)]
pub struct Struct {
    file: String,
    comment: String,
    fields: Vec<Field>,
}

impl Struct {
    pub fn about(&self) -> Option<&str> {
        Some(self.comment.as_str()).filter(|text| !text.is_empty())
    }
}

/// By name; several files may define the same one.
pub struct Structs(BTreeMap<String, Vec<Struct>>);

impl Structs {
    pub fn read(root: &Path) -> Result<Structs> {
        let mut all: BTreeMap<String, Vec<Struct>> = BTreeMap::new();
        let mut folders: Vec<PathBuf> = FOLDERS.iter().map(|folder| root.join(folder)).collect();
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder)? {
                let path = entry?.path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                if path.extension().is_none_or(|extension| extension != "rs") {
                    continue;
                }
                let text = fs::read_to_string(&path)?;
                let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                for (name, found) in parse(&text, &file) {
                    all.entry(name).or_default().push(found);
                }
            }
        }
        Ok(Structs(all))
    }

    /// The struct of this name that a file means: its own, that of the file named after it, or the only
    /// one.
    pub fn find(&self, name: &str, file: &str) -> Result<&Struct> {
        self.look_up(name, file).with_context(|| format!("no struct {name} for {file}"))
    }

    fn look_up(&self, name: &str, file: &str) -> Option<&Struct> {
        let all = self.0.get(name)?;
        let named = format!("{}.rs", name.to_lowercase());
        let own = all.iter().find(|found| found.file == file);
        own.or_else(|| all.iter().find(|found| found.file == named)).or_else(|| all.first())
    }

    /// One row per key, with those of nested structs after it.
    pub fn rows(&self, of: &Struct, prefix: &str, rows: &mut Vec<Field>) {
        self.rows_with(of, prefix, "", rows);
    }

    /// The same for a struct with a type parameter T.
    fn rows_with(&self, of: &Struct, prefix: &str, parameter: &str, rows: &mut Vec<Field>) {
        for field in &of.fields {
            let rust = if field.rust == "T" { parameter } else { &field.rust };
            let Inner { name, parameter, list } = inner_type(rust);
            let nested = self.look_up(name, &of.file).filter(|found| !found.fields.is_empty());
            match nested {
                Some(nested) if field.flattened => self.rows_with(nested, prefix, parameter, rows),
                Some(nested) => {
                    let key = format!("{prefix}{}{}", field.key, if list { "[]" } else { "" });
                    let kind = if list { "list of objects" } else { "object" };
                    let null = if rust.starts_with("Option<") { " or null" } else { "" };
                    let inside = format!("{key}.");
                    rows.push(Field { key, kind: format!("{kind}{null}"), ..field.clone() });
                    self.rows_with(nested, &inside, parameter, rows);
                }
                None => {
                    let key = format!("{prefix}{}", field.key);
                    rows.push(Field { key, kind: kind(rust), ..field.clone() });
                }
            }
        }
    }
}

/// The innermost type, its parameter, and whether it is in a list.
struct Inner<'a> {
    name: &'a str,
    parameter: &'a str,
    list: bool,
}

fn inner_type(rust: &str) -> Inner<'_> {
    let mut inner = rust;
    let mut list = false;
    loop {
        let stripped = ["Option<", "Vec<", "Box<"].iter().find_map(|outer| {
            list |= *outer == "Vec<" && inner.starts_with(outer);
            inner.strip_prefix(outer)?.strip_suffix('>')
        });
        match stripped {
            Some(next) => inner = next,
            None => {
                let (path, parameter) = inner.split_once('<').unwrap_or((inner, ""));
                let name = path.rsplit("::").next().unwrap_or(path);
                return Inner { name, parameter: parameter.trim_end_matches('>'), list };
            }
        }
    }
}

fn parse(text: &str, file: &str) -> Vec<(String, Struct)> {
    let mut found = Vec::new();
    let mut lines = text.lines().peekable();
    let (mut comment, mut serialised) = (String::new(), false);
    while let Some(line) = lines.next() {
        if let Some(said) = line.strip_prefix("/// ") {
            comment = format!("{comment} {said}").trim().to_owned();
        } else if line.starts_with("#[") {
            serialised |= line.contains("derive(") && line.contains("Serialize");
        } else if let Some(name) = struct_name(line).filter(|_| serialised) {
            let mut fields = Vec::new();
            fields_of(&mut lines, &mut fields);
            found.push((
                name,
                Struct { file: file.to_owned(), comment: std::mem::take(&mut comment), fields },
            ));
            serialised = false;
        } else {
            (comment, serialised) = (String::new(), false);
        }
    }
    found
}

fn struct_name(line: &str) -> Option<String> {
    let rest = line.strip_prefix("pub struct ").or(line.strip_prefix("struct "))?;
    let name = rest.strip_suffix(" {")?;
    Some(name.split('<').next().unwrap_or(name).to_owned())
}

fn fields_of<'a>(lines: &mut impl Iterator<Item = &'a str>, fields: &mut Vec<Field>) {
    let (mut about, mut attributes) = (String::new(), String::new());
    for line in lines.take_while(|line| *line != "}") {
        let line = line.trim();
        if let Some(said) = line.strip_prefix("/// ") {
            about = format!("{about} {said}").trim().to_owned();
        } else if line.starts_with("#[") {
            attributes.push_str(line);
        } else if let Some((name, rust)) = line.trim_end_matches(',').split_once(": ") {
            let name = name.trim_start_matches("pub ").trim_start_matches("r#");
            let skipped = attributes.contains("serde(skip)") || name.starts_with("pub(");
            let renamed =
                attributes.split("rename = \"").nth(1).and_then(|rest| rest.split('"').next());
            if !skipped {
                fields.push(Field {
                    key: renamed.unwrap_or(name).to_owned(),
                    kind: kind(rust),
                    about: about.trim_end_matches('.').replace('|', "\\|"),
                    rust: rust.to_owned(),
                    flattened: attributes.contains("flatten"),
                });
            }
            about.clear();
            attributes.clear();
        }
    }
}

/// The JSON type of a Rust type.
fn kind(rust: &str) -> String {
    if let Some(inner) = rust.strip_prefix("Option<").and_then(|rest| rest.strip_suffix('>')) {
        return format!("{} or null", kind(inner).trim_end_matches(" or null"));
    }
    if let Some(inner) = rust.strip_prefix("Vec<").and_then(|rest| rest.strip_suffix('>')) {
        return format!("list of {}", plural(&kind(inner)));
    }
    if rust.starts_with('[') {
        return "pair of numbers".to_owned();
    }
    match rust {
        "bool" => "boolean",
        "f64" | "Time" => "number",
        "u8" | "u16" | "u32" | "u64" | "usize" | "i32" | "i64" | "u128" => "integer",
        rust if rust.starts_with("BTreeMap<") => "map",
        _ => "string",
    }
    .to_owned()
}

fn plural(kind: &str) -> String {
    format!("{}s", kind.trim_end_matches(" or null"))
}
