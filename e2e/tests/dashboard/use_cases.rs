//! What users do: sign in, look while things change, look at data that is old, look without the right to.

use anyhow::{Result, ensure};
use serde_json::json;
use sluice::dashboard::Freshness;
use sluice_e2e::wait::within;
use std::time::Duration;

use crate::Setting;
use crate::server::{ADMIN, LONG, Server, TENANT};

/// Signs in with a token.
pub(crate) async fn sign_in(setting: &Setting, path: &str, token: &str) -> Result<()> {
    setting.browser.open(&format!("{}{path}", setting.server.address)).await?;
    setting.browser.type_into("#t", token).await?;
    setting.browser.click(".primary").await
}

/// Returns the heading of the page that is shown.
pub(crate) async fn heading(setting: &Setting) -> Result<String> {
    let text = setting.browser.evaluate("document.querySelector('h1').textContent.trim()").await?;
    Ok(text.as_str().unwrap_or_default().to_owned())
}

/// The form refuses a token that is not valid, takes one that is, and goes on to the page that was asked for.
pub(crate) async fn signing_in(setting: &Setting) -> Result<()> {
    let browser = &setting.browser;
    browser.show_as(1280, "light").await?;
    browser.open(&format!("{}/pending", setting.server.address)).await?;
    ensure!(heading(setting).await? == "Sign in", "no page without a token");
    browser.picture(&setting.folder.join("login-1280-light.png")).await?;
    browser.show_as(390, "dark").await?;
    browser.picture(&setting.folder.join("login-390-dark.png")).await?;
    sign_in(setting, "/pending", "a-token-that-is-not-valid").await?;
    let alert = browser.evaluate("document.querySelector('[role=alert]').textContent").await?;
    ensure!(
        alert.as_str().is_some_and(|text| text.contains("not valid for the audience sluice-dashboard")),
        "{alert}"
    );
    sign_in(setting, "/pending", &"x".repeat(7_300)).await?;
    let alert = browser.evaluate("document.querySelector('[role=alert]').textContent").await?;
    ensure!(alert.as_str().is_some_and(|text| text.contains("at most 7 kB")), "{alert}");
    sign_in(setting, "/pending", ADMIN).await?;
    let address = browser.address().await?;
    ensure!(address == format!("{}/pending", setting.server.address), "{address}");
    ensure!(heading(setting).await? == "Pending workloads", "the page that was asked for");
    let cookies = browser.evaluate("document.cookie").await?;
    ensure!(cookies == "", "scripts see cookies: {cookies}");
    // The browser logs each answer with an error.
    browser.messages().await.map(drop)
}

/// A change is shown within seconds, without a reload; the field with the focus, its text and the scroll position stay.
pub(crate) async fn updates(setting: &Setting) -> Result<()> {
    let browser = &setting.browser;
    browser.show_as(390, "light").await?;
    browser.open(&format!("{}/pending", setting.server.address)).await?;
    browser.type_into("input[name=q]", "llama").await?;
    browser.evaluate("window.scrollTo(0, 300); window.kept = true").await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    setting.server.recorded.change(
        "pending",
        "/items/3/needs/0/amount",
        json!({"value": "65", "number": 65}),
    );
    within(Duration::from_secs(3), "the row shows the change", async || {
        let row = browser.evaluate("document.getElementById('w-4b1d9').textContent").await?;
        ensure!(row.as_str().is_some_and(|text| text.contains("65 nvidia.com/gpu")), "{row}");
        Ok(())
    })
    .await?;
    let kept = browser
        .evaluate("[window.kept, document.activeElement.name, document.activeElement.value, window.scrollY]")
        .await?;
    ensure!(kept == json!([true, "q", "llama", 300]), "{kept}");
    // Another row takes the place of one: the page says so, and keeps its rows.
    let rows = "[...document.querySelectorAll('tr[id]')].map(row => row.id).join(' ')";
    let (before, mark) = (browser.evaluate(rows).await?, "document.getElementById('changes')");
    ensure!(browser.evaluate(&format!("{mark}.hidden")).await? == true, "nothing has changed yet");
    setting.server.recorded.change("pending", "/items/9/metadata/uid", json!("other"));
    within(Duration::from_secs(5), "the page says how much has changed", async || {
        let said = browser.evaluate(&format!("{mark}.hidden ? '' : {mark}.textContent")).await?;
        ensure!(said.as_str().is_some_and(|said| said.starts_with("1 change since ")), "{said}");
        Ok(())
    })
    .await?;
    ensure!(browser.evaluate(rows).await? == before, "rows have moved");
    browser.click("#changes a").await?;
    ensure!(browser.evaluate(rows).await? != before, "the link leads to the rows of now");
    ensure!(browser.evaluate(&format!("{mark}.hidden")).await? == true, "the page is new");
    browser.messages().await.map(drop)
}

