//! What holds for every page.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

use crate::{Setting, recorded_pages};

/// Recorded pages that are shown in one way only, if not all are shown in all ways.
const ONCE: [&str; 3] = ["pending_empty", "preemptions_empty", "finished"];
const WIDTHS: [u32; 2] = [1280, 390];
const THEMES: [&str; 2] = ["light", "dark"];

/// A page that the browser shows.
struct Shown {
    /// Name of its pictures.
    name: String,
    /// Path and query below the path prefix.
    path: &'static str,
    /// Whether it is shown in one way only, if not all pages are shown in all ways.
    once: bool,
}

/// Returns all pages: the recorded ones, and one about an object that does not exist.
fn all_pages() -> Vec<Shown> {
    let recorded = recorded_pages::PAGES.iter().map(|page| Shown {
        name: page.name.replace('_', "-"),
        path: page.address,
        once: ONCE.contains(&page.name),
    });
    let missing = Shown { name: "not-found".to_owned(), path: "/clusterqueues/none", once: true };
    recorded.chain([missing]).collect()
}

/// Returns the pages that are shown in all ways.
fn main_pages() -> impl Iterator<Item = Shown> {
    all_pages().into_iter().filter(|page| !page.once)
}

/// What a page is asked about itself.
const FACTS: &str = "({
  scroll: document.documentElement.scrollWidth, width: window.innerWidth, title: document.title,
  headings: document.querySelectorAll('h1').length,
  foreign: performance.getEntriesByType('resource').map(e => e.name).filter(n => !n.startsWith(location.origin)),
  wide: [...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > window.innerWidth + 1
    && !e.closest('.scroll')).slice(0, 5).map(e => e.outerHTML.slice(0, 120)),
})";

/// Shows each page at both widths in both themes: nothing is wider than the window, nothing is logged or loaded from elsewhere.
pub(crate) async fn rendering(setting: &Setting) -> Result<()> {
    let browser = &setting.browser;
    browser.messages().await?;
    for Shown { name, path, once } in all_pages() {
        for width in WIDTHS {
            for theme in THEMES {
                if once && !setting.full && (width, theme) != (WIDTHS[0], THEMES[0]) {
                    continue;
                }
                browser.show_as(width, theme).await?;
                browser.open(&format!("{}{path}", setting.server.address)).await?;
                let shown = format!("{name} at {width} px, {theme}");
                let facts = browser.evaluate(FACTS).await?;
                let number = |field: &str| facts[field].as_u64().unwrap_or_default();
                // A page that is too wide makes the window of a telephone wider, too.
                ensure!(number("width") == u64::from(width), "{shown}: wider than the window: {facts}");
                browser.picture(&setting.folder.join(format!("{name}-{width}-{theme}.png"))).await?;
                ensure!(number("scroll") <= number("width"), "{shown}: scrolls sideways: {facts}");
                ensure!(
                    facts["title"].as_str().is_some_and(|title| title.ends_with(" · Sluice")),
                    "{shown}: {facts}"
                );
                ensure!(facts["headings"] == 1, "{shown}: {facts}");
                ensure!(facts["foreign"] == json!([]), "{shown}: {facts}");
                let messages = browser.messages().await?;
                // A browser logs that a page was answered with an error.
                let own: Vec<&String> = messages
                    .iter()
                    .filter(|text| !(name == "not-found" && text.contains("status of 404")))
                    .collect();
                ensure!(own.is_empty(), "{shown}: {own:?}");
            }
        }
    }
    Ok(())
}

/// Texts that are replaced by a long name: name of the page and pointers.
const NAMES: [(&str, &[&str]); 8] = [
    ("overview", &["/clusterQueues/0/metadata/name", "/cohorts/0/metadata/name", "/findings/0/message"]),
    (
        "cluster_queue",
        &[
            "/clusterQueue/metadata/name",
            "/clusterQueue/cohort",
            "/path/0/name",
            "/next/0/metadata/name",
            "/localQueues/0/metadata/namespace",
            "/localQueues/0/metadata/name",
            "/largest/0/metadata/name",
        ],
    ),
    (
        "workload",
        &[
            "/metadata/name",
            "/message",
            "/job/name",
            "/clusterQueue",
            "/blockers/0/node",
            "/options/0/detail",
            "/ahead/first/0/name",
            "/checks/0/name",
            "/checks/0/message",
            "/history/0/text",
        ],
    ),
    ("workload_running", &["/job/name", "/localQueue", "/admission/podSets/0/name"]),
    ("pending", &["/items/0/metadata/name", "/items/1/clusterQueue", "/items/2/message", "/items/3/reason"]),
    (
        "preemptions",
        &["/items/0/victim/name", "/items/0/preemptor/namespace", "/matrix/0/victimClusterQueue"],
    ),
    ("usage", &["/items/0/group", "/items/1/resource"]),
    ("namespace", &["/localQueues/0/clusterQueue", "/workloads/0/metadata/name"]),
];

