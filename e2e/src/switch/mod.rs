//! The switch from Kueue in place, and back: `make switch`. Each recorded store is a cluster as a version of Kueue left it when it was
//! killed in the middle of work. A control plane starts on it, Sluice is installed over Kueue as a user would, works for a
//! minute, and what has changed is compared with what the recording permits.
//!
//! Invariants: a run works on copies; each deviation is printed with the object, the rule, and what was before and after; a run with a
//! deviation fails.

mod fields;
mod judge;
mod migration;
pub(crate) mod quota;
mod revisions;
mod rules;
mod store;
mod takeover;
mod way_back;

pub(crate) use rules::differences;

use anyhow::{Context as _, Result, bail, ensure};
use std::time::Instant;
use store::Store;
use takeover::Takeover;

/// Direction of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Way {
    /// From Kueue to Sluice.
    To,
    /// From Kueue to Sluice, and back to Kueue's own manager of that version.
    Back,
}

/// Switches one recorded cluster, or all of them.
pub async fn run(name: Option<&str>, way: Way) -> Result<()> {
    let Some(recordings) = store::recordings() else {
        println!("switch: skipped, this machine has no recorded clusters");
        return Ok(());
    };
    let names = name.map_or_else(|| store::names(&recordings), |name| Ok(vec![name.to_owned()]))?;
    ensure!(!names.is_empty(), "{} has no stores", recordings.display());
    let mut failed = Vec::new();
    for name in names {
        let begun = Instant::now();
        let store = Store::unpack(&recordings, &name)?;
        if way == Way::Back && !way_back::is_supported(&store)? {
            println!("{name}: skipped, e2e/controlplane/kueue is another version");
            continue;
        }
        let deviations = switch(&store, way).await.with_context(|| name.clone())?;
        for deviation in &deviations {
            println!("{name}: {deviation}");
        }
        println!("{name}: {} deviations, {:.0} s", deviations.len(), begun.elapsed().as_secs_f64());
        failed.extend((!deviations.is_empty()).then_some(name));
    }
    if failed.is_empty() { Ok(()) } else { bail!("deviations in {}", failed.join(", ")) }
}

/// Returns the deviations from what the recording permits.
async fn switch(store: &Store, way: Way) -> Result<Vec<String>> {
    let mut takeover = Takeover::start(store).await?;
    let outcome = match way {
        Way::To => takeover.and_end_jobs().await,
        Way::Back => takeover.and_back().await,
    };
    if !outcome.as_ref().is_ok_and(Vec::is_empty) {
        takeover.keep_files();
    }
    outcome
}
