//! Examples of each verb, for its help and its manual page.
//!
//! Invariants: each verb that help lists has two examples, but for the few with one use alone; each is a command line that parses.

/// A command line, and its purpose.
#[derive(Clone, Copy, Debug)]
pub(super) struct Example {
    pub(super) purpose: &'static str,
    pub(super) line: &'static str,
}

const fn row(path: &'static str, purpose: &'static str, line: &'static str) -> (&'static str, Example) {
    (path, Example { purpose, line })
}

/// Most examples of a verb that shows the examples of the verbs below it.
const OF_PARENT: usize = 4;

/// Examples by the words of the verb.
const EXAMPLES: &[(&str, Example)] = &[
    row("", "Why a job waits, and what would change that", "sluice why job/train"),
    row(
        "",
        "What is pending in a ClusterQueue, in its order",
        "sluice list workload -A -c nlp --status pending",
    ),
    row("", "Which configuration cannot do what it says", "sluice audit"),
    row("", "What would change with more quota", "sluice what-if --quota nlp:h100:nvidia.com/gpu=64"),
    row("manager", "Run with a configuration file", "sluice manager --config=/config.yaml"),
    row(
        "manager",
        "Log as text, one module in more detail",
        "sluice manager --log-format=text --log-level=info,sluice::kube=debug",
    ),
    row("config check", "Check a file before it is applied", "sluice config check config.yaml"),
    row(
        "config check",
        "Check it with feature gates of the command line",
        "sluice config check config.yaml --feature-gates TopologyAwareScheduling=false",
    ),
    row("crds", "Install the definitions", "sluice crds | kubectl apply --server-side -f -"),
    row("crds", "Write one file for each, for a repository", "sluice crds --write config/crd"),
    row("simulate", "Play manifests without a cluster", "sluice simulate config/samples"),
    row(
        "simulate",
        "What a cluster does without a node",
        "sluice simulate --from-cluster --drain-node h1 --compare",
    ),
    row("dump", "Write the state of a cluster, without secrets", "sluice dump -o cluster.yaml"),
    row("dump", "Play the state of another cluster", "sluice dump --context staging | sluice simulate -"),
    row(
        "framework manifests",
        "Webhooks and permissions of a kind of jobs",
        "sluice framework manifests kind.yaml",
    ),
    row(
        "framework manifests",
        "Write them as a Kustomize component",
        "sluice framework manifests kind.yaml --write components/kind",
    ),
    row("import", "Check what an import would do", "sluice import -n team --queuelabel team"),
    row(
        "import",
        "Import, with another LocalQueue for one value of the label",
        "sluice import -n ml --queuelabel team --queuemapping nlp=train --dry-run=false",
    ),
    row("migrate check", "What a change to Sluice would meet", "sluice migrate check"),
    row("migrate check", "The same for another cluster", "sluice migrate check --context staging"),
    row("migrate to-sluice", "The steps that are due", "sluice migrate to-sluice --dry-run"),
    row("migrate to-sluice", "Do them", "sluice migrate to-sluice --yes"),
    row("migrate to-kueue", "The steps that are due", "sluice migrate to-kueue --dry-run"),
    row("migrate to-kueue", "Do them", "sluice migrate to-kueue --yes"),
    row("version", "Which version this is", "sluice version"),
    row(
        "list workload",
        "What is pending in a ClusterQueue, in its order",
        "sluice list workload -A -c nlp --status pending",
    ),
    row("list workload", "What needs a change before it can run", "sluice list workload -A --reason stuck"),
    row("list workload", "With job, queue and what blocks it", "sluice list workload -o wide"),
    row(
        "list clusterqueue",
        "How full the queues are, of one flavor",
        "sluice list clusterqueue --flavor h100",
    ),
    row("list clusterqueue", "Each flavor and resource in turn", "sluice list clusterqueue --all"),
    row("list localqueue", "LocalQueues of a ClusterQueue", "sluice list localqueue -A -c nlp"),
    row("list localqueue", "LocalQueues of a namespace", "sluice list localqueue -n team"),
    row("list cohort", "Cohorts with their quota", "sluice list cohort"),
    row("list cohort", "As YAML, for a script", "sluice list cohort -o yaml"),
    row("list resourceflavor", "Flavors with their nodes and what is free", "sluice list resourceflavor"),
    row("list resourceflavor", "As comma-separated values", "sluice list resourceflavor -o csv"),
    row("list pods", "The pods of a job", "sluice list pods --for job/train"),
    row("list pods", "With their nodes", "sluice list pods --for job/train -o wide"),
    row("list finding", "What an audit finds in a namespace", "sluice list finding -n team"),
    row("list finding", "What it finds in the cluster", "sluice list finding -A"),
    row("list preemption", "What took quota in the last two hours", "sluice list preemption -A --since 2h"),
    row("list preemption", "What preempted a workload", "sluice list preemption --victim job-train-1a2b3"),
    row("list topology", "Topologies with their levels", "sluice list topology"),
    row("list topology", "As YAML, for a script", "sluice list topology -o yaml"),
    row("list priorityclass", "WorkloadPriorityClasses with their values", "sluice list priorityclass"),
    row(
        "list priorityclass",
        "WorkloadPriorityClasses with a label",
        "sluice list priorityclass -l team=nlp",
    ),
    row("why", "Why a job waits, and what would change that", "sluice why job/train"),
    row("why", "Why another workload is before it", "sluice why job/train --before job/eval"),
    row("why", "When it may be admitted", "sluice why job/train --when"),
    row("tree cohort", "How quota is lent below a cohort", "sluice tree cohort research --flavor h100"),
    row("tree cohort", "Each flavor and resource in turn", "sluice tree cohort --all"),
    row("tree job", "What became of a job", "sluice tree job job/train"),
    row("tree job", "The same with UIDs", "sluice tree job job/train --uid"),
    row("share", "The shares of a cohort", "sluice share research"),
    row("share", "The past usage of LocalQueues", "sluice share localqueue -c nlp"),
    row("capacity", "How many pods of 8 GPUs fit", "sluice capacity h100 --pod nvidia.com/gpu=8"),
    row("capacity", "What my own queue may use", "sluice capacity -q train --pod nvidia.com/gpu=8"),
    row("capacity", "Whether a job would fit", "sluice capacity --for job/train --fail"),
    row("usage", "Hours by namespace of the last week", "sluice usage --by namespace --since 7d"),
    row(
        "usage",
        "Hours of one resource by ClusterQueue",
        "sluice usage --resource nvidia.com/gpu --since 24h",
    ),
    row("usage", "What the hours cost", "sluice usage --by namespace --since 7d --prices prices.yaml"),
    row(
        "usage export",
        "Sums by day, for a spreadsheet",
        "sluice usage export --since 30d --rollup day --format csv -f usage.csv",
    ),
    row("usage export", "Each workload as a line of JSON", "sluice usage export --since 24h"),
    row("audit", "Findings of the cluster", "sluice audit"),
    row("audit", "Fail in a pipeline if something cannot work", "sluice audit --fail-on error"),
    row("status", "Whether the manager is well", "sluice status"),
    row("status", "Fail in a script if it is not", "sluice status --fail"),
    row("top", "Workloads of all namespaces", "sluice top -A"),
    row("top", "ClusterQueues", "sluice top queue"),
    row("describe", "A workload in full", "sluice describe workload job-train-1a2b3"),
    row("describe", "A ClusterQueue in full", "sluice describe clusterqueue nlp"),
    row("get", "An object as YAML", "sluice get clusterqueue nlp -o yaml"),
    row("get", "Workloads with their labels", "sluice get workloads -n team --show-labels"),
    row("edit", "Change a ClusterQueue in an editor", "sluice edit clusterqueue nlp"),
    row("edit", "Change a LocalQueue", "sluice edit localqueue train -n team"),
    row(
        "patch",
        "Stop a ClusterQueue by its field",
        "sluice patch clusterqueue nlp --type=merge --patch-file hold.yaml",
    ),
    row(
        "patch",
        "Stop a LocalQueue by its field",
        "sluice patch localqueue train -n team --type=merge --patch-file hold.yaml",
    ),
    row(
        "create clusterqueue",
        "A ClusterQueue with 8 GPUs",
        "sluice create cq nlp --cohort research --nominal-quota h100:nvidia.com/gpu=8",
    ),
    row(
        "create clusterqueue",
        "One that may borrow 4 CPUs more",
        "sluice create cq nlp --nominal-quota h100:cpu=8 --borrowing-limit h100:cpu=4",
    ),
    row(
        "create localqueue",
        "A LocalQueue of a ClusterQueue",
        "sluice create localqueue train -n team -c nlp",
    ),
    row(
        "create localqueue",
        "See the object first",
        "sluice create localqueue train -n team -c nlp --dry-run -o yaml",
    ),
    row(
        "create resourceflavor",
        "A flavor of nodes with a label",
        "sluice create resourceflavor h100 --node-labels gpu=h100",
    ),
    row(
        "create resourceflavor",
        "A flavor of nodes with a taint",
        "sluice create rf spot --node-labels pool=spot --node-taints spot=1:NoSchedule",
    ),
    row(
        "stop clusterqueue",
        "Admit nothing more, and let run what runs",
        "sluice stop clusterqueue nlp --keep-already-running",
    ),
    row("stop clusterqueue", "Admit nothing more, and evict what runs", "sluice stop clusterqueue nlp"),
    row("stop localqueue", "Stop a LocalQueue", "sluice stop localqueue train -n team"),
    row(
        "stop localqueue",
        "Let run what runs",
        "sluice stop localqueue train -n team --keep-already-running",
    ),
    row("stop workload", "Give the quota of a job back", "sluice stop workload job/train"),
    row("stop workload", "What stops, of a whole namespace", "sluice stop workload --all -n team --dry-run"),
    row("resume clusterqueue", "Admit again", "sluice resume clusterqueue nlp"),
    row("resume clusterqueue", "Admit again in several queues", "sluice resume clusterqueue nlp vision"),
    row("resume localqueue", "Resume a LocalQueue", "sluice resume localqueue train -n team"),
    row(
        "resume localqueue",
        "Let the server check it first",
        "sluice resume localqueue train -n team --dry-run=server",
    ),
    row("resume workload", "Queue a stopped job again", "sluice resume workload job/train"),
    row("resume workload", "All with a label", "sluice resume workload -l team=nlp"),
    row(
        "move workload",
        "Where a job would stand in another LocalQueue",
        "sluice move workload job/train --to eval --dry-run=server",
    ),
    row(
        "move workload",
        "Move a running job, which is stopped and resumed",
        "sluice move workload job/train --to eval --evict",
    ),
    row(
        "reprioritize workload",
        "Give a job another class",
        "sluice reprioritize workload job/train --class high",
    ),
    row(
        "reprioritize workload",
        "What that would change",
        "sluice reprioritize workload job/train --class high --dry-run",
    ),
    row("history purge", "Forget a namespace that is gone", "sluice history purge --namespace old-team"),
    row(
        "history purge",
        "Count what that would remove",
        "sluice history purge --namespace old-team --dry-run=server",
    ),
    row("delete workload", "Delete a job by its workload", "sluice delete workload job/train"),
    row(
        "delete workload",
        "What goes, of a whole namespace",
        "sluice delete workload --all -n team --dry-run",
    ),
    row("what-if", "What two more nodes change", "sluice what-if --add-nodes 2 --like h1"),
    row("what-if", "What a drained node evicts", "sluice what-if --drain h1 --run-for 4h"),
    row("what-if", "What another priority of a job changes", "sluice what-if --priority job/train=300"),
    row("completion bash", "Complete in this shell", "source <(sluice completion bash)"),
    row("completion zsh", "Complete in this shell", "source <(sluice completion zsh)"),
    row("completion fish", "Complete in this shell", "sluice completion fish | source"),
    row(
        "completion powershell",
        "Complete in this shell",
        "sluice completion powershell | Out-String | Invoke-Expression",
    ),
    row("man", "The page of a verb", "sluice man list workload | man -l -"),
    row("man", "All pages", "sluice man --write man1"),
    row("options", "The flags for the cluster and the user", "sluice options"),
];

