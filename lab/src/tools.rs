//! What building for BPF needs beyond a plain toolchain: bpf-linker, rust-src and objcopy. Missing
//! tools are installed once per machine, not once per clone.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::{exec, workspace::Workspace};

/// Later versions require a system LLVM; this one uses the toolchain's.
const LINKER_VERSION: &str = "0.10.3";
const LINKER: &str = "bpf-linker";

/// The properties of the compiler in use that matter here.
pub struct Toolchain {
    pub sysroot: PathBuf,
    host: String,
    release: String,
}

impl Toolchain {
    pub fn find(root: &Path) -> Result<Toolchain> {
        let rustc = || exec::command(std::env::var_os("RUSTC").unwrap_or("rustc".into()), root);
        let sysroot = exec::output(rustc().args(["--print", "sysroot"]))?;
        let version = exec::output(rustc().arg("-vV"))?;
        let said = |key: &str| {
            let line = version.lines().find_map(|line| line.strip_prefix(key));
            line.map(|value| value.trim().to_owned())
                .with_context(|| format!("rustc -vV prints no `{key}`"))
        };
        Ok(Toolchain {
            sysroot: PathBuf::from(sysroot.trim()),
            host: said("host:")?,
            release: said("release:")?,
        })
    }

    pub fn has_target(&self, target: &str) -> bool {
        self.sysroot.join("lib/rustlib").join(target).join("lib").is_dir()
    }

    /// Sources of `core`, which has to be built for the BPF target.
    pub fn sources(&self) -> PathBuf {
        self.sysroot.join("lib/rustlib/src/rust")
    }

    pub fn libraries(&self) -> PathBuf {
        self.sysroot.join("lib")
    }

    /// LLVM's objcopy, which ships with rustc.
    pub fn objcopy(&self) -> Result<PathBuf> {
        let path = self.sysroot.join("lib/rustlib").join(&self.host).join("bin/rust-objcopy");
        if !path.is_file() {
            bail!(
                "this toolchain has no rust-objcopy ({} is missing); use a toolchain installed by \
                 rustup",
                path.display()
            );
        }
        Ok(path)
    }

    pub fn need_sources(&self, root: &Path) -> Result<()> {
        let proof = self.sources().join("library/core/Cargo.toml");
        if !proof.is_file() {
            println!("rust-src is missing; installing it");
            let mut rustup = exec::command("rustup", root);
            exec::run(rustup.args(["component", "add", "rust-src"])).context(
                "building for BPF requires the sources of `core`; install them with `rustup \
                 component add rust-src` in this directory, or from your distribution",
            )?;
        }
        if !proof.is_file() {
            bail!(
                "rust-src was installed, but not for the compiler in use ({}); check \
                 RUSTUP_TOOLCHAIN and RUSTC",
                self.release
            );
        }
        Ok(())
    }
}

/// Flags that keep this machine's paths out of the output, so that all machines build the same bytes.
///
/// Of several matching prefixes the last one wins, so the workspace comes first: everything else may
/// be inside it. The remapped paths must not exist, because LLVM copies the text of source lines that
/// it finds into the BTF.
pub fn remap(workspace: &Workspace, toolchain: &Toolchain) -> Result<Vec<String>> {
    let mut flags = Vec::new();
    let mut remap = |from: &Path, to: &str| {
        flags.push(format!("--remap-path-prefix={}=/_detour/{to}", from.display()));
        // The compiler resolves symlinks in some paths but not in others.
        if let Ok(real) = from.canonicalize()
            && real != from
        {
            flags.push(format!("--remap-path-prefix={}=/_detour/{to}", real.display()));
        }
    };
    remap(&workspace.root, "workspace");
    remap(&workspace.target, "target");
    for registry in workspace.registries()? {
        remap(&registry, "registry");
    }
    remap(&toolchain.sysroot, "toolchain");
    Ok(flags)
}

/// The directory of the required bpf-linker. The checkout's `.tools` comes first, then the user's
/// cache, where it is installed if it is in neither.
pub fn linker(workspace: &Workspace, toolchain: &Toolchain) -> Result<PathBuf> {
    let own = workspace.root.join(".tools");
    if is_right(&own, &workspace.root) {
        return Ok(own.join("bin"));
    }
    // It loads the LLVM of the compiler it was built with, so each compiler needs its own.
    let shared = cache()
        .map(|cache| cache.join(format!("{LINKER}-{LINKER_VERSION}-rust-{}", toolchain.release)));
    let place = shared.unwrap_or(own);
    if !is_right(&place, &workspace.root) {
        install(&place, workspace)?;
    }
    Ok(place.join("bin"))
}

fn is_right(place: &Path, root: &Path) -> bool {
    let program = place.join("bin").join(LINKER);
    // One that does not start counts as missing.
    program.is_file()
        && exec::output(exec::command(&program, root).arg("--version"))
            .is_ok_and(|version| version.split_whitespace().nth(1) == Some(LINKER_VERSION))
}

fn install(place: &Path, workspace: &Workspace) -> Result<()> {
    println!("{LINKER} {LINKER_VERSION} is missing; building it (a few minutes, once)");
    let mut cargo = exec::cargo(&workspace.root);
    // Flags and directories for this workspace must not apply to a tool.
    exec::forget(&mut cargo, |name| {
        name.ends_with("RUSTFLAGS") || name == "CARGO_TARGET_DIR" || name == "RUSTC_BOOTSTRAP"
    });
    // Debug information is not needed, and the build is faster without.
    cargo.env("CARGO_PROFILE_RELEASE_DEBUG", "false");
    cargo.args(["install", LINKER, "--version", LINKER_VERSION, "--locked", "--force", "--root"]);
    exec::run(cargo.arg(place)).with_context(|| {
        format!(
            "cannot install {LINKER} {LINKER_VERSION}, which links the BPF object: it needs a \
             toolchain from rustup, a C compiler and access to the registry; one built elsewhere \
             with the same toolchain can be put at .tools/bin/{LINKER}"
        )
    })?;
    if !is_right(place, &workspace.root) {
        bail!("{LINKER} was installed but is not version {LINKER_VERSION}");
    }
    Ok(())
}

/// The cache for tools shared by all clones on this machine. None if the user has no home.
fn cache() -> Option<PathBuf> {
    let absolute = |name: &str| {
        std::env::var_os(name).map(PathBuf::from).filter(|directory| directory.is_absolute())
    };
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(cache.join("detour/tools"))
}
