//! What holds for every page.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

use crate::server::TENANT;
use crate::use_cases::{heading, sign_in};
use crate::{Setting, recorded_pages};

/// Pages that are like another one: parts that cost much leave them out, if not all pages are shown in all ways.
const ALIKE: [&str; 6] =
    ["pending_empty", "preemptions_empty", "finished", "what_if_tenant", "what_if_refused", "not_found"];
/// Widths of a telephone, of a tablet and of a large window, in CSS pixels.
const WIDTHS: [u32; 3] = [390, 768, 1400];
const THEMES: [&str; 2] = ["light", "dark"];

/// A page that the browser shows.
struct Shown {
    /// Name of its pictures.
    name: String,
    /// Path and query below the path prefix.
    path: &'static str,
    /// Whether it is like another page.
    alike: bool,
}

/// A width and a theme.
type Way = (u32, &'static str);

/// Returns the ways in which the page of this number is shown: all, or as a sample each width with the themes in turn, so that each page
/// is shown in both, and each width in both. The first one is the narrowest, in which a page is loaded.
fn ways(setting: &Setting, number: usize) -> Vec<Way> {
    let sample = WIDTHS.into_iter().zip(THEMES.into_iter().cycle().skip(number % THEMES.len()));
    if setting.full {
        WIDTHS.into_iter().flat_map(|width| THEMES.map(|theme| (width, theme))).collect()
    } else {
        sample.collect()
    }
}

/// Shows the loaded page in another way, and waits until it is laid out.
async fn show_again(setting: &Setting, (width, theme): Way) -> Result<()> {
    const LAID_OUT: &str =
        "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))";
    setting.browser.show_as(width, theme).await?;
    setting.browser.evaluate(LAID_OUT).await.map(drop)
}

/// Loads a page in the first of these ways.
async fn load(setting: &Setting, path: &str, ways: &[Way]) -> Result<()> {
    if let Some((width, theme)) = ways.first() {
        setting.browser.show_as(*width, theme).await?;
    }
    setting.browser.open(&format!("{}{path}", setting.server.address)).await
}

/// Returns all pages: the recorded ones, and one about an object that does not exist.
fn all_pages() -> Vec<Shown> {
    let recorded = recorded_pages::PAGES.iter().map(|page| (page.name, page.address));
    let pages = recorded.chain([("not_found", "/clusterqueues/none")]).map(|(name, path)| Shown {
        name: name.replace('_', "-"),
        path,
        alike: ALIKE.contains(&name),
    });
    pages.collect()
}

/// Returns the pages for parts that cost much.
fn main_pages(setting: &Setting) -> Vec<Shown> {
    all_pages().into_iter().filter(|page| setting.full || !page.alike).collect()
}

/// What a page is asked about itself.
const FACTS: &str = "({
  scroll: document.documentElement.scrollWidth, width: window.innerWidth, title: document.title,
  headings: document.querySelectorAll('h1').length,
  foreign: performance.getEntriesByType('resource').map(e => e.name).filter(n => !n.startsWith(location.origin)),
  wide: [...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > window.innerWidth + 1
    && !e.closest('.scroll')).slice(0, 5).map(e => e.outerHTML.slice(0, 120)),
})";

/// Fails if the page is wider than its window. What scrolls by itself may be wider.
async fn fits(setting: &Setting, shown: &str, width: u32) -> Result<Value> {
    let facts = setting.browser.evaluate(FACTS).await?;
    // A page that is too wide makes the window of a telephone wider, too.
    ensure!(facts["width"] == width, "{shown}: wider than the window: {facts}");
    let scroll = facts["scroll"].as_u64().unwrap_or(u64::MAX);
    ensure!(scroll <= u64::from(width), "{shown}: scrolls sideways: {facts}");
    Ok(facts)
}

