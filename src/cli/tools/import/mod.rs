//! `sluice import`: gives an admitted Workload to each running pod that has none, as Kueue's importer does.
//!
//! All pods are checked first, and the first writes of each namespace are tried by server dry runs; nothing is written while one of
//! them fails, or while a pod cannot be imported. An interrupted run can be repeated: objects that exist already are not written again.
//!
//! Exit codes: 0 done, or everything could be imported; 1 error; 2 invalid command line.

mod mapping;
mod plan;
mod trial;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::cluster_objects::{CONFIGURATION_FIELD, block_on};
use super::migrate::runs_manager;
use crate::api::yaml;
use crate::cli::files;
use crate::cli::manager::settings;
use crate::frameworks::{Role, frameworks};
use crate::kube::client::{Caller, Content, caller_from_kubeconfig};
use crate::kube::list::list_path;
use mapping::{Mapping, pair};
use plan::{Objects, Plan, Settings};

const CALL_TIMEOUT: Duration = Duration::from_secs(30);
const PAGE_SIZE: u32 = 500;
/// HTTP status of an object that exists already.
const CONFLICT: u16 = 409;
/// HTTP status of a kind that is not installed, or of an object that does not exist.
const NOT_FOUND: u16 = 404;
/// HTTP status of a request that the user may not make.
const FORBIDDEN: u16 = 403;
/// Label of each Deployment of a manager, whatever the names of the installation.
const MANAGERS: &str = "labelSelector=control-plane%3Dcontroller-manager";
const KUEUE: &str = "/apis/kueue.x-k8s.io/v1beta2";
/// Most pods that are named with one error.
const SHOWN: usize = 5;

/// Arguments of `sluice import`.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("queues").required(true).args(["queuelabel", "queuemapping_file"])))]
pub(crate) struct ImportArgs {
    /// Namespaces of the pods; repeatable, or separated by commas.
    #[arg(short, long, value_name = "NAME", required = true, value_delimiter = ',')]
    namespace: Vec<String>,
    /// Label of the pods whose value is the name of their LocalQueue, or is mapped to it.
    #[arg(long, value_name = "LABEL")]
    queuelabel: Option<String>,
    /// Maps values of the label to LocalQueues.
    #[arg(long, value_name = "VALUE=QUEUE", value_delimiter = ',', value_parser = pair, requires = "queuelabel")]
    queuemapping: Vec<(String, String)>,
    /// File with rules that map labels and priority classes to LocalQueues.
    #[arg(long, value_name = "FILE")]
    queuemapping_file: Option<PathBuf>,
    /// Labels for the pods and their Workloads.
    #[arg(long, value_name = "NAME=VALUE", value_delimiter = ',', value_parser = pair)]
    add_labels: Vec<(String, String)>,
    /// Prefixes of resources that are not charged.
    #[arg(long, value_name = "PREFIX", value_delimiter = ',')]
    exclude_resource_prefixes: Vec<String>,
    /// Only check; false imports.
    #[arg(long, value_name = "BOOL", default_value_t = true, default_missing_value = "true", num_args = 0..=1, require_equals = true, action = clap::ArgAction::Set)]
    dry_run: bool,
    /// Kubeconfig file of the cluster; default: the files that kubectl reads.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Namespace of the manager, where the user may not list Deployments of all namespaces.
    #[arg(long, value_name = "NAME", default_value = settings::DEFAULT_NAMESPACE)]
    manager_namespace: String,
}

pub(crate) fn run(args: &ImportArgs) -> anyhow::Result<ExitCode> {
    let mapping = match (&args.queuelabel, &args.queuemapping_file) {
        (Some(label), _) => Mapping::by_label(label, &args.queuemapping.iter().cloned().collect()),
        (None, Some(file)) => {
            let text = std::fs::read_to_string(file)
                .with_context(|| format!("--queuemapping-file {}", file.display()))?;
            Mapping::from_yaml(&text, &file.display().to_string())?
        }
        (None, None) => bail!("--queuelabel or --queuemapping-file is needed"),
    };
    let import = Settings {
        mapping,
        add_labels: args.add_labels.iter().cloned().collect(),
        excluded_prefixes: args.exclude_resource_prefixes.clone(),
    };
    block_on(async {
        let caller =
            caller_from_kubeconfig(args.kubeconfig.as_deref(), args.context.as_deref(), CALL_TIMEOUT).await?;
        let importer = Importer { caller: &caller, print: &files::print };
        importer.run(args, &import).await
    })
}

/// One run of the import.
struct Importer<'a> {
    caller: &'a Caller,
    /// Prints text for the user.
    print: &'a dyn Fn(&str) -> anyhow::Result<()>,
}

