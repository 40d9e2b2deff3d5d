//! Checks the values of a framework file and turns them into the parts of a row.
//!
//! Invariants: all faults are collected, each with its field; what is read is kept for the life of the process, because rows are
//! shared by reference everywhere. A refused file ends the process, so that nothing piles up.

use super::super::row::{
    self, Active, Between, Count, FinishedRule, LabelValue, Message, PodLabel, PodSetSource, Pointer, Test,
};
use super::super::view::Gvk;
use super::super::workload::{MAX_POD_SET_NAME, MAX_POD_SETS};
use super::schema;
use crate::api::validation::syntax;
use std::collections::BTreeSet;

/// Maximum depth of tests and products: recursion over a hostile file must end before the stack does.
const DEPTH: usize = 8;
/// Maximum length of the name of a kind or a resource.
const NAME_MAX: usize = 63;

/// The part of an object, or of a role, in which a field must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Root {
    /// The spec: what a start and a stop write, and what describes the pods.
    Spec,
    /// The status.
    Status,
    /// The spec or the status.
    Either,
    /// The whole object.
    Object,
    /// A role, whatever it contains.
    Role,
}

/// Keeps a text for the life of the process.
pub(super) fn forever(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

fn all_forever<T>(items: Vec<T>) -> &'static [T] {
    Box::leak(items.into_boxed_slice())
}

/// Reads the parts of a row and collects their faults.
#[derive(Debug, Default)]
pub(super) struct Reader {
    faults: Vec<String>,
}

impl Reader {
    /// Returns the faults, in the order in which the fields were read.
    pub(super) fn into_faults(self) -> Vec<String> {
        self.faults
    }

    fn fault(&mut self, field: &str, problem: impl AsRef<str>) {
        self.faults.push(format!("{field}: {}", problem.as_ref()));
    }

    /// Reads how objects of the kind are addressed. The names occur in URLs and manifests.
    pub(super) fn resource(&mut self, resource: schema::Resource) -> Gvk {
        let schema::Resource { group, version, kind, plural } = resource;
        if !group.contains('.') || !syntax::subdomain(&group).is_empty() {
            self.fault(
                "resource.group",
                format!("{group:?} must be the group of a custom resource, such as example.com"),
            );
        }
        if group.split_once('.').is_some_and(|(_, above)| above == crate::api::GROUP)
            || group == crate::api::GROUP
        {
            self.fault("resource.group", format!("{group:?} is a group of the manager's own kinds"));
        }
        for (field, text) in [("resource.version", &version), ("resource.plural", &plural)] {
            if text.contains('.') || text.len() > NAME_MAX || !syntax::subdomain(text).is_empty() {
                self.fault(field, format!("{text:?} must consist of lower case letters, digits and '-'"));
            }
        }
        self.kind("resource.kind", &kind);
        Gvk { group: forever(group), version: forever(version), kind: forever(kind), plural: forever(plural) }
    }

    fn kind(&mut self, field: &str, kind: &str) {
        let is_word = kind.starts_with(|first: char| first.is_ascii_uppercase())
            && kind.len() <= NAME_MAX
            && kind.chars().all(|letter| letter.is_ascii_alphanumeric());
        if !is_word {
            self.fault(
                field,
                format!("{kind:?} must consist of letters and digits and begin with a capital letter"),
            );
        }
    }

    /// Reads a JSON pointer.
    pub(super) fn pointer(&mut self, field: &str, text: String, root: Root) -> Pointer {
        let segments: Vec<&str> = text.split('/').skip(1).collect();
        let first = segments.first().copied().unwrap_or_default();
        let in_object = match root {
            Root::Spec => first == "spec",
            Root::Status => first == "status",
            Root::Either => matches!(first, "spec" | "status"),
            Root::Object => matches!(first, "metadata" | "spec" | "status"),
            Root::Role => true,
        };
        let place = match root {
            Root::Spec => "below /spec",
            Root::Status => "below /status",
            Root::Either => "below /spec or /status",
            Root::Object => "below /metadata, /spec or /status",
            Root::Role => "relative to the role, such as /template",
        };
        let is_deep = root == Root::Role || segments.len() > 1;
        if !text.starts_with('/') || !in_object || !is_deep {
            self.fault(field, format!("{text:?} must be a JSON pointer {place}"));
        } else if segments.iter().any(|segment| segment.is_empty() || segment.contains('~')) {
            self.fault(field, format!("{text:?} must name fields without '/' and '~'"));
        } else if segments.iter().any(|segment| segment.bytes().all(|byte| byte.is_ascii_digit())) {
            self.fault(field, format!("{text:?} must not name an item of a list"));
        }
        forever(text)
    }

