//! `kueuectl create`: ClusterQueues, LocalQueues and ResourceFlavors from flags.

use anyhow::bail;
use serde_json::{Map, Value, json};

use super::flags::{DryRunArgs, PrintArgs, go_bool, one_argument};
use crate::cli::people::closed::Closed;
use crate::cli::people::connection::ConnectionArgs;
use crate::cli::people::kinds::PeopleKind;
use crate::cli::people::writing::{DryRun, Write, Writer};
use crate::people::quota_text::Quotas;
use crate::people::taint_text;

/// Arguments of `create`.
#[derive(Debug, clap::Args)]
pub(super) struct CreateArgs {
    #[command(flatten)]
    dry_run: DryRunArgs,
    #[command(subcommand)]
    kind: CreateKind,
}

#[derive(Debug, clap::Subcommand)]
enum CreateKind {
    /// Creates a clusterqueue
    #[command(alias = "cq")]
    Clusterqueue(ClusterQueueArgs),
    /// Creates a localqueue
    #[command(alias = "lq")]
    Localqueue(LocalQueueArgs),
    /// Creates a resource flavor
    #[command(alias = "rf")]
    Resourceflavor(ResourceFlavorArgs),
}

#[derive(Debug, clap::Args)]
struct ClusterQueueArgs {
    name: Vec<String>,
    #[command(flatten)]
    spec: ClusterQueueSpecArgs,
    #[command(flatten)]
    print: PrintArgs,
}

/// What a ClusterQueue is made of.
#[derive(Debug, clap::Args)]
pub(crate) struct ClusterQueueSpecArgs {
    /// Cohort of the ClusterQueue.
    #[arg(long)]
    cohort: Option<String>,
    /// StrictFIFO or BestEffortFIFO.
    #[arg(long, default_value = "BestEffortFIFO", hide_possible_values = true, value_parser = Closed::words(|| vec!["BestEffortFIFO", "StrictFIFO"]))]
    queuing_strategy: String,
    /// Labels of the namespaces that may submit workloads, KEY=VALUE,...
    #[arg(long, value_name = "KEY=VALUE")]
    namespace_selector: Vec<String>,
    /// Which workloads of other ClusterQueues of the cohort a pending workload may preempt.
    #[arg(long, default_value = "Never", value_name = "POLICY", hide_possible_values = true, value_parser = Closed::words(|| vec!["Never", "LowerPriority", "Any"]))]
    reclaim_within_cohort: String,
    /// Which workloads of this ClusterQueue a pending workload may preempt.
    #[arg(long, default_value = "Never", value_name = "POLICY", hide_possible_values = true, value_parser = Closed::words(|| vec!["Never", "LowerPriority", "LowerOrNewerEqualPriority"]))]
    preemption_within_cluster_queue: String,
    /// Quota, FLAVOR:RESOURCE=QUANTITY;RESOURCE=QUANTITY,...; repeatable.
    #[arg(long, value_name = "QUOTA", allow_hyphen_values = true)]
    nominal_quota: Vec<String>,
    /// Most that may be borrowed, in the same form.
    #[arg(long, value_name = "QUOTA", allow_hyphen_values = true)]
    borrowing_limit: Vec<String>,
    /// Most that may be lent, in the same form.
    #[arg(long, value_name = "QUOTA", allow_hyphen_values = true)]
    lending_limit: Vec<String>,
}

impl ClusterQueueSpecArgs {
    /// Returns whether every namespace may submit workloads.
    pub(crate) fn selects_all_namespaces(&self) -> bool {
        self.namespace_selector.iter().all(String::is_empty)
    }

    /// Returns the object.
    pub(crate) fn object(&self, name: &str) -> Result<Value, String> {
        let quotas = Quotas::parse(&self.nominal_quota, &self.borrowing_limit, &self.lending_limit)?;
        let groups = quotas.to_groups()?;
        let mut spec = Map::new();
        if !groups.is_empty() {
            spec.insert("resourceGroups".to_owned(), Value::Array(groups));
        }
        if let Some(cohort) = self.cohort.as_ref().filter(|cohort| !cohort.is_empty()) {
            spec.insert("cohortName".to_owned(), json!(cohort));
        }
        spec.insert("queueingStrategy".to_owned(), json!(self.queuing_strategy));
        let labels = taint_text::labels("--namespace-selector", &self.namespace_selector)?;
        let is_empty = labels.as_object().is_none_or(Map::is_empty);
        let selector = if is_empty { json!({}) } else { json!({"matchLabels": labels}) };
        spec.insert("namespaceSelector".to_owned(), selector);
        let preemption = json!({
            "reclaimWithinCohort": self.reclaim_within_cohort, "withinClusterQueue": self.preemption_within_cluster_queue,
        });
        spec.insert("preemption".to_owned(), preemption);
        Ok(object(PeopleKind::ClusterQueue, &json!({"name": name}), &Value::Object(spec), true))
    }
}

#[derive(Debug, clap::Args)]
struct LocalQueueArgs {
    name: Vec<String>,
    /// ClusterQueue of the LocalQueue (required).
    #[arg(short, long, value_name = "NAME")]
    clusterqueue: Option<String>,
    /// Do not look whether the ClusterQueue exists.
    #[arg(short, long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", value_parser = go_bool, action = clap::ArgAction::Set)]
    ignore_unknown_cq: bool,
    #[command(flatten)]
    print: PrintArgs,
}

