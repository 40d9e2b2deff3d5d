//! A headless Chromium, driven by WebDriver, and by its developer tools where WebDriver has no word for it.
//!
//! Chromium and chromedriver come as a pair from the distribution. They are found in PATH, or named by `SLUICE_CHROMIUM` and
//! `SLUICE_CHROMEDRIVER`.

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::process::{Process, ProcessGuard};
use crate::wait::eventually;

/// Longest wait for an answer.
const TIMEOUT: Duration = Duration::from_mins(1);
/// The name under which WebDriver returns an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// Packages of Debian that have them.
const PACKAGES: [&str; 2] = ["chromium", "chromium-driver"];

/// The programs of a browser.
#[derive(Clone, Debug)]
pub struct Programs {
    /// Chromium.
    pub chromium: PathBuf,
    /// Its driver.
    pub driver: PathBuf,
}

impl Programs {
    /// Finds them, or says how to install them.
    pub fn find() -> Result<Self> {
        let named = |variable: &str| std::env::var_os(variable).map(PathBuf::from);
        let in_path = |name: &str| {
            let path = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
        };
        let chromium = named("SLUICE_CHROMIUM").or_else(|| in_path("chromium"));
        let driver = named("SLUICE_CHROMEDRIVER").or_else(|| in_path("chromedriver"));
        match (chromium, driver) {
            (Some(chromium), Some(driver)) => Ok(Self { chromium, driver }),
            _ => bail!("chromium and chromedriver are not in PATH: apt-get install {}", PACKAGES.join(" ")),
        }
    }

    /// Finds them, or installs them where the variable CI is set and this process is root; otherwise says how to install them.
    pub fn find_or_install() -> Result<Self> {
        let missing = match Self::find() {
            Ok(found) => return Ok(found),
            Err(missing) => missing,
        };
        let is_root = rustix::process::geteuid().is_root();
        if std::env::var_os("CI").is_none() || !is_root {
            return Err(missing);
        }
        let apt = |arguments: &[&str]| -> Result<()> {
            let mut command = Command::new("apt-get");
            // No package asks a question, and a mirror that fails once is asked again.
            command
                .args(["-o", "Acquire::Retries=3"])
                .args(arguments)
                .env("DEBIAN_FRONTEND", "noninteractive");
            let status = command.status().context("apt-get")?;
            ensure!(status.success(), "apt-get {} failed: {status}", arguments.join(" "));
            Ok(())
        };
        apt(&["update", "--quiet"])?;
        apt(&[&["install", "--quiet", "--yes", "--no-install-recommends"], &PACKAGES[..]].concat())?;
        Self::find()
    }
}

/// A running browser with one window.
pub struct Browser {
    port: u16,
    session: String,
    _driver: Process,
}