/// Shows each page at all widths in both themes: nothing is wider than the window, nothing is logged or loaded from elsewhere.
pub(crate) async fn rendering(setting: &Setting) -> Result<()> {
    let browser = &setting.browser;
    browser.messages().await?;
    for (number, Shown { name, path, .. }) in all_pages().into_iter().enumerate() {
        let ways = ways(setting, number);
        load(setting, path, &ways).await?;
        for (width, theme) in ways {
            show_again(setting, (width, theme)).await?;
            let shown = format!("{name} at {width} px, {theme}");
            browser.picture(&setting.folder.join(format!("{name}-{width}-{theme}.png"))).await?;
            let facts = fits(setting, &shown, width).await?;
            let title = facts["title"].as_str().unwrap_or_default();
            ensure!(title.ends_with(" · Sluice"), "{shown}: {facts}");
            ensure!(facts["headings"] == 1, "{shown}: {facts}");
            ensure!(facts["foreign"] == json!([]), "{shown}: {facts}");
        }
        let messages = browser.messages().await?;
        // A browser logs that a page was answered with an error.
        let own: Vec<&String> =
            messages.iter().filter(|text| !(name == "not-found" && text.contains("status of 404"))).collect();
        ensure!(own.is_empty(), "{name}: {own:?}");
    }
    Ok(())
}

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
    for page in &recorded_pages::PAGES {
        for pointer in page.names {
            setting.server.recorded.change(page.name, pointer, json!(name));
        }
    }
    // The value of a page is shared for half a second.
    tokio::time::sleep(Duration::from_secs(1)).await;
    for (number, Shown { name: page, path, .. }) in all_pages().into_iter().enumerate() {
        let ways = ways(setting, number);
        load(setting, path, &ways).await?;
        for (width, theme) in ways {
            show_again(setting, (width, theme)).await?;
            let shown = format!("{page} with names of {word} at {width} px, {theme}");
            // Pictures of long pages cost the most.
            if setting.full || width == WIDTHS[0] {
                browser.picture(&setting.folder.join(format!("{page}-{word}-{width}-{theme}.png"))).await?;
            }
            let facts = fits(setting, &shown, width).await?;
            ensure!(facts["wide"] == json!([]), "{shown}: {facts}");
            if !shows_columns || width < 1_000 {
                continue;
            }
            let hidden = browser.evaluate(HIDDEN_COLUMNS).await?;
            ensure!(hidden == json!([]), "{shown}: hides columns: {hidden}");
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
    browser.show_as(WIDTHS[2], THEMES[0]).await?;
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
    for (number, Shown { name, path, .. }) in all_pages().into_iter().enumerate() {
        accessible_in_all_ways(setting, (&name, path), number).await?;
    }
    Ok(())
}

async fn accessible_in_all_ways(setting: &Setting, (name, path): (&str, &str), number: usize) -> Result<()> {
    let ways = ways(setting, number);
    load(setting, path, &ways).await?;
    for (width, theme) in ways {
        show_again(setting, (width, theme)).await?;
        is_accessible(setting, &format!("{name} at {width} px, {theme}")).await?;
    }
    Ok(())
}

/// Fails unless the page that is shown has a name for each part that needs one, and headings without gaps.
async fn is_accessible(setting: &Setting, name: &str) -> Result<()> {
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
    setting.browser.devtools("Accessibility.enable", json!({})).await?;
    let tree = setting.browser.devtools("Accessibility.getFullAXTree", json!({})).await?;
    let nodes = tree["nodes"].as_array().cloned().unwrap_or_default();
    ensure!(nodes.len() > 20, "{name}: {} nodes", nodes.len());
    let shown: Vec<&Value> = nodes.iter().filter(|node| node["ignored"] != true).collect();
    for node in &shown {
        let role = node["role"]["value"].as_str().unwrap_or_default();
        let label = node["name"]["value"].as_str().unwrap_or_default();
        ensure!(!NAMED.contains(&role) || !label.trim().is_empty(), "{name}: {role} without a name: {node}");
    }
    let mut last = 1;
    for node in shown.iter().filter(|node| node["role"]["value"] == "heading") {
        let properties = node["properties"].as_array().into_iter().flatten();
        let level =
            properties.filter(|one| one["name"] == "level").find_map(|one| one["value"]["value"].as_u64());
        let level = level.unwrap_or_default();
        ensure!(level <= last + 1, "{name}: a heading of level {level} after {last}");
        last = level;
    }
    Ok(())
}

/// Addresses of pages as a user of the namespace nlp-train sees them; the last one is refused.
const OF_TENANT: [&str; 13] = [
    "/namespaces/nlp-train",
    "/pending?ns=nlp-train",
    "/admitted?ns=nlp-train",
    "/workloads/nlp-train/job-llama-ft-7c2-4b1d9",
    "/flavors?ns=nlp-train",
    "/flavors/h100-80g?ns=nlp-train",
    "/mine?ns=nlp-train",
    "/preemptions?ns=nlp-train",
    "/usage?ns=nlp-train",
    "/audit?ns=nlp-train",
    "/what-if?ns=nlp-train&priority=job%2Fllama-ft-7c2%3D300",
    "/what-if?ns=nlp-train&drain=h1",
    "/clusterqueues/nlp",
];

/// The pages of a tenant, the form for its token and the page without a right: none is wider than its window, and all are accessible.
pub(crate) async fn pages_of_tenant(setting: &Setting) -> Result<()> {
    setting.browser.forget().await?;
    // Without a token each address is the form.
    accessible_in_all_ways(setting, ("the form", "/"), 0).await?;
    sign_in(setting, "/namespaces/nlp-train", TENANT).await?;
    for (number, path) in OF_TENANT.into_iter().enumerate() {
        let ways = ways(setting, number);
        load(setting, path, &ways).await?;
        let heading = heading(setting).await?;
        ensure!((heading == "No access") == (Some(&path) == OF_TENANT.last()), "{path}: {heading}");
        for (width, theme) in ways {
            show_again(setting, (width, theme)).await?;
            let shown = format!("{path} of a tenant at {width} px, {theme}");
            fits(setting, &shown, width).await?;
            is_accessible(setting, &shown).await?;
        }
    }
    // The browser logs each answer with an error.
    setting.browser.messages().await.map(drop)
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
    // The order is that of the page, and each press costs a call: a sample has the narrowest and the widest window.
    let widths = WIDTHS.into_iter().filter(|width| setting.full || *width != WIDTHS[1]);
    let pages = widths.flat_map(|width| main_pages(setting).into_iter().map(move |page| (width, page)));
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