    /// Reads a label key.
    pub(super) fn label(&mut self, field: &str, text: String) -> &'static str {
        for problem in syntax::qualified_name(&text) {
            self.fault(field, problem);
        }
        forever(text)
    }

    /// Reads the labels by which the pods of a job are found.
    pub(super) fn pod_labels(&mut self, labels: Vec<schema::PodLabel>) -> &'static [PodLabel] {
        let read = |(index, schema::PodLabel { label, value }): (usize, schema::PodLabel)| {
            let field = format!("podLabels[{index}]");
            let key = self.label(&format!("{field}.label"), label);
            let value = match value {
                schema::LabelValue::Field(pointer) => {
                    LabelValue::Field(self.pointer(&format!("{field}.value.field"), pointer, Root::Object))
                }
                schema::LabelValue::Text(text) => {
                    for problem in syntax::label_value(&text) {
                        self.fault(&format!("{field}.value.text"), problem);
                    }
                    LabelValue::Text(forever(text))
                }
            };
            PodLabel { key, value }
        };
        let read: Vec<PodLabel> = labels.into_iter().enumerate().map(read).collect();
        if !read.iter().any(|label| matches!(label.value, LabelValue::Field(_))) {
            self.fault("podLabels", "must have a label whose value is a field: others are those of all jobs");
        }
        all_forever(read)
    }

    /// Reads the field that names the controller of a job.
    pub(super) fn managed_by(&mut self, managed_by: schema::ManagedBy) -> row::ManagedBy {
        if managed_by.controller.is_empty() {
            self.fault("managedBy.controller", "must not be empty");
        }
        row::ManagedBy {
            field: self.pointer("managedBy.field", managed_by.field, Root::Spec),
            built_in: forever(managed_by.controller),
        }
    }

    /// Reads where the pod templates are.
    pub(super) fn pod_sets(&mut self, sets: Vec<schema::PodSets>) -> &'static [PodSetSource] {
        if sets.is_empty() || sets.len() > MAX_POD_SETS {
            self.fault("podSets", format!("must have 1 to {MAX_POD_SETS} entries"));
        }
        let sources =
            sets.into_iter().enumerate().map(|(index, set)| self.pod_set(&format!("podSets[{index}]"), set));
        let sources: Vec<PodSetSource> = sources.collect();
        self.check_overlap(&sources);
        all_forever(sources)
    }

    fn pod_set(&mut self, field: &str, set: schema::PodSets) -> PodSetSource {
        match set {
            schema::PodSets::Fixed(set) => {
                self.pod_set_name(&format!("{field}.fixed.name"), &set.name);
                PodSetSource::Fixed {
                    name: forever(set.name),
                    template: self.pointer(&format!("{field}.fixed.template"), set.template, Root::Spec),
                    count: self.count(&format!("{field}.fixed.count"), set.count, Root::Spec, DEPTH),
                }
            }
            schema::PodSets::List(set) => PodSetSource::Array {
                list: self.pointer(&format!("{field}.list.list"), set.list, Root::Spec),
                name: self.pointer(&format!("{field}.list.name"), set.name, Root::Role),
                template: self.pointer(&format!("{field}.list.template"), set.template, Root::Role),
                count: self.count(&format!("{field}.list.count"), set.count, Root::Role, DEPTH),
            },
            schema::PodSets::Map(set) => {
                if set.keys.is_empty() {
                    self.fault(
                        &format!("{field}.map.keys"),
                        "must name the roles, in the order of their pod sets",
                    );
                }
                for key in &set.keys {
                    self.pod_set_name(&format!("{field}.map.keys"), &key.to_lowercase());
                }
                PodSetSource::Map {
                    map: self.pointer(&format!("{field}.map.map"), set.map, Root::Spec),
                    order: all_forever(set.keys.into_iter().map(forever).collect()),
                    others: false,
                    template: self.pointer(&format!("{field}.map.template"), set.template, Root::Role),
                    count: self.count(&format!("{field}.map.count"), set.count, Root::Role, DEPTH),
                }
            }
        }
    }

    fn pod_set_name(&mut self, field: &str, name: &str) {
        if name.contains('.') || name.len() > MAX_POD_SET_NAME || !syntax::subdomain(name).is_empty() {
            self.fault(field, format!("{name:?} must consist of lower case letters, digits and '-'"));
        }
    }

    /// Refuses names and templates that occur twice: the pods would be counted twice.
    fn check_overlap(&mut self, sources: &[PodSetSource]) {
        let (mut names, mut places) = (BTreeSet::new(), BTreeSet::new());
        for source in sources {
            let (own, place): (Vec<String>, &str) = match source {
                PodSetSource::Fixed { name, template, .. } => (vec![(*name).to_owned()], template),
                PodSetSource::Array { list, .. } => (Vec::new(), list),
                PodSetSource::Map { map, order, .. } => {
                    (order.iter().map(|key| key.to_lowercase()).collect(), map)
                }
                PodSetSource::LeaderAndWorkers { leader, .. } => (Vec::new(), leader),
            };
            for name in own {
                if !names.insert(name.clone()) {
                    self.fault("podSets", format!("the name {name:?} occurs twice"));
                }
            }
            if !places.insert(place) {
                self.fault("podSets", format!("{place:?} occurs twice"));
            }
        }
    }

    fn count(&mut self, field: &str, count: schema::Count, root: Root, depth: usize) -> Count {
        let Some(deeper) = depth.checked_sub(1) else {
            self.fault(field, format!("must have at most {DEPTH} levels"));
            return Count::One;
        };
        match count {
            schema::Count::One => Count::One,
            schema::Count::Field(pointer) => {
                Count::Field(self.pointer(&format!("{field}.field"), pointer, root))
            }
            schema::Count::Job(job) => Count::Job {
                parallelism: self.pointer(&format!("{field}.job.parallelism"), job.parallelism, root),
                completions: self.pointer(&format!("{field}.job.completions"), job.completions, root),
            },
            schema::Count::Between(schema::BetweenCount { field: count, min, max }) => {
                let mut at = |name, text| self.pointer(&format!("{field}.between.{name}"), text, root);
                Count::Between(Between {
                    count: at("field", count),
                    least: at("min", min),
                    most: at("max", max),
                })
            }
            schema::Count::Unless(unless) => {
                let schema::UnlessCount { field: off, count } = *unless;
                let off = self.pointer(&format!("{field}.unless.field"), off, root);
                Count::Unless(off, self.count_forever(&format!("{field}.unless.count"), count, root, deeper))
            }
            schema::Count::Product(factors) => {
                let (a, b) = *factors;
                let mut factor = |index: usize, factor| {
                    self.count_forever(&format!("{field}.product[{index}]"), factor, root, deeper)
                };
                Count::Product(factor(0, a), factor(1, b))
            }
        }
    }

    fn count_forever(
        &mut self,
        field: &str,
        count: schema::Count,
        root: Root,
        depth: usize,
    ) -> &'static Count {
        Box::leak(Box::new(self.count(field, count, root, depth)))
    }

    /// Reads the kinds that the controller creates.
    pub(super) fn created(&mut self, kinds: Vec<schema::Created>) -> &'static [(&'static str, &'static str)] {
        let mut read = Vec::new();
        for (index, schema::Created { group, kind }) in kinds.into_iter().enumerate() {
            if !group.is_empty() && !syntax::subdomain(&group).is_empty() {
                self.fault(
                    &format!("creates[{index}].group"),
                    format!("{group:?} must be an API group; \"\" is that of pods"),
                );
            }
            self.kind(&format!("creates[{index}].kind"), &kind);
            read.push((forever(group), forever(kind)));
        }
        if read.is_empty() {
            self.fault(
                "creates",
                "must name the kinds of the objects that its controller creates, such as Pod of group \"\"",
            );
        }
        all_forever(read)
    }

    /// Reads when a job is finished.
    pub(super) fn finished(&mut self, rules: Vec<schema::Finished>) -> &'static [FinishedRule] {
        let rule = |(index, rule): (usize, schema::Finished)| {
            let field = format!("finished[{index}]");
            let success = rule.result == schema::JobResult::Succeeded;
            let when = self.test(&format!("{field}.when"), rule.when);
            let message = match (rule.message, when) {
                (Some(pointer), _) => {
                    Message::Field(self.pointer(&format!("{field}.message"), pointer, Root::Status))
                }
                (None, Test::Condition(_)) => Message::OfCondition,
                (None, _) if success => Message::Text("Job finished successfully"),
                (None, _) => Message::Text("Job failed"),
            };
            FinishedRule { when, success, message }
        };
        let rules: Vec<FinishedRule> = rules.into_iter().enumerate().map(rule).collect();
        all_forever(rules)
    }

    /// Reads when pods of a job may still run.
    pub(super) fn active(&mut self, active: schema::Active) -> Active {
        match active {
            schema::Active::Counts(pointers) => {
                if pointers.is_empty() {
                    self.fault("active.counts", "must not be empty: quota would be released while pods run");
                }
                let read =
                    pointers.into_iter().map(|pointer| self.pointer("active.counts", pointer, Root::Status));
                Active::Counts(all_forever(read.collect()))
            }
            schema::Active::Sum(sum) => Active::SumOver(
                self.pointer("active.sum.over", sum.over, Root::Status),
                self.pointer("active.sum.field", sum.field, Root::Role),
            ),
            schema::Active::When(test) => Active::When(self.test("active.when", test)),
        }
    }

    /// Reads a test.
    pub(super) fn test(&mut self, field: &str, test: schema::Test) -> Test {
        self.test_at(field, test, DEPTH)
    }

    fn test_at(&mut self, field: &str, test: schema::Test, depth: usize) -> Test {
        let Some(deeper) = depth.checked_sub(1) else {
            self.fault(field, format!("must have at most {DEPTH} levels"));
            return Test::All(&[]);
        };
        match test {
            schema::Test::Condition(name) => {
                Test::Condition(self.condition(&format!("{field}.condition"), name))
            }
            schema::Test::NotTrue(name) => Test::NotTrue(self.condition(&format!("{field}.notTrue"), name)),
            schema::Test::Text(test) => {
                if test.values.is_empty() {
                    self.fault(&format!("{field}.text.values"), "must not be empty");
                }
                let pointer = self.pointer(&format!("{field}.text.field"), test.field, Root::Either);
                Test::Text(pointer, all_forever(test.values.into_iter().map(forever).collect()))
            }
            schema::Test::Not(test) => {
                Test::Not(Box::leak(Box::new(self.test_at(&format!("{field}.not"), *test, deeper))))
            }
            schema::Test::All(tests) => Test::All(self.tests(&format!("{field}.all"), tests, deeper)),
            schema::Test::Any(tests) => Test::Any(self.tests(&format!("{field}.any"), tests, deeper)),
        }
    }

    fn condition(&mut self, field: &str, name: String) -> &'static str {
        if name.is_empty() {
            self.fault(field, "must name a condition");
        }
        forever(name)
    }

    fn tests(&mut self, field: &str, tests: Vec<schema::Test>, depth: usize) -> &'static [Test] {
        if tests.is_empty() {
            self.fault(field, "must not be empty");
        }
        let read = tests
            .into_iter()
            .enumerate()
            .map(|(index, test)| self.test_at(&format!("{field}[{index}]"), test, depth));
        all_forever(read.collect())
    }
}