impl Importer<'_> {
    async fn run(&self, args: &ImportArgs, import: &Settings) -> anyhow::Result<ExitCode> {
        self.refuse_beside_manager(&args.manager_namespace).await?;
        let namespaces: BTreeSet<&str> = args.namespace.iter().map(String::as_str).collect();
        for namespace in &namespaces {
            self.refuse_unknown(namespace).await?;
        }
        let plans = self.check(&namespaces, import).await?;
        trial::refuse_if_writes_fail(self.caller, &plans).await?;
        if args.dry_run {
            (self.print)("nothing was written: --dry-run=false imports\n")?;
            return Ok(ExitCode::SUCCESS);
        }
        let (mut imported, mut failed) = (0_usize, Failures::default());
        for plan in &plans {
            match self.import(plan).await {
                Ok(true) => imported += 1,
                Ok(false) => {}
                Err(error) => failed.add(&format!("{error:#}"), &plan.namespace, &plan.pod),
            }
        }
        let before = plans.len() - imported - failed.pods;
        (self.print)(&format!("imported: {imported}, before: {before}, failed: {}\n", failed.pods))?;
        failed.into_result("imports failed; the others are done, and a repeated run goes on")?;
        Ok(ExitCode::SUCCESS)
    }

    /// Fails if a manager manages pods: it would stop a pod that has the label of a queue and no Workload yet.
    async fn refuse_beside_manager(&self, namespace: &str) -> anyhow::Result<()> {
        for deployment in self.managers(namespace).await? {
            let namespace = deployment.pointer("/metadata/namespace").and_then(Value::as_str);
            let namespace = namespace.unwrap_or_default();
            let runs = deployment.pointer("/status/availableReplicas").and_then(Value::as_i64) > Some(0);
            if !runs || !runs_manager(&deployment) {
                continue;
            }
            for (map, text) in self.configurations(namespace, &deployment).await? {
                let text = yaml::only_document(&text);
                let document = text.map_err(|reason| anyhow!("ConfigMap {namespace}/{map}: {reason}"))?;
                let holding = frameworks_that_hold_pods(&document);
                if !holding.is_empty() {
                    bail!(
                        "the manager in {namespace} manages pods, and would stop those that have no Workload yet: take {} out of integrations.frameworks in ConfigMap {map} until the import is done",
                        holding.join(", ")
                    );
                }
            }
        }
        Ok(())
    }

    /// Returns the Deployments of managers in all namespaces, or in `namespace` if the user may not list all.
    async fn managers(&self, namespace: &str) -> anyhow::Result<Vec<Value>> {
        match list_path(self.caller, "/apis/apps/v1/deployments", MANAGERS, PAGE_SIZE).await {
            Err(error) if error.code() == Some(FORBIDDEN) => {
                self.list(&format!("/apis/apps/v1/namespaces/{namespace}/deployments"), MANAGERS).await
            }
            outcome => outcome.context("cannot list Deployments"),
        }
    }

    /// Returns the configurations that a Deployment mounts, each with the name of its ConfigMap. Other Deployments have none:
    /// managers with the defaults, and other programs.
    async fn configurations(
        &self,
        namespace: &str,
        deployment: &Value,
    ) -> anyhow::Result<Vec<(String, String)>> {
        let volumes = deployment.pointer("/spec/template/spec/volumes").and_then(Value::as_array);
        let names = volumes.into_iter().flatten();
        let names: BTreeSet<&str> =
            names.filter_map(|volume| volume.pointer("/configMap/name")?.as_str()).collect();
        let mut found = Vec::new();
        for name in names {
            let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
            let map = match self.caller.get(&path).await {
                Err(error) if error.code() == Some(NOT_FOUND) => continue,
                outcome => outcome.with_context(|| format!("cannot read {path}"))?,
            };
            let text = map.get("data").and_then(|data| data.get(CONFIGURATION_FIELD)).and_then(Value::as_str);
            found.extend(text.map(|text| (name.to_owned(), text.to_owned())));
        }
        Ok(found)
    }

    /// Fails for a namespace that does not exist, which would otherwise look like one without pods. Other failures prove
    /// nothing about it and are ignored.
    async fn refuse_unknown(&self, namespace: &str) -> anyhow::Result<()> {
        match self.caller.get(&format!("/api/v1/namespaces/{namespace}")).await {
            Err(error) if error.code() == Some(NOT_FOUND) => bail!("namespace {namespace} does not exist"),
            _ => Ok(()),
        }
    }

    /// Plans all pods. The error names the pods that cannot be imported.
    async fn check(&self, namespaces: &BTreeSet<&str>, import: &Settings) -> anyhow::Result<Vec<Plan>> {
        let cluster = self.cluster(namespaces).await?;
        let (mut plans, mut failures, mut skipped) = (Vec::new(), Failures::default(), 0);
        for namespace in namespaces {
            for mut pod in self.list(&format!("/api/v1/namespaces/{namespace}/pods"), "").await? {
                if let Some(fields) = pod.as_object_mut() {
                    fields.insert("apiVersion".to_owned(), "v1".into());
                    fields.insert("kind".to_owned(), "Pod".into());
                }
                let name =
                    pod.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
                if plan::has_ended(&pod) {
                    skipped += 1;
                    continue;
                }
                match plan::plan(&pod, &cluster, import, Timestamp::now()) {
                    Ok(Some(plan)) => plans.push(plan),
                    Ok(None) => skipped += 1,
                    Err(reason) => failures.add(&reason, namespace, &name),
                }
            }
        }
        (self.print)(&format!(
            "checked: {}, skipped: {skipped}, not importable: {}\n",
            plans.len(),
            failures.pods
        ))?;
        failures.into_result("nothing was written; these pods cannot be imported")?;
        Ok(plans)
    }

    async fn cluster(&self, namespaces: &BTreeSet<&str>) -> anyhow::Result<Objects> {
        let mut local_queues = BTreeMap::new();
        for namespace in namespaces {
            for (name, queue) in self.by_name(&format!("{KUEUE}/namespaces/{namespace}/localqueues")).await? {
                local_queues.insert(((*namespace).to_owned(), name), queue);
            }
        }
        Ok(Objects {
            cluster_queues: self.by_name(&format!("{KUEUE}/clusterqueues")).await?,
            local_queues,
            flavors: self.by_name(&format!("{KUEUE}/resourceflavors")).await?,
            priority_classes: self.by_name("/apis/scheduling.k8s.io/v1/priorityclasses").await?,
            workload_priority_classes: self.by_name(&format!("{KUEUE}/workloadpriorityclasses")).await?,
        })
    }

    async fn by_name(&self, path: &str) -> anyhow::Result<BTreeMap<String, Value>> {
        let named = |object: Value| Some((object.pointer("/metadata/name")?.as_str()?.to_owned(), object));
        Ok(self.list(path, "").await?.into_iter().filter_map(named).collect())
    }

    async fn list(&self, path: &str, query: &str) -> anyhow::Result<Vec<Value>> {
        match list_path(self.caller, path, query, PAGE_SIZE).await {
            Err(error) if error.code() == Some(NOT_FOUND) => {
                bail!("{path} does not exist: Sluice's definitions are not installed")
            }
            outcome => outcome.with_context(|| format!("cannot list {path}")),
        }
    }

    /// Imports one pod; returns whether anything was missing.
    async fn import(&self, plan: &Plan) -> anyhow::Result<bool> {
        let Plan { namespace, pod_uid, labels, workload, .. } = plan;
        let collection = plan.workloads();
        if let Some((path, patch)) = plan.labelling() {
            let call = self.caller.call(http::Method::PATCH, &path, Content::Merge, Some(&patch));
            call.await.context("cannot label the pod")?;
        }
        let mut exists = false;
        match self.caller.post(&collection, workload).await {
            Ok(_) => {}
            Err(error) if error.code() == Some(CONFLICT) => exists = true,
            Err(error) => return Err(error).context("cannot create its Workload"),
        }
        let name = plan.workload_name();
        if exists {
            let found = self.caller.get(&format!("{collection}/{name}")).await?;
            let owner = found.pointer("/metadata/ownerReferences/0/uid").and_then(Value::as_str);
            if owner != Some(pod_uid.as_str()) {
                bail!("Workload {name} belongs to another object");
            }
            if found.pointer("/status/admission").is_some() {
                return Ok(!labels.is_empty());
            }
        }
        let body = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"namespace": namespace, "name": name}, "status": plan.status,
        });
        let path = format!("{collection}/{name}/status?fieldManager=kueue-admission&force=true");
        let call = self.caller.call(http::Method::PATCH, &path, Content::Apply, Some(&body));
        call.await.context("cannot admit its Workload")?;
        Ok(true)
    }
}