/// Tables of which a part is outside of the window.
const HIDDEN_COLUMNS: &str =
    "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth + 1)
    .map(e => e.outerHTML.slice(0, 120))";

/// Names of 253 characters, as objects may have, make no page wider than its window. Names that break at hyphens also hide no column
/// of a wide window; the others have no place to break.
pub(crate) async fn long_names(setting: &Setting) -> Result<()> {
    show_with_names(setting, "a-very-long-name-", true).await?;
    show_with_names(setting, "averylongname", false).await
}

/// Shows each page with names of 253 characters that repeat a word.
async fn show_with_names(setting: &Setting, word: &str, shows_columns: bool) -> Result<()> {
    let browser = &setting.browser;
    let name = word.repeat(20);
    let name = name.get(..253).context("a shorter name")?;
    for (file, pointers) in NAMES {
        for pointer in pointers {
            setting.server.recorded.change(file, pointer, json!(name));
        }
    }
    // The value of a page is shared for half a second.
    tokio::time::sleep(Duration::from_secs(1)).await;
    for Shown { name: page, path, .. } in main_pages() {
        for width in WIDTHS {
            browser.show_as(width, THEMES[0]).await?;
            browser.open(&format!("{}{path}", setting.server.address)).await?;
            browser.picture(&setting.folder.join(format!("{page}-{word}-{width}.png"))).await?;
            let facts = browser.evaluate(FACTS).await?;
            let is_wide = facts["width"] != width || facts["scroll"].as_u64() > Some(u64::from(width));
            let is_inside = !is_wide && facts["wide"] == json!([]);
            ensure!(is_inside, "{page} with names of {word} at {width} px: {facts}");
            if !shows_columns || width < 1_000 {
                continue;
            }
            let hidden = browser.evaluate(HIDDEN_COLUMNS).await?;
            ensure!(hidden == json!([]), "{page} with long names hides columns: {hidden}");
        }
    }
    browser.messages().await.map(drop)
}

/// Most bytes of a picture of the documentation.
const MAX_PICTURE: u64 = 200_000;

/// Pictures of the documentation, written if `SLUICE_WRITE` is set: each is there and not too large.
pub(crate) async fn pictures(setting: &Setting) -> Result<()> {
    const HEIGHTS: [(&str, u32); 8] = [
        ("overview", 785),
        ("workload", 1_000),
        ("pending", 760),
        ("cluster-queue", 900),
        ("flavor", 940),
        ("namespace", 700),
        ("mine", 900),
        ("what-if", 900),
    ];
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/pictures");
    let write = std::env::var_os("SLUICE_WRITE").is_some();
    for (name, height) in HEIGHTS {
        let file = folder.join(format!("dashboard-{name}.png"));
        let page = all_pages().into_iter().find(|page| page.name == name).context("no such page")?;
        if write {
            setting.browser.show_as(1_120, THEMES[0]).await?;
            setting.browser.open(&format!("{}{}", setting.server.address, page.path)).await?;
            setting.browser.picture_of_top(&file, (1_120, height)).await?;
        }
        let size = std::fs::metadata(&file).with_context(|| file.display().to_string())?.len();
        ensure!(size <= MAX_PICTURE, "{}: {size} bytes, at most {MAX_PICTURE}", file.display());
    }
    Ok(())
}

/// The text of a page without its clock times and durations.
async fn text(setting: &Setting) -> Result<String> {
    let script = "(() => { const main = document.querySelector('main').cloneNode(true);
        main.querySelectorAll('time, [role=status]').forEach(e => e.remove());
        return main.textContent.replace(/\\s+/g, ' ').trim(); })()";
    Ok(setting.browser.evaluate(script).await?.as_str().unwrap_or_default().to_owned())
}