impl Browser {
    /// Starts a browser that accepts any certificate. Its log is in `folder`.
    pub async fn start(programs: &Programs, folder: &Path, guard: &ProcessGuard) -> Result<Self> {
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = Command::new(&programs.driver);
        command.arg(format!("--port={port}"));
        let driver = Process::start("chromedriver", &mut command, &folder.join("chromedriver.log"), guard)?;
        eventually("chromedriver listens", async || {
            driver.check()?;
            Ok(TcpStream::connect(("127.0.0.1", port)).await.map(drop)?)
        })
        .await?;
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--force-color-profile=srgb",
        ];
        let capabilities = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "acceptInsecureCerts": true,
            "goog:loggingPrefs": {"browser": "ALL"},
            "goog:chromeOptions": {"binary": programs.chromium, "args": arguments},
        }}});
        let created = call(port, "POST", "/session", &capabilities).await?;
        let session = created["sessionId"].as_str().context("no session")?.to_owned();
        Ok(Self { port, session, _driver: driver })
    }

    async fn post(&self, path: &str, body: Value) -> Result<Value> {
        call(self.port, "POST", &format!("/session/{}{path}", self.session), &body).await
    }

    /// Opens a page and waits until it is loaded.
    pub async fn open(&self, url: &str) -> Result<()> {
        self.post("/url", json!({"url": url})).await.with_context(|| format!("opening {url}")).map(drop)
    }

    /// Returns the address of the page.
    pub async fn address(&self) -> Result<String> {
        let path = format!("/session/{}/url", self.session);
        Ok(call(self.port, "GET", &path, &Value::Null).await?.as_str().unwrap_or_default().to_owned())
    }

    /// Loads the page again.
    pub async fn reload(&self) -> Result<()> {
        self.post("/refresh", json!({})).await.map(drop)
    }

    /// Evaluates an expression in the page, also if its own scripts are off.
    pub async fn evaluate(&self, expression: &str) -> Result<Value> {
        let parameters = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.devtools("Runtime.evaluate", parameters).await?;
        if let Some(thrown) = answer.get("exceptionDetails") {
            bail!("{expression}: {thrown}");
        }
        Ok(answer["result"]["value"].clone())
    }

    /// Calls the developer tools.
    pub async fn devtools(&self, method: &str, parameters: Value) -> Result<Value> {
        self.post("/goog/cdp/execute", json!({"cmd": method, "params": parameters}))
            .await
            .with_context(|| method.to_owned())
    }

    /// Returns what the browser has logged since the last call: console messages, refused loads, violations of the policy.
    pub async fn messages(&self) -> Result<Vec<String>> {
        let entries = self.post("/se/log", json!({"type": "browser"})).await?;
        let texts = entries.as_array().into_iter().flatten();
        Ok(texts.map(|entry| entry["message"].as_str().unwrap_or_default().to_owned()).collect())
    }

    /// Shows pages at this width, with this colour scheme.
    pub async fn show_as(&self, width: u32, scheme: &str) -> Result<()> {
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600});
        self.devtools("Emulation.setDeviceMetricsOverride", size).await?;
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.devtools("Emulation.setEmulatedMedia", features).await.map(drop)
    }

    /// Writes a picture of the whole page.
    pub async fn picture(&self, file: &Path) -> Result<()> {
        self.capture(file, json!({"captureBeyondViewport": true})).await
    }

    /// Writes a picture of the upper part of the page.
    pub async fn picture_of_top(&self, file: &Path, (width, height): (u32, u32)) -> Result<()> {
        let clip = json!({"x": 0, "y": 0, "width": width, "height": height, "scale": 1});
        self.capture(file, json!({"captureBeyondViewport": true, "clip": clip})).await
    }

    async fn capture(&self, file: &Path, parameters: Value) -> Result<()> {
        let answer = self.devtools("Page.captureScreenshot", parameters).await?;
        let text = answer["data"].as_str().context("no picture")?;
        std::fs::write(file, STANDARD.decode(text)?).with_context(|| file.display().to_string())
    }

    async fn element(&self, selector: &str) -> Result<String> {
        let found = self.post("/element", json!({"using": "css selector", "value": selector})).await;
        let found = found.with_context(|| selector.to_owned())?;
        Ok(found[ELEMENT].as_str().context("no element")?.to_owned())
    }

    /// Types into an element.
    pub async fn type_into(&self, selector: &str, text: &str) -> Result<()> {
        let element = self.element(selector).await?;
        self.post(&format!("/element/{element}/value"), json!({"text": text})).await.map(drop)
    }

    /// Clicks an element that leads to another page, and waits until that is loaded.
    pub async fn click(&self, selector: &str) -> Result<()> {
        let element = self.element(selector).await?;
        self.evaluate("window.isLeft = true").await?;
        self.post(&format!("/element/{element}/click"), json!({})).await?;
        let loaded = "window.isLeft !== true && document.readyState === 'complete'";
        eventually("another page is loaded", async || {
            // Between two pages there is none to evaluate in.
            ensure!(self.evaluate(loaded).await? == true, "the page is still the old one");
            Ok(())
        })
        .await
    }

    /// Presses a key.
    pub async fn press(&self, key: &str) -> Result<()> {
        let presses = json!([{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]);
        let actions = json!({"actions": [{"type": "key", "id": "keys", "actions": presses}]});
        self.post("/actions", actions).await.map(drop)
    }

    /// Removes all cookies.
    pub async fn forget(&self) -> Result<()> {
        self.devtools("Network.clearBrowserCookies", json!({})).await.map(drop)
    }

    /// Ends the browser.
    pub async fn quit(self) -> Result<()> {
        call(self.port, "DELETE", &format!("/session/{}", self.session), &Value::Null).await.map(drop)
    }
}

/// Calls the driver and returns the value of its answer.
async fn call(port: u16, verb: &str, path: &str, body: &Value) -> Result<Value> {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let request = format!(
        "{verb} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    );
    let exchange = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        // The driver may keep the connection open after its answer.
        while !is_whole(&answer) && stream.read_buf(&mut answer).await? > 0 {}
        Ok::<_, anyhow::Error>(String::from_utf8_lossy(&answer).into_owned())
    };
    let answer = tokio::time::timeout(TIMEOUT, exchange).await.context("the driver does not answer")??;
    let (_, body) = answer.split_once("\r\n\r\n").context("no HTTP response")?;
    let mut answer: Value = serde_json::from_str(body).with_context(|| format!("{verb} {path}"))?;
    let value = answer["value"].take();
    if let Some(error) = value.get("error").and_then(Value::as_str) {
        bail!("{verb} {path}: {error}: {}", value["message"].as_str().unwrap_or_default());
    }
    Ok(value)
}

/// Returns whether a response has as many bytes as it says.
fn is_whole(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let Some((head, _)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok()).flatten()
    });
    length.is_some_and(|length| answer.len() >= head.len() + 4 + length)
}
