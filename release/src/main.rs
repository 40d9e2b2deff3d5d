//! `sluice-release image | check | rootfs | sbom | manifests | changelog | release`.
#![expect(clippy::print_stdout, reason = "a program for developers prints its results")]

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use sluice_release::attestation::SigningKey;
use sluice_release::contents::Contents;
use sluice_release::image::{self, Image};
use sluice_release::libraries::{self, Debian};
use sluice_release::release::{self, ReleaseOptions, Signer};
use sluice_release::source::Source;
use sluice_release::{build, manifests, sbom};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Builds what a release of Sluice consists of.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Name of the image, with its registry.
    #[arg(long, global = true, default_value = "sluice")]
    name: String,
    /// Folder for the results.
    #[arg(long, global = true, default_value = "dist")]
    output: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build the program and pack it as an OCI archive, with an SBOM beside it.
    Image {
        /// Pack this program instead of building one.
        #[arg(long)]
        program: Option<PathBuf>,
    },
    /// Build the image twice, in two target folders, and compare the digests.
    Check,
    /// Write the files of the image into a folder, for a container builder that copies it.
    Rootfs {
        /// The program.
        #[arg(long)]
        program: PathBuf,
        /// The folder.
        folder: PathBuf,
    },
    /// Print the SBOM of the image with this program.
    Sbom {
        /// The program.
        #[arg(long)]
        program: PathBuf,
    },
    /// Print the manifests with the image by digest.
    Manifests {
        /// Digest of the image.
        #[arg(long)]
        digest: String,
    },
    /// Print the changelog since the last tag.
    Changelog,
    /// Write image, SBOM, manifests, changelog and checksums, signed if a key is given.
    Release {
        /// The version, which must be that of Cargo.toml.
        #[arg(long)]
        version: String,
        /// PEM file of an ECDSA key on P-256 (PKCS #8), with which the release is signed.
        #[arg(long)]
        key: Option<PathBuf>,
        /// URI of the machine or service that builds, in the signed statement.
        #[arg(long, default_value = "https://sluice.dev/built-by-hand")]
        builder: String,
    },
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sluice-release: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no repository")?;
    if let Command::Rootfs { program, folder } = &arguments.command {
        // In a container builder, which has no git checkout.
        let requirements = libraries::requirements(program, &Debian)?;
        return Contents::collect(program, root, &requirements, &Debian)?.write(folder);
    }
    let source = Source::read(root)?;
    let (name, output) = (arguments.name.as_str(), root.join(&arguments.output));
    let [first, second] = build::targets(root);
    match &arguments.command {
        Command::Image { program } => {
            let image = match program {
                Some(program) => image::pack(program, name, &source, &Debian)?,
                None => release::build_image(&source, &first, name)?,
            };
            let files = release::write_image(&image, &source, &output)?;
            println!("{}\n{}", files.archive.display(), files.sbom.display());
            report(&image, name, &source);
        }
        Command::Check => {
            let image = release::check_image(&source, [&first, &second], name)?;
            println!("two builds are equal");
            report(&image, name, &source);
        }
        Command::Rootfs { .. } => {}
        Command::Sbom { program } => {
            print!("{}", sbom::write(&image::pack(program, name, &source, &Debian)?, &source)?);
        }
        Command::Manifests { digest } => print!("{}", manifests::install(root, name, digest)?),
        Command::Changelog => print!("{}", release::write_changelog(&source)?),
        Command::Release { version, key, builder } => {
            // An unusable key is found before the build.
            let key = key.as_deref().map(SigningKey::read).transpose()?;
            let signer = key.map(|key| Signer { key, builder: builder.clone() });
            let options = ReleaseOptions { version, name, signer: signer.as_ref() };
            let image = release::write_release(&options, &source, &first, &output)?;
            println!("{}", output.display());
            report(&image, name, &source);
        }
    }
    Ok(())
}

fn report(image: &Image, name: &str, source: &Source) {
    println!("{name}@{}", image.digest);
    println!("{} KiB, linux/{}", image.archive.len() >> 10, image.architecture.oci());
    for package in &image.packages {
        println!("{} {}", package.name, package.version);
    }
    if !source.changed.is_empty() {
        println!(
            "not reproducible: there are changes that are not committed:\n{}",
            source.changed.join("\n")
        );
    }
}
