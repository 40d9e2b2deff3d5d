//! Files of a mounted ConfigMap change while the manager runs.

use super::*;
use clap::Parser;
use jiff::SignedDuration;
use std::os::unix::fs::symlink;
use std::sync::Mutex;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: ManagerArgs,
}

/// A level that refuses the word `loud`.
#[derive(Default)]
struct Level(Mutex<Vec<String>>);

impl LogLevel for Level {
    fn get(&self) -> String {
        self.0.lock().unwrap().last().cloned().unwrap_or_else(|| "info".to_owned())
    }

    fn set(&self, level: &str) -> Result<(), String> {
        if level == "loud" {
            return Err("no level".to_owned());
        }
        self.0.lock().unwrap().push(level.to_owned());
        Ok(())
    }
}

/// A folder into which a ConfigMap is mounted: a link to the folder of the data, which an update replaces.
struct Mount {
    root: PathBuf,
    updates: u32,
}

impl Mount {
    fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("sluice-reload-{name}-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&root));
        std::fs::create_dir_all(&root).unwrap();
        for file in ["config.yaml", LOG_LEVEL_FILE] {
            symlink(Path::new("..data").join(file), root.join(file)).unwrap();
        }
        Self { root, updates: 0 }
    }

    fn update(&mut self, files: &[(&str, &str)]) {
        self.updates += 1;
        let data = self.root.join(format!("..data-{}", self.updates));
        std::fs::create_dir(&data).unwrap();
        for (name, text) in files {
            std::fs::write(data.join(name), text).unwrap();
        }
        let link = self.root.join("..new");
        symlink(&data, &link).unwrap();
        std::fs::rename(&link, self.root.join("..data")).unwrap();
    }

    fn configure(&mut self, body: &str) {
        let text = format!("apiVersion: {}\nkind: Configuration\n{body}\n", config::API_VERSION);
        self.update(&[("config.yaml", &text)]);
    }

    fn follow(&self, level: &Arc<Level>) -> FollowedFiles {
        let file = format!("--config={}", self.root.join("config.yaml").display());
        let settings = settings::load(Line::parse_from(["manager", &file]).args).unwrap();
        let level: Arc<dyn LogLevel> = level.clone();
        FollowedFiles::new(&settings, level)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.root));
    }
}

#[test]
fn times_change_when_mount_is_updated() {
    let mut mount = Mount::new("times");
    mount.configure("waitForPodsReady: {timeout: 5m}");
    let mut followed = mount.follow(&Arc::default());
    assert_eq!(followed.read_configuration(), None, "nothing has changed");
    mount.configure(
        "waitForPodsReady: {timeout: 90s, blockAdmission: true, \
         requeuingStrategy: {backoffLimitCount: 2, backoffBaseSeconds: 5, backoffMaxSeconds: 7}}",
    );
    let seconds = SignedDuration::from_secs;
    let expected = PodsReadyLimits {
        timeout: seconds(90),
        recovery_timeout: Some(seconds(90)),
        max_requeues: Some(2),
        backoff_base: seconds(5),
        backoff_max: seconds(7),
    };
    assert_eq!(followed.read_configuration(), Some(expected.clone()));
    assert!(!followed.in_force.wait_for_pods_ready.block_admission, "it needs a restart");
    assert_eq!(followed.read_configuration(), None, "once");
    for refused in [
        "waitForPodsReady: {timeout: soon}",
        "nonsense: 1",
        "metrics: {bindAddress: '8443'}",
        "health: {healthProbeBindAddress: ':https'}",
        "metrics: {bindAddress: '127.0.0.1:9443'}",
    ] {
        mount.configure(refused);
        assert_eq!(followed.read_configuration(), None, "{refused}");
        assert!(followed.logged.as_ref().is_some_and(|error| error.contains("config.yaml")), "{refused}");
    }
    for without_content in ["", "# all of it is a comment", "null", "---"] {
        mount.update(&[("config.yaml", without_content)]);
        assert_eq!(followed.read_configuration(), None, "{without_content}");
        assert!(
            followed.logged.as_ref().is_some_and(|error| error.contains("no content")),
            "{without_content}"
        );
    }
    mount.configure("waitForPodsReady: {timeout: 2m, recoveryTimeout: 0s}");
    let limits = followed.read_configuration().unwrap();
    assert_eq!((limits.timeout, limits.recovery_timeout), (seconds(120), None));
    assert_eq!(followed.logged, None);
    mount.update(&[]);
    assert_eq!(followed.read_configuration(), None, "a file that is gone changes nothing");
}

