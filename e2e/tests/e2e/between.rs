//! What comes between a reason for a second pass and its end, as other controllers, users and the manager itself do it.

use crate::matrix::{Cell, Pass, State, host};
use anyhow::{Context as _, Result};
use kube::api::{Patch, PatchParams, PropagationPolicy};
use serde_json::{Value, json};
use sluice_e2e::objects::{self, Kind, condition, holds};
use sluice_e2e::wait::eventually;
use std::fs;
use std::time::Duration;

const STAMP: &str = "2026-01-01T00:00:00Z";

impl Cell<'_> {
    /// Writes the status as the manager would, on the newest version.
    pub(crate) async fn rewrite(&self, change: impl Fn(&mut Value)) -> Result<()> {
        let api = self.stage.ground.objects.api(Kind::WORKLOAD, &self.stage.ground.name);
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

    pub(crate) async fn answer(&self, state: &str) -> Result<()> {
        let gate = &self.stage.gate;
        self.rewrite(|status| {
            for check in status["admissionChecks"].as_array_mut().into_iter().flatten() {
                if check["name"] == **gate {
                    check["state"] = json!(state);
                }
            }
        })
        .await
    }

    /// Gives the reason for the pass.
    pub(crate) async fn call_for_pass(&self, before: &Value) -> Result<()> {
        match self.pass {
            Pass::Late => self.answer("Ready").await,
            Pass::Instead => {
                let host = host(before).context("no host")?;
                self.rewrite(|status| status["unhealthyNodes"] = json!([{"name": host}])).await
            }
        }
    }

    /// First what comes between, then the reason for the pass. One that is made again has its reason before it goes.
    pub(crate) async fn intervene_early(&self, before: &Value) -> Result<()> {
        if self.state == State::Recreated {
            self.mark_deleted().await?;
            if self.guarded {
                self.call_for_pass(before).await?;
                // It is seen as long as it is there.
                tokio::time::sleep(Duration::from_millis(500)).await;
                return self.make_again().await;
            }
            // Without guards it is armed all the same, and halts for what comes.
            fs::write(self.file("armed"), "")?;
            self.call_for_pass(before).await?;
            self.reached("armed").await?;
            self.make_again().await?;
            return Ok(fs::remove_file(self.file("armed"))?);
        }
        self.intervene().await?;
        self.call_for_pass(before).await
    }

    /// What comes between.
    pub(crate) async fn intervene(&self) -> Result<()> {
        let ground = self.stage.ground;
        let evicted = |w: &Value| holds(w, "Evicted");
        match self.state {
            State::Undisturbed => Ok(()),
            State::Finished => self.rewrite(|status| set(status, "Finished", "True", "Succeeded")).await,
            State::Preempted => {
                self.create(&format!("{}-preemptor", self.name), 100, "1").await?;
                self.until("it is evicted", evicted).await.map(drop)
            }
            State::Deleted => self.mark_deleted().await,
            State::Recreated => {
                self.mark_deleted().await?;
                self.make_again().await
            }
            State::Deactivated => {
                ground.set(Kind::WORKLOAD, &ground.name, &self.name, json!({"active": false})).await?;
                self.until("it is evicted", evicted).await.map(drop)
            }
            State::Unreserved => self.lose_reservation().await,
            State::Retried => {
                self.answer("Retry").await?;
                self.until("it is evicted", evicted).await.map(drop)
            }
            State::Drained => {
                let spec = json!({"stopPolicy": "HoldAndDrain"});
                ground.set(Kind::LOCAL_QUEUE, &ground.name, &self.name, spec).await?;
                self.until("it lets go", |w| evicted(w) || !holds(w, "QuotaReserved")).await.map(drop)
            }
        }
    }

    async fn mark_deleted(&self) -> Result<()> {
        let ground = self.stage.ground;
        let how = PropagationPolicy::Background;
        ground.objects.delete(Kind::WORKLOAD, &ground.name, &self.name, how).await?;
        Ok(())
    }

    async fn make_again(&self) -> Result<()> {
        let ground = self.stage.ground;
        let none = json!({"metadata": {"finalizers": null}});
        ground.objects.merge(Kind::WORKLOAD, &ground.name, &self.name, &none).await?;
        self.create(&self.name, 0, "1").await?;
        self.until("the new one holds quota", |w| holds(w, "QuotaReserved")).await.map(drop)
    }

    /// Somebody takes its reservation, and there is no quota for another.
    async fn lose_reservation(&self) -> Result<()> {
        let ground = self.stage.ground;
        let name = ground.own(&self.name);
        let none = objects::cluster_queue(&name, "", &ground.own("placed"), &[("cpu", "0", None)]);
        let groups = json!({"resourceGroups": none["spec"]["resourceGroups"]});
        ground.set(Kind::CLUSTER_QUEUE, "", &name, groups).await?;
        self.rewrite(|status| {
            set(status, "QuotaReserved", "False", "Pending");
            set(status, "Admitted", "False", "NoReservation");
            if let Some(status) = status.as_object_mut() {
                status.shift_remove("admission");
            }
        })
        .await?;
        self.until("there is no quota", |w| condition(w, "QuotaReserved").reason == "ExceedsMaxQuota")
            .await
            .map(drop)
    }
}

/// Sets a condition in a status.
pub(crate) fn set(status: &mut Value, kind: &str, holds: &str, reason: &str) {
    let said =
        json!({"type": kind, "status": holds, "reason": reason, "message": "", "lastTransitionTime": STAMP});
    if let Some(all) = status["conditions"].as_array_mut() {
        all.retain(|condition| condition["type"] != kind);
        all.push(said);
    }
}
