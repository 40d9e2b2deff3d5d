//! The sentence at the top of a workload's page.

use super::marks;
use super::text;
use crate::visibility::views::{BlockerKindView, Verdict, WorkloadState};

/// A piece of a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) text: String,
    pub(super) strong: bool,
}

fn plain(text: impl Into<String>) -> Piece {
    Piece { text: text.into(), strong: false }
}

fn strong(text: impl Into<String>) -> Piece {
    Piece { text: text.into(), strong: true }
}

/// Returns the sentence: what a pending workload lacks, or what an admitted workload has.
pub(super) fn sentence(verdict: &Verdict) -> Vec<Piece> {
    let row = &verdict.workload;
    match row.state {
        WorkloadState::Pending => pending(verdict),
        WorkloadState::QuotaReserved => vec![plain("It has quota, and waits for its admission checks.")],
        WorkloadState::Admitted => admitted(verdict),
        WorkloadState::Evicted => {
            vec![plain("It must stop, and keeps its quota until its pods have terminated.")]
        }
        WorkloadState::Finished => vec![plain("Its job has finished.")],
    }
}

fn pending(verdict: &Verdict) -> Vec<Piece> {
    if !verdict.obstacle.is_empty() {
        return vec![plain(text::sentence(&verdict.obstacle))];
    }
    let Some(blocker) = verdict.main_blocker() else {
        return vec![plain(if verdict.workload.message.is_empty() {
            "It has not been evaluated yet.".to_owned()
        } else {
            text::sentence(&verdict.workload.message)
        })];
    };
    let node = marks::node_words(&blocker.node);
    match (blocker.kind, &blocker.requested, &blocker.limit) {
        (BlockerKindView::NeverFits, Some(requested), Some(limit)) if verdict.never_fits => vec![
            plain("It can never be admitted: it requests "),
            strong(text::amount(requested)),
            plain(format!(" {} in {}, and {node} can have at most ", blocker.resource, blocker.flavor)),
            strong(text::amount(limit)),
            plain("."),
        ],
        (BlockerKindView::InUse, Some(requested), _) => {
            let mut pieces = vec![
                plain("It needs "),
                strong(text::amount(requested)),
                plain(format!(" {} in {}.", blocker.resource, blocker.flavor)),
            ];
            if let (Some(available), Some(missing)) = (&blocker.available, &blocker.missing) {
                pieces.extend([
                    plain(format!(" {node} may still use ")),
                    strong(text::amount(available)),
                    plain(": "),
                    strong(text::amount(missing)),
                    plain(if missing.value == "1" { " is missing." } else { " are missing." }),
                ]);
            }
            pieces
        }
        _ if !blocker.text.is_empty() && verdict.never_fits => {
            vec![plain(text::sentence(&format!("It can never be admitted as it is: {}", blocker.text)))]
        }
        _ if !blocker.text.is_empty() => vec![plain(text::sentence(&blocker.text))],
        _ => vec![plain(text::sentence(&verdict.workload.message))],
    }
}

fn admitted(verdict: &Verdict) -> Vec<Piece> {
    let Some(admission) = &verdict.admission else { return vec![plain("Its job may run.")] };
    let mut pieces = Vec::new();
    for pod_set in &admission.pod_sets {
        if !pieces.is_empty() {
            pieces.push(plain("; "));
        }
        pieces.push(strong(text::count(pod_set.count)));
        pieces.push(plain(if pod_set.count == 1 { " pod" } else { " pods" }));
        if let Some(need) = pod_set.resources.first() {
            pieces.push(plain(" with "));
            pieces.push(strong(text::amount(&need.amount)));
            pieces.push(plain(format!(" {} in {}", need.resource, need.flavor)));
        }
    }
    if let Some(end) = admission.ends_by {
        pieces.push(plain(", until "));
        pieces.push(strong(end.strftime("%Y-%m-%d %H:%M UTC").to_string()));
        pieces.push(plain(" at the latest"));
    }
    pieces.push(plain(if admission.borrows {
        ", in part on borrowed quota."
    } else {
        ", within nominal quota."
    }));
    pieces
        .extend(verdict.blockers.iter().map(|blocker| strong(format!(" {}", text::sentence(&blocker.text)))));
    let preemptors =
        admission.preemptible_by.iter().map(|by| plain(format!(" It may be preempted by {by}.")));
    pieces.extend(preemptors);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::visibility::views::{AdmissionView, AmountView, BlockerView, WorkloadView};

    fn said(verdict: &Verdict) -> String {
        sentence(verdict).into_iter().map(|piece| piece.text).collect()
    }

    fn amount(value: u64) -> AmountView {
        AmountView { value: value.to_string(), number: Some(value.into()) }
    }

    #[test]
    fn a_pending_workload_lacks_numbers() {
        let mut verdict = Verdict {
            blockers: vec![BlockerView {
                node: "ClusterQueue/nlp".to_owned(),
                flavor: "h100".to_owned(),
                resource: "gpu".to_owned(),
                requested: Some(amount(64)),
                available: Some(amount(8)),
                missing: Some(amount(56)),
                limit: Some(amount(192)),
                ..BlockerView::default()
            }],
            workload: WorkloadView { message: "the condition".to_owned(), ..WorkloadView::default() },
            ..Verdict::default()
        };
        assert_eq!(
            said(&verdict),
            "It needs 64 gpu in h100. ClusterQueue nlp may still use 8: 56 are missing."
        );
        verdict.blockers[0].kind = BlockerKindView::NeverFits;
        verdict.never_fits = true;
        assert_eq!(
            said(&verdict),
            "It can never be admitted: it requests 64 gpu in h100, and ClusterQueue nlp can have at most 192."
        );
        verdict.blockers.clear();
        assert_eq!(said(&verdict), "The condition.");
        verdict.workload.message.clear();
        assert_eq!(said(&verdict), "It has not been evaluated yet.");
    }

    #[test]
    fn what_may_preempt_a_running_workload_is_a_sentence() {
        let admission = AdmissionView {
            preemptible_by: vec!["a workload of ClusterQueue nlp with a priority above 100".to_owned()],
            ..AdmissionView::default()
        };
        let text = admitted(&Verdict { admission: Some(admission), ..Verdict::default() });
        let text: String = text.into_iter().map(|piece| piece.text).collect();
        let expected = ". It may be preempted by a workload of ClusterQueue nlp with a priority above 100.";
        assert!(text.ends_with(expected), "{text}");
    }
}
