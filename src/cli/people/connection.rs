//! The flags by which kubectl reaches a cluster, and the client that follows from them.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use ::kube::client::{ClientBuilder, DynBody};
use ::kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use ::kube::{Client, Config};
use anyhow::{Context, bail};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tower::util::MapResponseLayer;

use super::failure::{EXIT_PARTIAL, wrong_use};
use super::warnings::Warnings;
use crate::kube::client::{Caller, server_name};
use crate::kube::private_keys::check_client_key;
use crate::people::duration::{self, TimeLimit};
use crate::simulate::Dump;

/// Timeout of a call without `--request-timeout`.
const CALL_TIMEOUT: Duration = Duration::from_mins(1);
/// Advice in errors about the choice of a kubeconfig.
const WHICH: &str = "use --kubeconfig FILE, or set KUBECONFIG";
/// Timeout that stands for no limit.
const NO_TIMEOUT: Duration = Duration::from_hours(8760);

/// Heading of the flags for the cluster and the user, by which help finds them.
pub(super) const HEADING: &str = "Connection";

/// Flags for the cluster and the user.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = HEADING)]
pub(crate) struct ConnectionArgs {
    // Below no heading, because help shows it beside the flags of the verb.
    /// Namespace; default: that of the context.
    #[arg(short, long, global = true, value_name = "NAME", help_heading = None::<&'static str>)]
    pub(crate) namespace: Option<String>,
    /// Kubeconfig file; default: the files that kubectl reads.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Cluster of the kubeconfig.
    #[arg(long, global = true, value_name = "NAME")]
    cluster: Option<String>,
    /// Address of the API server.
    #[arg(short, long, global = true, value_name = "URL")]
    server: Option<String>,
    /// File with the certificate authorities of the API server.
    #[arg(long, global = true, value_name = "FILE")]
    certificate_authority: Option<PathBuf>,
    /// Name in the certificate of the API server.
    #[arg(long, global = true, value_name = "NAME")]
    tls_server_name: Option<String>,
    /// Accept every certificate of the API server.
    #[arg(long, global = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    insecure_skip_tls_verify: Option<bool>,
    /// Timeout of one request, as 30s or 2m; 0 for none.
    #[arg(long, global = true, value_name = "DURATION", value_parser = duration::parse)]
    request_timeout: Option<TimeLimit>,
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    ignored: IgnoredArgs,
}

/// The user that calls the API server, and the user to act as.
#[derive(Clone, Debug, Default, clap::Args)]
struct IdentityArgs {
    /// User of the kubeconfig.
    #[arg(long, global = true, value_name = "NAME")]
    user: Option<String>,
    /// Bearer token.
    #[arg(long, global = true, value_name = "TOKEN")]
    token: Option<String>,
    /// File with the client certificate.
    #[arg(long, global = true, value_name = "FILE")]
    client_certificate: Option<PathBuf>,
    /// File with the key of the client certificate.
    #[arg(long, global = true, value_name = "FILE")]
    client_key: Option<PathBuf>,
    /// User to act as.
    #[arg(long = "as", global = true, value_name = "NAME")]
    act_as: Option<String>,
    /// Group to act as; repeatable.
    #[arg(long, global = true, value_name = "NAME")]
    as_group: Vec<String>,
    /// UID to act as.
    #[arg(long, global = true, value_name = "UID")]
    as_uid: Option<String>,
    /// Extra of the user to act as, KEY=VALUE; repeatable.
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    as_user_extra: Vec<String>,
}

/// Flags of kubectl that change nothing here.
#[derive(Clone, Debug, Default, clap::Args)]
struct IgnoredArgs {
    #[arg(long, global = true, hide = true)]
    cache_dir: Option<String>,
    #[arg(long, global = true, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    disable_compression: Option<String>,
    #[arg(short = 'v', long = "v", global = true, hide = true)]
    verbosity: Option<String>,
    #[arg(long, global = true, hide = true)]
    vmodule: Option<String>,
    #[arg(long, global = true, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    warnings_as_errors: Option<String>,
}