/// Returns the examples of a verb by its words; for a verb without examples the first ones of the verbs below it.
pub(super) fn of(path: &str) -> Vec<Example> {
    let all = || EXAMPLES.iter();
    let own: Vec<Example> = all().filter(|(of, _)| *of == path).map(|(_, example)| *example).collect();
    if !own.is_empty() {
        return own;
    }
    let below = all().filter(|(of, _)| of.strip_prefix(path).is_some_and(|rest| rest.starts_with(' ')));
    below.map(|(_, example)| *example).take(OF_PARENT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use crate::cli::people::connection::HEADING;
    use clap::{Command, CommandFactory};

    /// Flags that many verbs have.
    const SHARED: [&str; 9] = [
        "output",
        "show_managed_fields",
        "no_headers",
        "color",
        "local",
        "source",
        "dry_run",
        "yes",
        "namespace",
    ];

    #[test]
    fn flags_of_a_verb_come_before_flags_of_the_connection() {
        let connection = crate::cli::people::connection_flags();
        let is_connection = |id: &str| connection.get_arguments().any(|flag| flag.get_id() == id);
        for mut program in [Cli::command(), crate::cli::people::kueuectl::command()] {
            program.build();
            let mut verbs: Vec<&Command> = vec![&program];
            let mut checked = 0;
            while let Some(verb) = verbs.pop() {
                verbs.extend(verb.get_subcommands());
                let shown = verb.get_arguments().filter(|arg| !arg.is_hide_set());
                let rank = |arg: &clap::Arg| match arg.get_id().as_str() {
                    "help" | "version" => None,
                    id if arg.get_help_heading() == Some(HEADING) => {
                        assert!(is_connection(id), "{}: {id} is no flag of the connection", verb.get_name());
                        Some(2)
                    }
                    id => Some(u8::from(SHARED.contains(&id))),
                };
                let ranks: Vec<u8> = shown.filter_map(rank).collect();
                // kueuectl's flags are in the order of kueuectl.
                if ranks.contains(&2) && program.get_name() == "sluice" {
                    assert!(ranks.is_sorted(), "{}: {ranks:?}", verb.get_bin_name().unwrap_or_default());
                    checked += 1;
                }
            }
            assert!(checked > 30 || program.get_name() != "sluice", "{checked}");
        }
    }

    #[test]
    fn each_example_parses_as_the_verb_that_it_is_of() {
        for (path, Example { line, purpose }) in EXAMPLES {
            let start = line.find("sluice ").unwrap();
            let line = line[start..].split(" | ").next().unwrap().trim_end_matches(')');
            let words: Vec<&str> = line.split(' ').collect();
            let matches = Cli::command().try_get_matches_from(&words);
            let matches = matches.unwrap_or_else(|error| panic!("{line}: {error}"));
            let (mut of, mut at) = (String::new(), &matches);
            while let Some((name, below)) = at.subcommand() {
                (of, at) = (format!("{of} {name}").trim_start().to_owned(), below);
            }
            assert!(path.is_empty() || of == *path, "{path}: {line}");
            assert!(!purpose.ends_with('.') && purpose.is_ascii() && line.is_ascii(), "{purpose}");
            assert!(!line.contains(['{', '}']), "{line}: a template of help has these for its parts");
        }
    }
}
