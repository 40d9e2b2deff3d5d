//! The dynamic loader and the shared libraries that a program needs, and the Debian packages that own them.
//!
//! Libraries come from the machine that builds the image; the program was linked against the same ones.

use crate::command;
use anyhow::{Context as _, Result, bail, ensure};
use elf::ElfBytes;
use elf::abi::{DT_NEEDED, EM_AARCH64, EM_X86_64, PT_INTERP};
use elf::endian::AnyEndian;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::CStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// First glibc whose libc.so.6 contains the lookups of `files` and `dns`. With an older one, host names do not resolve
/// without further libraries.
const MIN_GLIBC: (u32, u32) = (2, 34);
const LIBC_PACKAGE: &str = "libc6";

/// A processor architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// x86-64.
    Amd64,
    /// 64-bit ARM.
    Arm64,
}

impl Architecture {
    /// Its name in OCI documents.
    pub const fn oci(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// The Rust target with glibc.
    pub const fn rust_target(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-unknown-linux-gnu",
            Self::Arm64 => "aarch64-unknown-linux-gnu",
        }
    }

    /// Debian's folder for libraries of this architecture.
    const fn library_folder(self) -> &'static str {
        match self {
            Self::Amd64 => "lib/x86_64-linux-gnu",
            Self::Arm64 => "lib/aarch64-linux-gnu",
        }
    }
}

/// A Debian package.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its architecture, as Debian names it.
    pub architecture: String,
}

/// A file copied from the machine into the image.
#[derive(Clone, Debug)]
pub struct Library {
    /// Path in the image, without leading slash.
    pub path: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The package that owns it.
    pub package: Package,
}

/// What a program needs in order to start.
#[derive(Debug)]
pub struct Requirements {
    /// The program's architecture.
    pub architecture: Architecture,
    /// The dynamic loader and the shared libraries, sorted by path.
    pub libraries: Vec<Library>,
}

impl Requirements {
    /// Returns the packages, each once, sorted by name.
    pub fn packages(&self) -> Vec<Package> {
        let mut packages: Vec<Package> =
            self.libraries.iter().map(|library| library.package.clone()).collect();
        packages.sort();
        packages.dedup();
        packages
    }
}

/// Where libraries are found, and which package owns them.
pub trait System {
    /// The root below which libraries are searched.
    fn root(&self) -> &Path;
    /// Returns the package that owns a file, given by its absolute path.
    fn owner(&self, path: &Path) -> Result<Package>;
}

/// This machine, which must be Debian.
pub struct Debian;

impl System for Debian {
    fn root(&self) -> &Path {
        Path::new("/")
    }

    fn owner(&self, path: &Path) -> Result<Package> {
        // Since /lib became a link to /usr/lib, a package lists either of the two paths.
        let merged = Path::new("/usr").join(path.strip_prefix("/").unwrap_or(path));
        let search = |path: &Path| command::output(Command::new("dpkg-query").arg("--search").arg(path));
        let found = search(path).or_else(|_| search(&merged)).with_context(|| {
            format!("no Debian package owns {}; the image is built on Debian", path.display())
        })?;
        let name = found.split(": ").next().unwrap_or_default();
        let format = "--showformat=${Package}\t${Version}\t${Architecture}";
        let shown = command::output(Command::new("dpkg-query").args(["--show", format, name]))?;
        let mut fields = shown.split('\t').map(str::to_owned);
        let (Some(name), Some(version), Some(architecture)) = (fields.next(), fields.next(), fields.next())
        else {
            bail!("dpkg-query printed {shown:?} for {name}");
        };
        Ok(Package { name, version, architecture })
    }
}

/// The dynamic section of a file.
struct Dynamic {
    architecture: Architecture,
    interpreter: Option<String>,
    needed: Vec<String>,
}

fn read_dynamic(bytes: &[u8]) -> Result<Dynamic> {
    let file = ElfBytes::<AnyEndian>::minimal_parse(bytes).context("no ELF file")?;
    let architecture = match file.ehdr.e_machine {
        EM_X86_64 => Architecture::Amd64,
        EM_AARCH64 => Architecture::Arm64,
        other => bail!("processor architecture {other} is not supported: only x86-64 and arm64"),
    };
    let interpreter = file.segments().into_iter().flatten().find(|segment| segment.p_type == PT_INTERP);
    let interpreter = interpreter
        .map(|segment| {
            let path = CStr::from_bytes_until_nul(file.segment_data(&segment)?)?;
            anyhow::Ok(path.to_str()?.to_owned())
        })
        .transpose()
        .context("the path of the dynamic loader cannot be read")?;
    let mut needed = Vec::new();
    if let Some(entries) = file.dynamic()? {
        let names = file.section_header_by_name(".dynstr")?.context("no section .dynstr")?;
        let names = file.section_data_as_strtab(&names)?;
        for entry in entries.iter().filter(|entry| entry.d_tag == DT_NEEDED) {
            needed.push(names.get(usize::try_from(entry.d_val())?)?.to_owned());
        }
    }
    Ok(Dynamic { architecture, interpreter, needed })
}