/// The source of answers, with the user's own rights, and the namespace of the command.
pub(crate) struct Session {
    pub(crate) caller: Caller,
    pub(crate) namespace: String,
    /// Whether a part could not be read, so that the answers lack it.
    pub(crate) is_partial: bool,
    /// Header of the dump, if its objects are the source.
    pub(crate) dump: Option<Box<Dump>>,
}

impl Session {
    /// Returns the time to which ages are counted: now, or the time of the dump.
    pub(crate) fn now(&self) -> Timestamp {
        self.dump.as_ref().map_or_else(Timestamp::now, |dump| dump.time)
    }

    /// Returns the exit status of a verb that would end with `code`: a missing part has a status of its own.
    pub(crate) fn ended(&self, code: ExitCode) -> ExitCode {
        if self.is_partial && code == ExitCode::SUCCESS { ExitCode::from(EXIT_PARTIAL) } else { code }
    }
}

/// A client of the API server, and flags about its use.
pub(crate) struct Connection {
    pub(crate) client: Client,
    pub(crate) timeout: Duration,
    pub(crate) namespace: String,
    /// Address and context, for errors.
    server: String,
}

impl Connection {
    /// Returns the caller with the flags' timeout and server name.
    pub(crate) fn caller(&self) -> Caller {
        Caller::new(self.client.clone(), self.timeout).of_server(&self.server)
    }
}

impl ConnectionArgs {
    /// Makes the client. Reads files and calls no server.
    pub(crate) async fn connect(&self) -> anyhow::Result<Session> {
        let connection = self.connection().await?;
        let (caller, namespace) = (connection.caller(), connection.namespace);
        Ok(Session { caller, namespace, is_partial: false, dump: None })
    }

    /// Returns the namespace of a command without a cluster: from the flag, or else from the context if there is one.
    pub(crate) async fn namespace_alone(&self) -> String {
        if let Some(name) = self.namespace.clone().filter(|name| !name.is_empty()) {
            return name;
        }
        let config = self.config().await;
        config.map_or_else(|_| "default".to_owned(), |(config, _)| config.default_namespace)
    }

    /// Makes the client. Reads files and calls no server.
    pub(crate) async fn connection(&self) -> anyhow::Result<Connection> {
        let (mut config, context) = self.config().await?;
        // No silent retries of refused calls: the user sees the error at once.
        config.default_retry = false;
        if let Some(url) = &self.server {
            let url = if url.contains("://") { url.clone() } else { format!("http://{url}") };
            config.cluster_url = url.parse().with_context(|| format!("--server {url:?}"))?;
        }
        if let Some(path) = &self.certificate_authority {
            config.root_cert = Some(certificates(path)?);
            config.root_cert_file = None;
        }
        config.tls_server_name = self.tls_server_name.clone().or(config.tls_server_name);
        config.accept_invalid_certs = self.insecure_skip_tls_verify.unwrap_or(config.accept_invalid_certs);
        config.auth_info = self.identity.applied(config.auth_info)?;
        let timeout = match self.request_timeout {
            Some(TimeLimit(limit)) => limit.unwrap_or(NO_TIMEOUT),
            None => CALL_TIMEOUT,
        };
        let namespace = self.namespace.clone().filter(|name| !name.is_empty());
        let namespace = namespace.unwrap_or_else(|| config.default_namespace.clone());
        let warnings = Warnings::default();
        let with_warnings = MapResponseLayer::new(move |response: http::Response<Box<DynBody>>| {
            warnings.print(response.headers());
            response
        });
        check_client_key(&config)?;
        let server = server_name(&config.cluster_url.to_string(), context.as_deref());
        let client = ClientBuilder::try_from(config).context("client")?.with_layer(&with_warnings).build();
        Ok(Connection { client, timeout, namespace, server })
    }