/// Old data and a replica that starts are said.
pub(crate) async fn old_data(setting: &Setting) -> Result<()> {
    let (browser, recorded) = (&setting.browser, &setting.server.recorded);
    browser.show_as(1280, "light").await?;
    browser.open(&format!("{}/", setting.server.address)).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    recorded.set_freshness(Freshness::SilentSince("2026-11-26T14:02:11Z".parse()?));
    within(Duration::from_secs(10), "the open page says that its data is old", async || {
        let alert = browser.evaluate("document.querySelector('[role=alert]').textContent").await?;
        ensure!(alert.as_str().is_some_and(|text| text.contains("the state of 14:02:11")), "{alert}");
        Ok(())
    })
    .await?;
    browser.picture(&setting.folder.join("overview-stale-1280-light.png")).await?;
    recorded.set_freshness(Freshness::Live);
    within(Duration::from_secs(10), "the page is live again", async || {
        let live = browser.evaluate("document.getElementById('live')?.textContent ?? ''").await?;
        ensure!(live == "Live", "{live}");
        Ok(())
    })
    .await?;
    recorded.set_starting(true);
    // The value of a page is shared for half a second.
    tokio::time::sleep(Duration::from_secs(1)).await;
    browser.open(&format!("{}/", setting.server.address)).await?;
    let text = browser.evaluate("document.querySelector('main').textContent").await?;
    recorded.set_starting(false);
    ensure!(
        text.as_str().is_some_and(|text| text.contains("waits for the first lists of workloads")),
        "{text}"
    );
    browser.messages().await.map(drop)
}

/// A page whose server is gone says first that it connects again, and then that it shows an earlier state.
pub(crate) async fn lost_server(setting: &Setting) -> Result<()> {
    let (browser, server) = (&setting.browser, Server::start("/").await?);
    browser.forget().await?;
    browser.show_as(1280, "light").await?;
    browser.open(&format!("{}/pending", server.address)).await?;
    browser.type_into("#t", ADMIN).await?;
    browser.click(".primary").await?;
    ensure!(heading(setting).await? == "Pending workloads", "signed in");
    // The stream has been heard once it is there.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let marks = "({ live: document.getElementById('live').textContent, old: !document.getElementById('stale').hidden })";
    let shown = browser.evaluate(marks).await?;
    ensure!(shown == json!({"live": "Live", "old": false}), "{shown}");
    server.kill();
    within(Duration::from_secs(10), "the page says that it connects again", async || {
        let shown = browser.evaluate(marks).await?;
        ensure!(shown == json!({"live": "Reconnecting", "old": false}), "{shown}");
        Ok(())
    })
    .await?;
    // As if a minute had passed: the page waits for 45 seconds.
    browser.evaluate("(() => { const now = Date.now; Date.now = () => now() + 60000; })()").await?;
    within(Duration::from_secs(10), "the page says that its data is old", async || {
        let shown = browser.evaluate(marks).await?;
        let says = shown["live"].as_str().is_some_and(|text| text.starts_with("Data of "));
        ensure!(says && shown["old"] == true, "{shown}");
        Ok(())
    })
    .await?;
    // The browser logs each attempt to connect.
    browser.messages().await.map(drop)
}

/// No page is wider than a telephone, whatever the name of the user is, and the way out stays in the window.
pub(crate) async fn long_users(setting: &Setting) -> Result<()> {
    let browser = &setting.browser;
    for token in LONG {
        browser.forget().await?;
        browser.show_as(390, "light").await?;
        sign_in(setting, "/pending", token).await?;
        ensure!(heading(setting).await? == "Pending workloads", "{token}");
        for path in ["/", "/pending", "/clusterqueues/none", "/namespaces/nlp-train"] {
            browser.open(&format!("{}{path}", setting.server.address)).await?;
            let facts = browser
                .evaluate(
                    "({ scroll: document.documentElement.scrollWidth, width: window.innerWidth,
                    out: document.querySelector('form[action$=logout]').getBoundingClientRect().right,
                    title: document.querySelector('.user').title.length })",
                )
                .await?;
            let number = |field: &str| facts[field].as_f64().unwrap_or(f64::INFINITY);
            let fits = number("width") <= 390.0 && number("scroll") <= 390.0 && number("out") <= 390.0;
            ensure!(fits && number("title") > 40.0, "{path} of {token}: {facts}");
        }
    }
    browser.messages().await.map(drop)
}

/// A user of a namespace is told which right is missing, and sees nothing of the page.
pub(crate) async fn tenant(setting: &Setting) -> Result<()> {
    let browser = &setting.browser;
    browser.forget().await?;
    browser.show_as(1280, "light").await?;
    sign_in(setting, "/namespaces/nlp-train", TENANT).await?;
    ensure!(heading(setting).await? == "nlp-train", "the namespace is shown");
    for path in
        ["/", "/clusterqueues/nlp", "/pending", "/workloads/rank/job-ranker-daily-77ac2", "/namespaces/rank"]
    {
        browser.open(&format!("{}{path}", setting.server.address)).await?;
        ensure!(heading(setting).await? == "No access", "{path}");
        let text = browser.evaluate("document.body.textContent").await?;
        let text = text.as_str().unwrap_or_default();
        ensure!(
            text.contains("list clusterqueueviews") || text.contains("list workloadviews"),
            "{path}: {text}"
        );
        ensure!(!text.contains("ranker-ft") && !text.contains("speechlab"), "{path}: {text}");
    }
    browser.picture(&setting.folder.join("forbidden-1280-light.png")).await?;
    browser.messages().await?;
    browser.click("form[action$=logout] button").await?;
    ensure!(heading(setting).await? == "Sign in", "signed out");
    browser.open(&format!("{}/namespaces/nlp-train", setting.server.address)).await?;
    ensure!(heading(setting).await? == "Sign in", "the token is gone");
    Ok(())
}
