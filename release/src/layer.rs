//! Tar files with the same bytes for the same entries: sorted, owned by root, one time for all, no time in the gzip header.

use crate::contents::{Content, Entry};
use crate::digest;
use anyhow::{Context as _, Result, ensure};
use flate2::{Compression, GzBuilder};
use std::collections::BTreeMap;
use std::io::Write as _;
use tar::{Builder, EntryType, Header};

/// A layer of an image.
#[derive(Debug)]
pub struct Layer {
    /// The compressed tar file.
    pub bytes: Vec<u8>,
    /// Digest of the tar file before compression.
    pub diff_id: String,
}

/// Packs entries as a layer. `time` is the modification time of each, in seconds since 1970.
pub fn pack(entries: &[Entry], time: u64) -> Result<Layer> {
    let plain = pack_plain(entries, time)?;
    let mut encoder = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    encoder.write_all(&plain)?;
    Ok(Layer { bytes: encoder.finish()?, diff_id: digest::oci(&plain) })
}

/// Packs entries as a tar file, with the folders that lead to them.
pub fn pack_plain(entries: &[Entry], time: u64) -> Result<Vec<u8>> {
    let mut sorted: BTreeMap<&str, Entry> = BTreeMap::new();
    for entry in entries {
        for (end, _) in entry.path.match_indices('/') {
            let parent = entry.path.get(..end).unwrap_or_default();
            sorted.entry(parent).or_insert_with(|| Entry::folder(parent));
        }
    }
    for entry in entries {
        let old = sorted.insert(&entry.path, entry.clone());
        ensure!(old.is_none_or(|old| old.content == Content::Folder), "{} is packed twice", entry.path);
    }
    let mut builder = Builder::new(Vec::new());
    for entry in sorted.values() {
        append(&mut builder, entry, time).with_context(|| entry.path.clone())?;
    }
    Ok(builder.into_inner()?)
}

fn append(builder: &mut Builder<Vec<u8>>, entry: &Entry, time: u64) -> Result<()> {
    let mut header = Header::new_ustar();
    header.set_mode(entry.mode);
    header.set_mtime(time);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(0);
    match &entry.content {
        Content::Folder => {
            header.set_entry_type(EntryType::Directory);
            builder.append_data(&mut header, format!("{}/", entry.path), std::io::empty())?;
        }
        Content::Link(target) => {
            header.set_entry_type(EntryType::Symlink);
            builder.append_link(&mut header, &entry.path, target)?;
        }
        Content::File(bytes) => {
            header.set_entry_type(EntryType::Regular);
            header.set_size(u64::try_from(bytes.len())?);
            builder.append_data(&mut header, &entry.path, bytes.as_slice())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries() -> Vec<Entry> {
        vec![
            Entry::file("a/b/two", 0o644, b"two".to_vec()),
            Entry::file("a/one", 0o755, b"one".to_vec()),
            Entry { path: "link".into(), mode: 0o777, content: Content::Link("a/one".into()) },
        ]
    }

    #[test]
    fn order_of_entries_does_not_matter() {
        let first = pack(&entries(), 7).unwrap();
        let mut reversed = entries();
        reversed.reverse();
        let second = pack(&reversed, 7).unwrap();
        assert_eq!(first.bytes, second.bytes);
        assert_eq!(first.diff_id, second.diff_id);
        assert_ne!(first.diff_id, pack(&entries(), 8).unwrap().diff_id, "the time is part of the layer");
    }

    #[test]
    fn headers_are_fixed() {
        let plain = pack_plain(&entries(), 7).unwrap();
        let mut archive = tar::Archive::new(plain.as_slice());
        let mut paths = Vec::new();
        for entry in archive.entries().unwrap() {
            let entry = entry.unwrap();
            let header = entry.header();
            assert_eq!((header.uid().unwrap(), header.gid().unwrap(), header.mtime().unwrap()), (0, 0, 7));
            paths.push(entry.path().unwrap().display().to_string());
        }
        assert_eq!(paths, ["a/", "a/b/", "a/b/two", "a/one", "link"]);
    }

    #[test]
    fn path_packed_twice_is_refused() {
        let twice = [Entry::file("a", 0o644, vec![]), Entry::file("a", 0o644, vec![1])];
        let error = pack(&twice, 0).unwrap_err();
        assert_eq!(error.to_string(), "a is packed twice");
    }
}