    /// Returns an error in the words of kubectl.
    fn kubeconfig_error(&self, error: KubeconfigError) -> anyhow::Error {
        match (&error, &self.kubeconfig, &self.context) {
            (KubeconfigError::ReadConfig(..), Some(path), _) if is_missing(&error) => {
                anyhow::anyhow!("stat {}: no such file or directory", path.display())
            }
            (KubeconfigError::ReadConfig(_, path), None, _) if is_missing(&error) => {
                anyhow::anyhow!("no kubeconfig: {}: no such file or directory; {WHICH}", path.display())
            }
            (KubeconfigError::FindPath, ..) => anyhow::anyhow!("no kubeconfig; {WHICH}"),
            (KubeconfigError::LoadContext(name), ..) => anyhow::anyhow!("context {name:?} does not exist"),
            _ => anyhow::Error::new(error).context("kubeconfig"),
        }
    }

    /// Returns the address of the API server.
    pub(crate) async fn address(&self) -> anyhow::Result<String> {
        match &self.server {
            Some(url) => Ok(url.clone()),
            None => Ok(self.config().await?.0.cluster_url.to_string()),
        }
    }

    /// Reads the kubeconfig; in a pod without one, the service account. Returns the context as well, if the address comes from
    /// one.
    async fn config(&self) -> anyhow::Result<(Config, Option<String>)> {
        let options = KubeConfigOptions {
            context: self.context.clone(),
            cluster: self.cluster.clone(),
            user: self.identity.user.clone(),
        };
        let file = match &self.kubeconfig {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        };
        let read = match file {
            Ok(file) => {
                let context = self.context.clone().or_else(|| file.current_context.clone());
                let context = context.filter(|_| self.server.is_none());
                Config::from_custom_kubeconfig(file, &options).await.map(|config| (config, context))
            }
            Err(error) => Err(error),
        };
        let error = match read {
            Ok(found) => return Ok(found),
            Err(error) => error,
        };
        let is_chosen = self.context.is_some() || self.cluster.is_some() || self.identity.user.is_some();
        match &self.server {
            Some(_) if !is_chosen => Ok((Config::new(http::Uri::from_static("http://localhost")), None)),
            _ if is_missing(&error) && self.kubeconfig.is_none() && !is_chosen => {
                Config::incluster().map(|config| (config, None)).map_err(|_| self.kubeconfig_error(error))
            }
            _ => Err(self.kubeconfig_error(error)),
        }
    }
}

/// Returns whether there is no kubeconfig, in contrast to an unreadable one.
fn is_missing(error: &KubeconfigError) -> bool {
    match error {
        KubeconfigError::FindPath => true,
        KubeconfigError::ReadConfig(error, _) => error.kind() == std::io::ErrorKind::NotFound,
        _ => false,
    }
}

fn certificates(path: &Path) -> anyhow::Result<Vec<Vec<u8>>> {
    let text = std::fs::read(path).with_context(|| path.display().to_string())?;
    let found = pem::parse_many(text).with_context(|| path.display().to_string())?;
    if found.is_empty() {
        bail!("{}: no certificate in the file", path.display());
    }
    Ok(found.into_iter().map(pem::Pem::into_contents).collect())
}