/// Finds what a program needs: its dynamic loader, and its libraries with theirs.
pub fn requirements(program: &Path, system: &dyn System) -> Result<Requirements> {
    let bytes = fs::read(program).with_context(|| program.display().to_string())?;
    let dynamic = read_dynamic(&bytes).with_context(|| program.display().to_string())?;
    let Some(interpreter) = dynamic.interpreter else {
        bail!("{} is statically linked; the image needs a dynamic glibc", program.display());
    };
    let architecture = dynamic.architecture;
    let loader = interpreter.trim_start_matches('/').to_owned();
    let loader_name = loader.rsplit('/').next().unwrap_or_default().to_owned();
    let mut found = BTreeMap::from([(loader_name, read_library(&loader, system)?)]);
    let mut queue: VecDeque<(String, String)> =
        dynamic.needed.into_iter().map(|name| (name, program.display().to_string())).collect();
    while let Some((name, needed_by)) = queue.pop_front() {
        if found.contains_key(&name) {
            continue;
        }
        let path = find(&name, architecture, system.root())
            .with_context(|| format!("{needed_by} needs {name}, which is not on this machine"))?;
        let library = read_library(&path, system)?;
        let inner = read_dynamic(&library.bytes).with_context(|| path.clone())?;
        ensure!(inner.architecture == architecture, "{path} is for {}", inner.architecture.oci());
        queue.extend(inner.needed.into_iter().map(|needed| (needed, path.clone())));
        found.insert(name, library);
    }
    let mut libraries: Vec<Library> = found.into_values().collect();
    libraries.sort_by(|a, b| a.path.cmp(&b.path));
    check_glibc(&libraries)?;
    Ok(Requirements { architecture, libraries })
}

/// Returns the path of a library below the root, in a folder that the dynamic loader searches without a cache.
fn find(name: &str, architecture: Architecture, root: &Path) -> Option<String> {
    let own = architecture.library_folder();
    let folders = [own.to_owned(), format!("usr/{own}"), "lib".to_owned(), "usr/lib".to_owned()];
    folders.into_iter().map(|folder| format!("{folder}/{name}")).find(|path| root.join(path).is_file())
}

fn read_library(path: &str, system: &dyn System) -> Result<Library> {
    let file: PathBuf = system.root().join(path);
    let bytes = fs::read(&file).with_context(|| format!("cannot read the library {}", file.display()))?;
    let package = system.owner(&Path::new("/").join(path))?;
    Ok(Library { path: path.to_owned(), bytes, package })
}

fn check_glibc(libraries: &[Library]) -> Result<()> {
    let libc = libraries.iter().find(|library| library.package.name == LIBC_PACKAGE);
    let version = &libc.context("no library of the package libc6")?.package.version;
    let mut numbers = version.split(['.', '-', '+']).map_while(|part| part.parse::<u32>().ok());
    let found = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    ensure!(
        found >= MIN_GLIBC,
        "libc6 {version} is too old: host names resolve inside libc.so.6 since {}.{}",
        MIN_GLIBC.0,
        MIN_GLIBC.1
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A root with some of this machine's libraries.
    struct Partial(PathBuf, &'static str);

    impl System for Partial {
        fn root(&self) -> &Path {
            &self.0
        }

        fn owner(&self, _: &Path) -> Result<Package> {
            Ok(Package { name: "libc6".into(), version: self.1.into(), architecture: "amd64".into() })
        }
    }

    fn program() -> PathBuf {
        std::env::current_exe().unwrap()
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("sluice-libraries-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn loader() -> String {
        let bytes = fs::read(program()).unwrap();
        read_dynamic(&bytes).unwrap().interpreter.unwrap()
    }

    #[test]
    fn every_needed_library_is_found_with_its_package() {
        struct AnyOwner;
        impl System for AnyOwner {
            fn root(&self) -> &Path {
                Path::new("/")
            }
            fn owner(&self, _: &Path) -> Result<Package> {
                Ok(Package { name: "libc6".into(), version: "2.36-9".into(), architecture: "amd64".into() })
            }
        }
        let found = requirements(&program(), &AnyOwner).unwrap();
        let paths: Vec<&str> = found.libraries.iter().map(|library| library.path.as_str()).collect();
        assert!(paths.contains(&loader().trim_start_matches('/')), "{paths:?}");
        for name in ["/libc.so.6", "/libgcc_s.so.1"] {
            assert_eq!(paths.iter().filter(|path| path.ends_with(name)).count(), 1, "{paths:?}");
        }
        assert_eq!(found.packages().len(), 1);
    }

    #[test]
    fn missing_library_is_named_with_what_needs_it() {
        let root = folder("missing");
        let target = root.join(loader().trim_start_matches('/'));
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(loader(), &target).unwrap();
        let error = requirements(&program(), &Partial(root.clone(), "2.36-9")).unwrap_err();
        let message = format!("{error:#}");
        assert!(message.contains("which is not on this machine"), "{message}");
        assert!(message.contains(&program().display().to_string()), "{message}");
        fs::remove_file(&target).unwrap();
        let error = requirements(&program(), &Partial(root.clone(), "2.36-9")).unwrap_err();
        assert!(format!("{error:#}").contains("cannot read the library"), "{error:#}");
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn old_glibc_is_refused() {
        let error = requirements(&program(), &Partial("/".into(), "2.31-13+deb11u11")).unwrap_err();
        assert!(error.to_string().contains("libc6 2.31-13+deb11u11 is too old"), "{error:#}");
    }

    #[test]
    fn other_files_are_refused() {
        let error = requirements(Path::new("/proc/self/cmdline"), &Debian).unwrap_err();
        assert!(format!("{error:#}").contains("no ELF file"), "{error:#}");
    }
}
