//! Why a Workload is where it is, and when it may be admitted.
//!
//! Invariant: whether the reader may see the Workload is checked before another process is asked.

use axum::response::Response;

use super::{Asked, Refused};
use crate::server::apis::group::{QueryOption, SubresourceDescription};
use crate::server::apis::status;
use crate::visibility::access::Access;
use crate::visibility::page::ModelError;
use crate::visibility::questions::{LeaderAnswer, Question, VerdictQuestion, WorkloadName};
use crate::visibility::verdict;
use crate::visibility::views::Answer;
use crate::visibility::workloads::workload;

pub(super) const VERDICT: SubresourceDescription = SubresourceDescription {
    name: "verdict",
    kind: "Verdict",
    verbs: &["get"],
    options: &[
        QueryOption {
            name: "before",
            kind: "string",
            description: "another Workload, as NAME or NAMESPACE/NAME, to compare with",
        },
        QueryOption {
            name: "queue",
            kind: "string",
            description: "a LocalQueue of the namespace: the answer is that of the Workload in it",
        },
        QueryOption {
            name: "priority",
            kind: "integer",
            description: "a priority: the position is that of the Workload with it",
        },
        QueryOption {
            name: "when",
            kind: "boolean",
            description: "also when the Workload may be admitted, from what the reader may see; not with queue or priority",
        },
    ],
    description: "Why a Workload is where it is, and what would change that.",
};

impl Asked {
    /// Returns the priority of the query, which replaces that of the Workload.
    fn priority(&self) -> Result<Option<i64>, Refused> {
        let Some(text) = self.request.option("priority").filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        let refused =
            |_| Box::new(status::bad_request(&format!("priority: {text:?} is not a number of 64 bits")));
        text.parse().map(Some).map_err(refused)
    }

    /// Returns whether the query asks when the Workload may be admitted.
    fn asks_when(&self) -> Result<bool, Refused> {
        let given = |name: &str| self.request.option(name).is_some_and(|text| !text.is_empty());
        let refused = |text: &str| Err(Box::new(status::bad_request(text)));
        match self.request.option("when").as_deref().unwrap_or_default() {
            "" | "false" | "0" => Ok(false),
            "true" | "1" if given("queue") || given("priority") => {
                refused("when: not with queue or priority")
            }
            "true" | "1" => Ok(true),
            other => refused(&format!("when: {other:?} is neither true nor false")),
        }
    }

    pub(super) async fn verdict(&self, access: Access) -> Result<Response, Refused> {
        // Checked before the leader is asked, so that its answer cannot reveal whether an object exists.
        workload(&self.snapshot, &access, &self.key()).map_err(|error| self.refuse(&error))?;
        if !self.rate.admits(&self.request.user.name) {
            return Err(self.refuse(&ModelError::TooMany));
        }
        let target = &self.request.target;
        let before = self.request.option("before").filter(|text| !text.is_empty());
        let question = VerdictQuestion {
            access,
            workload: WorkloadName { namespace: target.namespace.clone(), name: target.name.clone() },
            before: before.map(|text| WorkloadName::parse(&text, &target.namespace)),
            queue: self.request.option("queue").filter(|text| !text.is_empty()),
            priority: self.priority()?,
        };
        let asks_when = self.asks_when()?;
        let mut answer = match self.leader.answer(Question::Verdict(question.clone())).await {
            Some(LeaderAnswer::Verdict(answer)) => *answer,
            Some(LeaderAnswer::Refused(error)) => return Err(self.refuse(&error)),
            _ => {
                let own = verdict::verdict(&self.snapshot, &question, None);
                let view = own.map_err(|error| self.refuse(&error))?;
                Answer { view, source: self.source(), partial: true }
            }
        };
        // It needs no leader: this process simulates the objects that it reads.
        if let Some(estimates) = self.estimates.as_ref().filter(|_| asks_when) {
            let user = self.request.user.name.clone();
            answer.view.estimate = Some(estimates.estimate(answer.view.clone(), question.access, user).await);
        }
        self.send_one(answer)
    }
}