#[derive(Debug, clap::Args)]
struct ResourceFlavorArgs {
    name: Vec<String>,
    #[command(flatten)]
    spec: ResourceFlavorSpecArgs,
    #[command(flatten)]
    print: PrintArgs,
}

/// What a ResourceFlavor is made of.
#[derive(Debug, clap::Args)]
pub(crate) struct ResourceFlavorSpecArgs {
    /// Labels of its nodes, KEY=VALUE,...
    #[arg(long, value_name = "KEY=VALUE")]
    node_labels: Vec<String>,
    /// Taints of its nodes, KEY[=VALUE]:EFFECT,...
    #[arg(long, value_name = "KEY[=VALUE]:EFFECT", allow_hyphen_values = true)]
    node_taints: Vec<String>,
    /// Tolerations that its pods get, KEY[=VALUE][:EFFECT],... or :EFFECT
    #[arg(long, value_name = "KEY[=VALUE][:EFFECT]", allow_hyphen_values = true)]
    tolerations: Vec<String>,
}

impl ResourceFlavorSpecArgs {
    /// Returns the object.
    pub(crate) fn object(&self, name: &str) -> Result<Value, String> {
        let labels = taint_text::labels("--node-labels", &self.node_labels)?;
        let mut spec = Map::new();
        let fields = [
            ("nodeLabels", labels),
            ("nodeTaints", Value::Array(taint_text::taints(&self.node_taints)?)),
            ("tolerations", Value::Array(taint_text::tolerations(&self.tolerations)?)),
        ];
        let is_empty = |value: &Value| {
            value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
        };
        let given = fields.into_iter().filter(|(_, value)| !is_empty(value));
        spec.extend(given.map(|(field, value)| (field.to_owned(), value)));
        Ok(object(PeopleKind::ResourceFlavor, &json!({"name": name}), &Value::Object(spec), false))
    }
}

/// Returns a LocalQueue.
pub(crate) fn local_queue(name: &str, namespace: &str, cluster_queue: &str) -> Value {
    let metadata = json!({"name": name, "namespace": namespace});
    object(PeopleKind::LocalQueue, &metadata, &json!({"clusterQueue": cluster_queue}), true)
}

/// Returns an object. A queue has the counts of a new queue in its status, which a server replaces.
fn object(kind: PeopleKind, metadata: &Value, spec: &Value, is_queue: bool) -> Value {
    let resource = kind.resource();
    let mut object = json!({"apiVersion": resource.api_version(), "kind": resource.kind, "metadata": metadata, "spec": spec});
    if let (true, Some(fields)) = (is_queue, object.as_object_mut()) {
        let counts = json!({"pendingWorkloads": 0, "reservingWorkloads": 0, "admittedWorkloads": 0});
        fields.insert("status".to_owned(), counts);
    }
    object
}

/// Creates an object, and prints it or a line about it.
pub(super) async fn run(connection: &ConnectionArgs, args: &CreateArgs) -> anyhow::Result<()> {
    let dry_run = args.dry_run.strategy();
    let (kind, object, print) = match &args.kind {
        CreateKind::Clusterqueue(queue) => {
            let name = one_argument(&queue.name)?;
            (PeopleKind::ClusterQueue, queue.spec.object(name).map_err(anyhow::Error::msg)?, &queue.print)
        }
        CreateKind::Resourceflavor(flavor) => {
            let name = one_argument(&flavor.name)?;
            (PeopleKind::ResourceFlavor, flavor.spec.object(name).map_err(anyhow::Error::msg)?, &flavor.print)
        }
        CreateKind::Localqueue(queue) => {
            let name = one_argument(&queue.name)?;
            let Some(cluster_queue) = &queue.clusterqueue else {
                bail!("required flag(s) \"clusterqueue\" not set")
            };
            let session = connection.connect().await?;
            (PeopleKind::LocalQueue, local_queue(name, &session.namespace, cluster_queue), &queue.print)
        }
    };
    let dry_run = dry_run?;
    print.format()?;
    if dry_run == DryRun::Client && !matches!(args.kind, CreateKind::Localqueue(_)) {
        // A client dry run needs no cluster.
        return print.print(&object, "created", dry_run);
    }
    let session = connection.connect().await?;
    if let CreateKind::Localqueue(queue) = &args.kind {
        let cluster_queue = queue.clusterqueue.as_deref().unwrap_or_default();
        if cluster_queue.is_empty() {
            bail!("clusterqueue must be specified");
        }
        if !queue.ignore_unknown_cq {
            session.caller.get(&PeopleKind::ClusterQueue.object("", cluster_queue)).await?;
        }
    }
    let writer = Writer { caller: &session.caller, dry_run };
    let stored = writer.send(&kind.collection(Some(&session.namespace)), Write::Create(&object)).await?;
    let mut shown = stored.unwrap_or_else(|| object.clone());
    if let (Some(fields), Some(counts)) = (shown.as_object_mut(), object.get("status")) {
        // The server drops the status of a created object.
        fields.entry("status").or_insert_with(|| counts.clone());
    }
    print.print(&shown, "created", dry_run)
}