/// Returns the listed frameworks with which a manager gates pods: `pod` itself, and kinds whose pods are gated one by one.
fn frameworks_that_hold_pods(configuration: &Value) -> Vec<&'static str> {
    let listed = configuration.pointer("/integrations/frameworks").and_then(Value::as_array);
    let is_listed = |name: &str| listed.is_some_and(|all| all.iter().any(|listed| listed == name));
    pod_holding_frameworks().filter(|name| is_listed(name)).collect()
}

/// Returns all frameworks with which a manager gates pods.
fn pod_holding_frameworks() -> impl Iterator<Item = &'static str> {
    frameworks().filter(|row| row.role != Role::Suspended).map(|row| row.name)
}

/// Pods by the reason why they failed.
#[derive(Debug, Default)]
struct Failures {
    by_reason: BTreeMap<String, Vec<String>>,
    pods: usize,
}

impl Failures {
    fn add(&mut self, reason: &str, namespace: &str, pod: &str) {
        self.by_reason.entry(reason.to_owned()).or_default().push(format!("{namespace}/{pod}"));
        self.pods += 1;
    }

    /// Returns an error if any pod failed: each reason with its pods.
    fn into_result(self, title: &str) -> anyhow::Result<()> {
        if self.pods == 0 {
            return Ok(());
        }
        let mut text = title.to_owned();
        for (reason, pods) in self.by_reason {
            let shown: Vec<&str> = pods.iter().take(SHOWN).map(String::as_str).collect();
            let more = pods.len().saturating_sub(SHOWN);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            // Writing to a String cannot fail.
            let _ = write!(text, "\n  {}{more}: {reason}", shown.join(", "));
        }
        bail!(text)
    }
}

#[cfg(test)]
mod tests;
