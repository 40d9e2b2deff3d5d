//! What a release of Sluice consists of: the image as an OCI archive, its SBOM, the archive of the command line, one
//! manifest with the image by digest, the changelog, checksums, and signed statements about them.
//!
//! Invariant: the same commit, compiler and Debian packages give the same bytes, but for signatures. Nothing written here depends on the
//! clock, on the order of files in folders, or on the folder in which it runs.
#![allow(clippy::disallowed_methods, reason = "a program for developers reads its environment")]

pub mod archive;
pub mod attestation;
pub mod build;
pub mod changelog;
pub mod command;
pub mod contents;
pub mod crates;
pub mod digest;
pub mod image;
pub mod layer;
pub mod libraries;
pub mod licenses;
pub mod manifests;
pub mod release;
pub mod sbom;
pub mod source;
pub mod unpack;