/// Each page shows the same after a reload and with scripts off.
pub(crate) async fn reload_and_no_scripts(setting: &Setting) -> Result<()> {
    let browser = &setting.browser;
    browser.show_as(WIDTHS[0], THEMES[0]).await?;
    for Shown { name, path, .. } in all_pages() {
        let address = format!("{}{path}", setting.server.address);
        browser.open(&address).await?;
        let first = text(setting).await?;
        ensure!(first.len() > 50, "{name}: {first}");
        browser.reload().await?;
        let again = text(setting).await?;
        ensure!(first == again, "{name} after a reload: {first}\n{again}");
        browser.devtools("Emulation.setScriptExecutionDisabled", json!({"value": true})).await?;
        browser.open(&address).await?;
        let without = text(setting).await;
        browser.devtools("Emulation.setScriptExecutionDisabled", json!({"value": false})).await?;
        let without = without?;
        ensure!(first == without, "{name} without scripts: {first}\n{without}");
        let links = browser
            .evaluate("[...document.links].map(a => a.href).filter(h => !h.startsWith(location.origin))");
        ensure!(links.await? == json!([]), "{name} has links to other places");
    }
    browser.messages().await.map(drop)
}

/// Every table, image and control of the accessibility tree has a name, and headings do not skip a level.
pub(crate) async fn accessibility(setting: &Setting) -> Result<()> {
    const NAMED: [&str; 10] = [
        "button",
        "link",
        "textbox",
        "combobox",
        "searchbox",
        "table",
        "image",
        "img",
        "navigation",
        "region",
    ];
    for width in WIDTHS {
        setting.browser.show_as(width, THEMES[0]).await?;
        for Shown { name, path, .. } in all_pages() {
            setting.browser.open(&format!("{}{path}", setting.server.address)).await?;
            setting.browser.devtools("Accessibility.enable", json!({})).await?;
            let tree = setting.browser.devtools("Accessibility.getFullAXTree", json!({})).await?;
            let nodes = tree["nodes"].as_array().cloned().unwrap_or_default();
            ensure!(nodes.len() > 20, "{name}: {} nodes", nodes.len());
            let shown: Vec<&Value> = nodes.iter().filter(|node| node["ignored"] != true).collect();
            for node in &shown {
                let role = node["role"]["value"].as_str().unwrap_or_default();
                let label = node["name"]["value"].as_str().unwrap_or_default();
                ensure!(
                    !NAMED.contains(&role) || !label.trim().is_empty(),
                    "{name}: {role} without a name: {node}"
                );
            }
            let mut last = 1;
            for node in shown.iter().filter(|node| node["role"]["value"] == "heading") {
                let properties = node["properties"].as_array().into_iter().flatten();
                let level = properties
                    .filter(|one| one["name"] == "level")
                    .find_map(|one| one["value"]["value"].as_u64());
                let level = level.unwrap_or_default();
                ensure!(level <= last + 1, "{name}: a heading of level {level} after {last}");
                last = level;
            }
        }
    }
    Ok(())
}

/// What has the focus, and whether that can be seen.
const FOCUSED: &str = "(() => { const e = document.activeElement; const s = getComputedStyle(e);
    const seen = s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2;
    return {body: e === document.body, seen, what: e.outerHTML.slice(0, 90), index: [...document.querySelectorAll('*')].indexOf(e)}; })()";
/// How many elements take the focus.
const FOCUSABLE: &str =
    "[...document.querySelectorAll('a[href], button, input:not([type=hidden]), select, [tabindex]')]
    .filter(e => e.checkVisibility()).length";

/// The Tab key reaches every control of a page in the order of the page, each visibly, and leaves the page again.
pub(crate) async fn keyboard(setting: &Setting) -> Result<()> {
    let browser = &setting.browser;
    let pages = WIDTHS.into_iter().flat_map(|width| main_pages().map(move |page| (width, page)));
    for (width, Shown { name, path, .. }) in pages {
        browser.show_as(width, THEMES[0]).await?;
        browser.open(&format!("{}{path}", setting.server.address)).await?;
        let count = browser.evaluate(FOCUSABLE).await?.as_u64().unwrap_or_default();
        ensure!(count > 5, "{name}: {count} controls");
        let mut last = -1;
        for number in 0..count {
            browser.press("\u{e004}").await?;
            let focused = browser.evaluate(FOCUSED).await?;
            ensure!(focused["body"] == false, "{name}: the focus leaves after {number} of {count} controls");
            ensure!(focused["seen"] == true, "{name}: the focus is not visible: {focused}");
            let index = focused["index"].as_i64().unwrap_or_default();
            ensure!(index > last, "{name}: the focus goes back: {focused}");
            last = index;
        }
    }
    Ok(())
}
