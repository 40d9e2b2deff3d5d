//! Pages of the dashboard in a real browser: `make dashboard-test`. Pictures of all pages are in `target/dashboard`.
//!
//! `cargo test --test dashboard -- WORD...` runs the parts whose names contain a word. A page is loaded once in a part, and then shown at
//! each width, with the themes in turn; with `SLUICE_FULL=1` at each width in both, and all of it again below a path prefix.
#![expect(clippy::disallowed_methods, reason = "tests wait and run programs")]
#![expect(
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "indexing JSON by a missing key returns null, and this harness prints"
)]

mod pages;
#[path = "../../../tests/dashboard/recorded_pages.rs"]
mod recorded_pages;
mod server;
mod use_cases;

use anyhow::{Context as _, Result};
use futures::future::FutureExt as _;
use server::Server;
use sluice_e2e::browser::{Browser, Programs};
use sluice_e2e::process::ProcessGuard;
use sluice_e2e::signals;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

#[tokio::main]
async fn main() -> ExitCode {
    if std::env::args().any(|word| word == "--list") {
        println!("dashboard: test");
        return ExitCode::SUCCESS;
    }
    match signals::interruptible(run().boxed_local()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// What a part of the test needs.
pub(crate) struct Setting {
    pub(crate) browser: Browser,
    pub(crate) server: Server,
    /// Where pictures go.
    pub(crate) folder: PathBuf,
    /// Whether all pages are shown in all ways.
    pub(crate) full: bool,
}

async fn run() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let programs = match Programs::find_or_install() {
        Ok(programs) => programs,
        // In CI nothing may be skipped in silence.
        Err(error) if std::env::var_os("CI").is_some() => return Err(error),
        Err(error) => {
            println!("skipped: {error:#}");
            return Ok(());
        }
    };
    let full = std::env::var_os("SLUICE_FULL").is_some();
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target/dashboard");
    std::fs::create_dir_all(&folder)?;
    let guard = ProcessGuard::start()?;
    let prefixes: &[&str] = if full { &["/", "/a/b"] } else { &["/"] };
    for prefix in prefixes {
        let setting = Setting {
            browser: Browser::start(&programs, &folder, &guard).await?,
            server: Server::start(prefix).await?,
            folder: folder.clone(),
            full,
        };
        for (name, part) in PARTS {
            if words.is_empty() || words.iter().any(|word| name.contains(word.as_str())) {
                let begun = Instant::now();
                part(&setting).await.with_context(|| format!("{name} below {prefix}"))?;
                println!("{name} below {prefix}: {:.1} s", begun.elapsed().as_secs_f64());
            }
        }
        setting.browser.quit().await?;
    }
    Ok(())
}

type Part = for<'a> fn(&'a Setting) -> futures::future::LocalBoxFuture<'a, Result<()>>;

/// The parts, in this order: later ones use what earlier ones leave.
const PARTS: [(&str, Part); 13] = [
    ("signing_in", |setting| use_cases::signing_in(setting).boxed_local()),
    ("rendering", |setting| pages::rendering(setting).boxed_local()),
    ("reload_and_no_scripts", |setting| pages::reload_and_no_scripts(setting).boxed_local()),
    ("accessibility", |setting| pages::accessibility(setting).boxed_local()),
    ("keyboard", |setting| pages::keyboard(setting).boxed_local()),
    ("updates", |setting| use_cases::updates(setting).boxed_local()),
    ("old_data", |setting| use_cases::old_data(setting).boxed_local()),
    ("pictures", |setting| pages::pictures(setting).boxed_local()),
    ("long_names", |setting| pages::long_names(setting).boxed_local()),
    ("long_users", |setting| use_cases::long_users(setting).boxed_local()),
    ("tenant", |setting| use_cases::tenant(setting).boxed_local()),
    ("pages_of_tenant", |setting| pages::pages_of_tenant(setting).boxed_local()),
    ("lost_server", |setting| use_cases::lost_server(setting).boxed_local()),
];
