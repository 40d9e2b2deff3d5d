//! The interferences of the second pass matrix (see `second_pass`), as other controllers, users and the manager cause
//! them.

use crate::second_pass::{RaceCase, assigned_host};
use crate::second_pass_matrix::{Interference, PassKind};
use anyhow::{Context as _, Result};
use kube::api::{Patch, PatchParams, PropagationPolicy};
use serde_json::{Value, json};
use sluice_e2e::objects::{self, Kind, condition, condition_is_true};
use sluice_e2e::wait::eventually;
use std::fs;
use std::time::Duration;

const STAMP: &str = "2026-01-01T00:00:00Z";

impl RaceCase<'_> {
    /// Changes the newest status and applies it as the manager would.
    pub(crate) async fn update_status(&self, change: impl Fn(&mut Value)) -> Result<()> {
        let api = self.pass_fixture.fixture.objects.api(Kind::WORKLOAD, &self.pass_fixture.fixture.name);
        eventually("the status is applied", async || {
            let workload = self.workload().await?;
            let mut status = workload["status"].clone();
            change(&mut status);
            let meta = json!({"name": self.name, "resourceVersion": workload["metadata"]["resourceVersion"]});
            let body = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": meta,
                "status": status});
            let params = PatchParams::apply("kueue-admission").force();
            api.patch_status(&self.name, &params, &Patch::Apply(&body)).await?;
            Ok(())
        })
        .await
    }

    pub(crate) async fn set_check_state(&self, state: &str) -> Result<()> {
        let gate = &self.pass_fixture.gate;
        self.update_status(|status| {
            for check in status["admissionChecks"].as_array_mut().into_iter().flatten() {
                if check["name"] == **gate {
                    check["state"] = json!(state);
                }
            }
        })
        .await
    }

    /// Creates the reason for the second pass.
    pub(crate) async fn trigger_pass(&self, before: &Value) -> Result<()> {
        match self.pass_kind {
            PassKind::DelayedAssignment => self.set_check_state("Ready").await,
            PassKind::NodeReplacement => {
                let host = assigned_host(before).context("no host")?;
                self.update_status(|status| status["unhealthyNodes"] = json!([{"name": host}])).await
            }
        }
    }

    /// Interferes first and triggers the pass afterwards. For `Recreated`, the pass is triggered before the Workload is
    /// gone.
    pub(crate) async fn intervene_before_pass(&self, before: &Value) -> Result<()> {
        if self.interference == Interference::Recreated {
            self.mark_deleted().await?;
            if self.guarded {
                self.trigger_pass(before).await?;
                // Give the manager time to see the reason before the Workload is gone.
                tokio::time::sleep(Duration::from_millis(500)).await;
                return self.recreate().await;
            }
            // Without guards the pass is scheduled nevertheless; stop it there until the Workload is recreated.
            fs::write(self.script_file("armed"), "")?;
            self.trigger_pass(before).await?;
            self.wait_for_step("armed").await?;
            self.recreate().await?;
            return Ok(fs::remove_file(self.script_file("armed"))?);
        }
        self.intervene().await?;
        self.trigger_pass(before).await
    }

    /// Causes the interference and waits until the manager has acted on it.
    pub(crate) async fn intervene(&self) -> Result<()> {
        let fixture = self.pass_fixture.fixture;
        let evicted = |w: &Value| condition_is_true(w, "Evicted");
        match self.interference {
            Interference::Undisturbed => Ok(()),
            Interference::Finished => {
                self.update_status(|status| set_condition(status, "Finished", "True", "Succeeded")).await
            }
            Interference::Preempted => {
                self.create(&format!("{}-preemptor", self.name), 100, "1").await?;
                self.wait_until("the workload is evicted", evicted).await.map(drop)
            }
            Interference::Deleted => self.mark_deleted().await,
            Interference::Recreated => {
                self.mark_deleted().await?;
                self.recreate().await
            }
            Interference::Deactivated => {
                fixture.set_spec(Kind::WORKLOAD, &fixture.name, &self.name, json!({"active": false})).await?;
                self.wait_until("the workload is evicted", evicted).await.map(drop)
            }
            Interference::Unreserved => self.remove_reservation().await,
            Interference::Retried => {
                self.set_check_state("Retry").await?;
                self.wait_until("the workload is evicted", evicted).await.map(drop)
            }
            Interference::Drained => {
                let spec = json!({"stopPolicy": "HoldAndDrain"});
                fixture.set_spec(Kind::LOCAL_QUEUE, &fixture.name, &self.name, spec).await?;
                self.wait_until("the workload is evicted or loses its reservation", |w| {
                    evicted(w) || !condition_is_true(w, "QuotaReserved")
                })
                .await
                .map(drop)
            }
        }
    }

    async fn mark_deleted(&self) -> Result<()> {
        let fixture = self.pass_fixture.fixture;
        let propagation = PropagationPolicy::Background;
        fixture.objects.delete(Kind::WORKLOAD, &fixture.name, &self.name, propagation).await?;
        Ok(())
    }

    async fn recreate(&self) -> Result<()> {
        let fixture = self.pass_fixture.fixture;
        let no_finalizers = json!({"metadata": {"finalizers": null}});
        fixture.objects.merge(Kind::WORKLOAD, &fixture.name, &self.name, &no_finalizers).await?;
        self.create(&self.name, 0, "1").await?;
        self.wait_until("the recreated workload has quota", |w| condition_is_true(w, "QuotaReserved"))
            .await
            .map(drop)
    }

    /// Removes the reservation as another client would, with quota 0 so that it cannot be reserved again.
    async fn remove_reservation(&self) -> Result<()> {
        let fixture = self.pass_fixture.fixture;
        let name = fixture.own_name(&self.name);
        let without_quota =
            objects::cluster_queue(&name, "", &fixture.own_name("placed"), &[("cpu", "0", None)]);
        let groups = json!({"resourceGroups": without_quota["spec"]["resourceGroups"]});
        fixture.set_spec(Kind::CLUSTER_QUEUE, "", &name, groups).await?;
        self.pass_fixture.wait_until_without_quota(&name).await?;
        self.update_status(|status| {
            set_condition(status, "QuotaReserved", "False", "Pending");
            set_condition(status, "Admitted", "False", "NoReservation");
            if let Some(status) = status.as_object_mut() {
                status.shift_remove("admission");
            }
        })
        .await?;
        self.wait_until("the workload exceeds all quota", |w| {
            condition(w, "QuotaReserved").reason == "ExceedsMaxQuota"
        })
        .await
        .map(drop)
    }
}

/// Sets a condition in a status.
pub(crate) fn set_condition(status: &mut Value, kind: &str, state: &str, reason: &str) {
    let new_condition =
        json!({"type": kind, "status": state, "reason": reason, "message": "", "lastTransitionTime": STAMP});
    if let Some(all) = status["conditions"].as_array_mut() {
        all.retain(|condition| condition["type"] != kind);
        all.push(new_condition);
    }
}
