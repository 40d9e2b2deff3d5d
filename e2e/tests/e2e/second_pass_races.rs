//! What comes between a reason for a second pass and its end, as other controllers, users and the manager itself do it.

use crate::second_pass::{Interference, PassKind, RaceCase, assigned_host};
use anyhow::{Context as _, Result};
use kube::api::{Patch, PatchParams, PropagationPolicy};
use serde_json::{Value, json};
use sluice_e2e::objects::{self, Kind, condition, condition_is_true};
use sluice_e2e::wait::eventually;
use std::fs;
use std::time::Duration;

const STAMP: &str = "2026-01-01T00:00:00Z";

impl RaceCase<'_> {
    /// Writes the status as the manager would, on the newest version.
    pub(crate) async fn update_status(&self, change: impl Fn(&mut Value)) -> Result<()> {
        let api = self.pass_fixture.fixture.objects.api(Kind::WORKLOAD, &self.pass_fixture.fixture.name);
        eventually("the status is written", async || {
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

    /// Gives the reason for the pass.
    pub(crate) async fn trigger_pass(&self, before: &Value) -> Result<()> {
        match self.pass_kind {
            PassKind::DelayedAssignment => self.set_check_state("Ready").await,
            PassKind::NodeReplacement => {
                let host = assigned_host(before).context("no host")?;
                self.update_status(|status| status["unhealthyNodes"] = json!([{"name": host}])).await
            }
        }
    }

    /// First what comes between, then the reason for the pass. One that is made again has its reason before it goes.
    pub(crate) async fn intervene_before_pass(&self, before: &Value) -> Result<()> {
        if self.interference == Interference::Recreated {
            self.mark_deleted().await?;
            if self.guarded {
                self.trigger_pass(before).await?;
                // It is seen as long as it is there.
                tokio::time::sleep(Duration::from_millis(500)).await;
                return self.recreate().await;
            }
            // Without guards it is armed all the same, and halts for what comes.
            fs::write(self.script_file("armed"), "")?;
            self.trigger_pass(before).await?;
            self.wait_for_step("armed").await?;
            self.recreate().await?;
            return Ok(fs::remove_file(self.script_file("armed"))?);
        }
        self.intervene().await?;
        self.trigger_pass(before).await
    }

    /// What comes between.
    pub(crate) async fn intervene(&self) -> Result<()> {
        let ground = self.pass_fixture.fixture;
        let evicted = |w: &Value| condition_is_true(w, "Evicted");
        match self.interference {
            Interference::Undisturbed => Ok(()),
            Interference::Finished => {
                self.update_status(|status| set_condition(status, "Finished", "True", "Succeeded")).await
            }
            Interference::Preempted => {
                self.create(&format!("{}-preemptor", self.name), 100, "1").await?;
                self.wait_until("it is evicted", evicted).await.map(drop)
            }
            Interference::Deleted => self.mark_deleted().await,
            Interference::Recreated => {
                self.mark_deleted().await?;
                self.recreate().await
            }
            Interference::Deactivated => {
                ground.set_spec(Kind::WORKLOAD, &ground.name, &self.name, json!({"active": false})).await?;
                self.wait_until("it is evicted", evicted).await.map(drop)
            }
            Interference::Unreserved => self.remove_reservation().await,
            Interference::Retried => {
                self.set_check_state("Retry").await?;
                self.wait_until("it is evicted", evicted).await.map(drop)
            }
            Interference::Drained => {
                let spec = json!({"stopPolicy": "HoldAndDrain"});
                ground.set_spec(Kind::LOCAL_QUEUE, &ground.name, &self.name, spec).await?;
                self.wait_until("it lets go", |w| evicted(w) || !condition_is_true(w, "QuotaReserved"))
                    .await
                    .map(drop)
            }
        }
    }

    async fn mark_deleted(&self) -> Result<()> {
        let ground = self.pass_fixture.fixture;
        let how = PropagationPolicy::Background;
        ground.objects.delete(Kind::WORKLOAD, &ground.name, &self.name, how).await?;
        Ok(())
    }

    async fn recreate(&self) -> Result<()> {
        let ground = self.pass_fixture.fixture;
        let none = json!({"metadata": {"finalizers": null}});
        ground.objects.merge(Kind::WORKLOAD, &ground.name, &self.name, &none).await?;
        self.create(&self.name, 0, "1").await?;
        self.wait_until("the new one holds quota", |w| condition_is_true(w, "QuotaReserved")).await.map(drop)
    }

    /// Somebody takes its reservation, and there is no quota for another.
    async fn remove_reservation(&self) -> Result<()> {
        let ground = self.pass_fixture.fixture;
        let name = ground.own_name(&self.name);
        let none = objects::cluster_queue(&name, "", &ground.own_name("placed"), &[("cpu", "0", None)]);
        let groups = json!({"resourceGroups": none["spec"]["resourceGroups"]});
        ground.set_spec(Kind::CLUSTER_QUEUE, "", &name, groups).await?;
        self.update_status(|status| {
            set_condition(status, "QuotaReserved", "False", "Pending");
            set_condition(status, "Admitted", "False", "NoReservation");
            if let Some(status) = status.as_object_mut() {
                status.shift_remove("admission");
            }
        })
        .await?;
        self.wait_until("there is no quota", |w| condition(w, "QuotaReserved").reason == "ExceedsMaxQuota")
            .await
            .map(drop)
    }
}

/// Sets a condition in a status.
pub(crate) fn set_condition(status: &mut Value, kind: &str, holds: &str, reason: &str) {
    let said =
        json!({"type": kind, "status": holds, "reason": reason, "message": "", "lastTransitionTime": STAMP});
    if let Some(all) = status["conditions"].as_array_mut() {
        all.retain(|condition| condition["type"] != kind);
        all.push(said);
    }
}