#[test]
fn other_settings_need_restart() {
    let mut mount = Mount::new("restart");
    mount.configure("");
    let followed = mount.follow(&Arc::default());
    let changed = |body: &str| {
        let text = format!("apiVersion: {}\nkind: Configuration\n{body}\n", config::API_VERSION);
        let document = settings::document_of(&text, "file", None).unwrap();
        let new = settings::checked("file", document).unwrap().configuration;
        config::changed_settings(&followed.in_force, &new)
    };
    let owned = |name: &str, live: bool| vec![(name.to_owned(), live)];
    for (body, expected) in [
        ("waitForPodsReady: {timeout: 30m}", vec![]),
        ("multiKueue: {gcInterval: 1s}", vec![]),
        ("waitForPodsReady: {recoveryTimeout: 1m}", owned("waitForPodsReady.recoveryTimeout", true)),
        ("waitForPodsReady: {blockAdmission: true}", owned("waitForPodsReady.blockAdmission", false)),
        ("manageJobsWithoutQueueName: true", owned("manageJobsWithoutQueueName", false)),
        ("featureGates: {PartialAdmission: false}", owned("featureGates.PartialAdmission", false)),
        ("featureGates: {PartialAdmission: true}", vec![]),
        (
            "resources: {transformations: [{input: a, outputs: {b: 1}}]}",
            owned("resources.transformations", false),
        ),
        (
            "fairSharing: {preemptionStrategies: [LessThanInitialShare]}",
            owned("fairSharing.preemptionStrategies", false),
        ),
    ] {
        assert_eq!(changed(body), expected, "{body}");
    }
}

#[test]
fn log_level_follows_its_file() {
    let mut mount = Mount::new("level");
    mount.configure("");
    let level: Arc<Level> = Arc::default();
    let mut followed = mount.follow(&level);
    let mut set = |text: Option<&str>| {
        let files: Vec<(&str, &str)> = text.map(|text| (LOG_LEVEL_FILE, text)).into_iter().collect();
        mount.update(&files);
        followed.read_log_level();
        followed.read_log_level();
        level.0.lock().unwrap().clone()
    };
    assert!(set(None).is_empty(), "without a file the command line decides");
    assert_eq!(set(Some("debug\n")), ["debug"]);
    assert_eq!(set(Some("loud")), ["debug"], "a bad level changes nothing");
    assert_eq!(set(Some("info,sluice::kube=debug")), ["debug", "info,sluice::kube=debug"]);
    assert_eq!(set(None).last().unwrap(), "info", "the level of the command line");
}

/// Mounted by subPath the file never changes; the folder beside it does.
#[test]
fn folder_may_differ_from_that_of_the_file() {
    let mut mount = Mount::new("folder");
    mount.configure("");
    let copy = std::env::temp_dir().join(format!("sluice-reload-copy-{}", std::process::id()));
    std::fs::create_dir_all(&copy).unwrap();
    let file = copy.join("config.yaml");
    std::fs::copy(mount.root.join("config.yaml"), &file).unwrap();
    let flags = [format!("--config={}", file.display()), format!("--config-dir={}", mount.root.display())];
    let line = Line::parse_from(std::iter::once("manager".to_owned()).chain(flags));
    let settings = settings::load(line.args).unwrap();
    let mut followed = FollowedFiles::new(&settings, Arc::<Level>::default());
    mount.configure("waitForPodsReady: {timeout: 90s}");
    assert_eq!(followed.read_configuration().unwrap().timeout, SignedDuration::from_secs(90));
    std::fs::remove_dir_all(&copy).unwrap();
}