impl IdentityArgs {
    /// Returns the user of the kubeconfig with the values of the flags.
    fn applied(&self, known: ::kube::config::AuthInfo) -> anyhow::Result<::kube::config::AuthInfo> {
        let acts_with = !self.as_group.is_empty() || self.as_uid.is_some() || !self.as_user_extra.is_empty();
        if acts_with && self.act_as.is_none() {
            return Err(wrong_use("--as-group, --as-uid and --as-user-extra require --as"));
        }
        // The type of the token is private to the client's crates, but its file format is public.
        let Value::Object(mut fields) = serde_json::to_value(known)? else { bail!("user of the kubeconfig") };
        let mut set = |names: &[&str], value: Option<Value>| {
            let Some(value) = value else { return };
            for name in names {
                fields.shift_remove(*name);
            }
            if let Some(name) = names.first() {
                fields.insert((*name).to_owned(), value);
            }
        };
        let file = |path: &Option<PathBuf>| path.as_ref().map(|path| json!(path));
        set(
            &["token", "tokenFile", "exec", "auth-provider", "username", "password"],
            self.token.as_ref().map(|t| json!(t)),
        );
        set(&["client-certificate", "client-certificate-data"], file(&self.client_certificate));
        set(&["client-key", "client-key-data"], file(&self.client_key));
        set(&["as"], self.act_as.as_ref().map(|name| json!(name)));
        set(&["as-uid"], self.as_uid.as_ref().map(|uid| json!(uid)));
        set(&["as-groups"], (!self.as_group.is_empty()).then(|| json!(self.as_group)));
        let mut extra = Map::new();
        for text in &self.as_user_extra {
            let Some((key, value)) = text.split_once('=') else {
                return Err(wrong_use(format!("--as-user-extra {text:?}: KEY=VALUE expected")));
            };
            let values = extra.entry(key).or_insert_with(|| json!([]));
            if let Value::Array(values) = values {
                values.push(json!(value));
            }
        }
        set(&["as-user-extra"], (!extra.is_empty()).then_some(Value::Object(extra)));
        Ok(serde_json::from_value(Value::Object(fields))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        connection: ConnectionArgs,
    }

    fn applied(line: &str) -> anyhow::Result<Value> {
        let known = json!({"token": "old", "client-certificate-data": "AA==", "client-key": "/k", "exec": {"command": "x"}});
        let args = Line::parse_from(["p"].into_iter().chain(line.split_whitespace())).connection;
        let mut applied = serde_json::to_value(args.identity.applied(serde_json::from_value(known)?)?)?;
        // Fields that the client adds to the file's own.
        applied["exec"] = json!(applied.get("exec").is_some_and(|exec| !exec.is_null()));
        Ok(applied)
    }

    #[test]
    fn flags_replace_the_user_of_the_kubeconfig() {
        let user = applied(
            "--token new --as u --as-group a --as-group b --as-uid 7 --as-user-extra k=1 --as-user-extra k=2",
        )
        .unwrap();
        assert_eq!((&user["token"], &user["exec"]), (&json!("new"), &json!(false)));
        assert_eq!(
            (&user["as"], &user["as-groups"], &user["as-uid"]),
            (&json!("u"), &json!(["a", "b"]), &json!("7"))
        );
        assert_eq!(user["as-user-extra"], json!({"k": ["1", "2"]}));
        let user = applied("--client-certificate /c").unwrap();
        assert_eq!(
            (&user["client-certificate"], &user["client-certificate-data"]),
            (&json!("/c"), &Value::Null)
        );
        assert_eq!((&user["token"], &user["exec"]), (&json!("old"), &json!(true)));
        for (line, named) in [("--as-group a", "require --as"), ("--as u --as-user-extra k", "KEY=VALUE")] {
            assert!(applied(line).unwrap_err().to_string().contains(named), "{line}");
        }
    }

    #[test]
    fn flags_of_kubectl_are_accepted() {
        let line = "p -n x -s http://h:1 --cache-dir /tmp --disable-compression --v=9 --request-timeout=0 --insecure-skip-tls-verify=false";
        let args = Line::parse_from(line.split(' ')).connection;
        assert_eq!(args.namespace.as_deref(), Some("x"));
        assert_eq!(
            (args.request_timeout, args.insecure_skip_tls_verify),
            (Some(TimeLimit(None)), Some(false))
        );
    }

    #[tokio::test]
    async fn an_address_alone_is_enough() {
        crate::kube::cryptography::install();
        let line = "p --kubeconfig /nonexistent -s 127.0.0.1:1 --namespace=";
        let session = Line::parse_from(line.split(' ')).connection.connect().await.unwrap();
        assert_eq!(session.namespace, "default");
        for (line, named) in [
            ("p --kubeconfig /nonexistent", "stat /nonexistent: no such file or directory"),
            ("p --kubeconfig /nonexistent -s :::", "--server"),
            ("p -s 127.0.0.1:1 --kubeconfig /nonexistent --certificate-authority /dev/null", "/dev/null"),
        ] {
            let error = Line::parse_from(line.split(' ')).connection.connect().await.err().unwrap();
            assert!(format!("{error:#}").contains(named), "{line}: {error:#}");
        }
    }
}
