//! Findings about jobs and AdmissionChecks.

use super::{Audit, Said, counted, finding, finding_in_namespace, meant, number, verb};
use crate::api::ObjectKey;
use crate::api::similar::nearest;
use crate::snapshot::AuditFacts;
use crate::visibility::views::{Check, Finding};

impl Audit<'_> {
    pub(super) fn jobs(&self, facts: &AuditFacts, found: &mut Vec<Finding>) {
        let classes = &facts.classes;
        for ((namespace, class), jobs) in &facts.missing_classes {
            let near = nearest(class, classes.iter().map(AsRef::as_ref));
            let said = Said {
                message: format!(
                    "{} {} class {class}{}",
                    counted(*jobs, "Job"),
                    verb(*jobs, "name"),
                    meant(near)
                ),
                consequence: "no Workload is made for them until there is a WorkloadPriorityClass of this name",
                correction: self
                    .correction("change the label kueue.x-k8s.io/priority-class", "create the class"),
                ..Said::default()
            };
            let said = said.with("jobs", number(*jobs));
            found.push(finding_in_namespace(Check::PriorityClassMissing, (namespace, class), said));
        }
        for ((namespace, kind), jobs) in &facts.unmanaged_jobs {
            let said = Said {
                message: format!("{} {} without a queue name", counted(*jobs, kind), verb(*jobs, "run")),
                consequence: "they use nodes that the quota counts as free",
                correction: self
                    .correction("set the label kueue.x-k8s.io/queue-name", "manageJobsWithoutQueueName"),
                ..Said::default()
            };
            let said = said.with("jobs", number(*jobs));
            found.push(finding_in_namespace(Check::JobUnmanaged, (namespace, kind), said));
        }
        for ((kind, job), uncharged) in &facts.low_charges {
            let said = Said {
                message: format!("an earlier version charged it too little; not charged: {uncharged}"),
                consequence: "its queue may be above its quota by as much",
                correction: "start it again: set spec.suspend; or change its size".to_owned(),
                ..Said::default()
            };
            found.push(finding(Check::JobChargedTooLittle, (kind, job), said));
        }
        for (name, _) in facts.checks.iter().filter(|(_, active)| !**active) {
            let said = Said {
                message: "no controller says that it is active".to_owned(),
                consequence: "ClusterQueues with this check are inactive",
                correction: format!("kubectl describe admissioncheck {name}"),
                ..Said::default()
            };
            found.push(finding(Check::CheckUnanswered, ("AdmissionCheck", &ObjectKey::cluster(name)), said));
        }
    }
}
