//! The pods of a SparkApplication, as its operator and Spark make them from the fields of a role and from `sparkConf`, as far as
//! quota and placement depend on it.
//!
//! Invariants: an amount that cannot be read is an error that names its field; what Spark requests beyond the fields of a role is
//! counted: cores where no request is given, memory beside the heap, and containers of the role's own pod template.

use super::JobError;
use super::played_status::set_at;
use super::read::{self, malformed};
use super::spark_texts::{self as texts, FORMER_NAMES, Form, shown};
use crate::resources::Quantity;
use serde_json::{Value, json};

/// Volumes with names like this are for Spark's own scratch space, and made by the operator.
const LOCAL_FOLDER: &str = "spark-local-dir-";

/// Memory that Spark adds to the heap at least, in MiB.
const LEAST_OVERHEAD: i64 = 384;

/// Amounts of a role that stand in its container, with their place there.
const AMOUNTS: [(&str, Form, &str); 2] =
    [("coreLimit", Form::Quantity, "/limits/cpu"), ("memoryLimit", Form::Limit, "/limits/memory")];

/// Fields of a role's pod template that Spark keeps and that quota depends on.
const KEPT_OF_TEMPLATE: [&str; 4] = ["overhead", "resourceClaims", "resources", "runtimeClassName"];

/// Returns the pod template that follows from a role.
pub(super) fn template(job: &Value, role: &Value, name: &str) -> Result<Value, JobError> {
    let role = SparkRole { job, role, name };
    let mut template = json!({"metadata": {}, "spec": {}});
    for field in ["labels", "annotations"] {
        let mut map = role.own(read::string_map(role.role, &format!("/template/metadata/{field}")))?;
        map.extend(role.own(read::string_map(role.role, &format!("/{field}")))?);
        if !map.is_empty() {
            set_at(&mut template, &format!("/metadata/{field}"), json!(map));
        }
    }
    let mut own = role.own(read::list(role.role, "/template/spec/containers"))?.to_vec();
    let container_name = format!("spark-kubernetes-{name}");
    // Spark takes the first one if none has the name.
    let named =
        own.iter().position(|container| container.get("name").is_some_and(|name| *name == container_name));
    let base = if own.is_empty() { Value::Null } else { own.remove(named.unwrap_or(0)) };
    let mut container = json!({"name": container_name, "resources": role.resources(&base)?});
    let (mounts, volumes) = role.volumes()?;
    if !mounts.is_empty() {
        set_at(&mut container, "/volumeMounts", Value::Array(mounts));
        set_at(&mut template, "/spec/volumes", Value::Array(volumes));
    }
    let mut containers = vec![container];
    let same = |a: &Value, b: &Value| ["name", "image"].iter().all(|key| a.get(key) == b.get(key));
    for added in role.own(read::list(role.role, "/sidecars"))?.iter().chain(&own) {
        if !containers.iter().any(|known| same(known, added)) {
            containers.push(added.clone());
        }
    }
    set_at(&mut template, "/spec/containers", Value::Array(containers));
    let mut first = role.own(read::list(role.role, "/initContainers"))?.to_vec();
    first.extend_from_slice(role.own(read::list(role.role, "/template/spec/initContainers"))?);
    if !first.is_empty() {
        set_at(&mut template, "/spec/initContainers", Value::Array(first));
    }
    let fields =
        ["priorityClassName", "nodeSelector", "affinity", "tolerations"].map(|field| (field, role.role));
    let kept = role.role.pointer("/template/spec").unwrap_or(&Value::Null);
    for (field, from) in fields.into_iter().chain(KEPT_OF_TEMPLATE.map(|field| (field, kept))) {
        if let Some(value) = from.get(field).filter(|value| !value.is_null()) {
            set_at(&mut template, &format!("/spec/{field}"), value.clone());
        }
    }
    Ok(template)
}

/// A role of an application.
struct SparkRole<'a> {
    job: &'a Value,
    role: &'a Value,
    name: &'a str,
}

impl SparkRole<'_> {
    /// Returns an error about a field of the role as one about the object.
    fn own<T>(&self, outcome: Result<T, JobError>) -> Result<T, JobError> {
        outcome.map_err(|error| read::below(&format!("/spec/{}", self.name), error))
    }

    /// Reads a text of the role; where it is absent, the setting that Spark reads in its place.
    fn text<T>(
        &self,
        field: &str,
        setting: &str,
        form: Form,
        read_as: fn(&str) -> Option<T>,
    ) -> Result<Option<T>, JobError> {
        let own = self.at(&format!("/spec/{}/{field}", self.name), form, read_as)?;
        if own.is_some() { Ok(own) } else { self.setting(setting, form, read_as) }
    }

    /// Reads a setting of Spark; where it is absent, by the name that it once had. In its name, `*` stands for the role.
    fn setting<T>(
        &self,
        name: &str,
        form: Form,
        read_as: fn(&str) -> Option<T>,
    ) -> Result<Option<T>, JobError> {
        let read =
            |name: &str| self.at(&format!("/spec/sparkConf/{}", name.replace('*', self.name)), form, read_as);
        let former = FORMER_NAMES.iter().find(|(present, _)| *present == name);
        match (read(name)?, former) {
            (None, Some((_, former))) => read(former),
            (found, _) => Ok(found),
        }
    }

    /// Reads a text of the object. An empty one counts as absent.
    fn at<T>(
        &self,
        pointer: &str,
        form: Form,
        read_as: fn(&str) -> Option<T>,
    ) -> Result<Option<T>, JobError> {
        let text = read::string(self.job, pointer)?.filter(|text| !text.is_empty());
        let wrong = || JobError::Malformed { path: shown(pointer), problem: form.rule().to_owned() };
        text.map(|text| read_as(text).ok_or_else(wrong)).transpose()
    }

    /// Returns the resources of Spark's container, given that of the role's pod template.
    fn resources(&self, base: &Value) -> Result<Value, JobError> {
        let kept = base.get("resources").filter(|resources| resources.is_object());
        let mut resources = kept.cloned().unwrap_or_else(|| json!({}));
        for (field, form, place) in AMOUNTS {
            let read_as = if form == Form::Limit { texts::limit } else { texts::quantity };
            if let Some(quantity) = self.at(&format!("/spec/{}/{field}", self.name), form, read_as)? {
                set_at(&mut resources, place, json!(quantity));
            }
        }
        set_at(&mut resources, "/requests/cpu", json!(self.cpu()?));
        set_at(&mut resources, "/requests/memory", json!(format!("{}Mi", self.memory()?)));
        for (device, quantity) in self.devices()? {
            if resources.pointer("/limits").is_none() {
                set_at(&mut resources, "/limits", json!({}));
            }
            if let Some(limits) = resources.pointer_mut("/limits").and_then(Value::as_object_mut) {
                limits.insert(device, json!(quantity));
            }
        }
        Ok(resources)
    }

    /// Returns the cpu that Spark requests: what it is told to request, otherwise one for each core.
    fn cpu(&self) -> Result<String, JobError> {
        let told =
            self.text("coreRequest", "spark.kubernetes.*.request.cores", Form::Quantity, texts::quantity)?;
        if let Some(told) = told {
            return Ok(told);
        }
        let cores = match self.own(read::count(self.role, "/cores"))? {
            Some(cores) => cores,
            None => self.setting("spark.*.cores", Form::Integer, texts::integer)?.unwrap_or(1),
        };
        Ok(cores.to_string())
    }

    /// Returns the memory that Spark requests, in MiB: the heap, and what is needed beside it.
    fn memory(&self) -> Result<i64, JobError> {
        let size = |field, setting| self.text(field, setting, Form::Mebibytes, texts::mebibytes);
        let heap = size("memory", "spark.*.memory")?.unwrap_or(1024);
        let overhead = match size("memoryOverhead", "spark.*.memoryOverhead")? {
            Some(overhead) => overhead,
            None => self.overhead_of(heap)?,
        };
        let mut total = heap.saturating_add(overhead);
        if self.name == "executor" {
            if self.is("Python")? {
                let more = "spark.executor.pyspark.memory";
                let more = self.setting(more, Form::Mebibytes, texts::mebibytes)?;
                total = total.saturating_add(more.unwrap_or(0));
            }
            let enabled = self.setting("spark.memory.offHeap.enabled", Form::Boolean, texts::boolean)?;
            if enabled.unwrap_or(false) {
                let more =
                    self.setting("spark.memory.offHeap.size", Form::Bytes, texts::bytes_as_mebibytes)?;
                total = total.saturating_add(more.unwrap_or(0));
            }
        }
        Ok(total)
    }

    /// Returns the memory beside the heap where no amount is given, in MiB: a part of the heap, which is larger where Spark starts
    /// other programs than the JVM.
    fn overhead_of(&self, heap: i64) -> Result<i64, JobError> {
        let part = |setting| self.setting(setting, Form::Fraction, texts::fraction);
        let own = part("spark.*.memoryOverheadFactor")?;
        let all = self.at("/spec/memoryOverheadFactor", Form::Fraction, texts::fraction)?;
        let default = if self.is("Python")? || self.is("R")? { "0.4" } else { "0.1" };
        let factor = own.or(all).or(part("spark.kubernetes.memoryOverheadFactor")?);
        let factor = factor.or_else(|| texts::fraction(default)).unwrap_or(Quantity::ZERO);
        // Versions before 4 know no other minimum.
        let least = self.setting("spark.*.minMemoryOverhead", Form::Mebibytes, texts::mebibytes)?;
        let least = least.unwrap_or(0).max(LEAST_OVERHEAD);
        Ok((heap.saturating_mul(factor.milli()) / 1000).max(least))
    }

    fn is(&self, language: &str) -> Result<bool, JobError> {
        Ok(read::string(self.job, "/spec/type")? == Some(language))
    }

    /// Returns the devices of a pod, with their number.
    fn devices(&self) -> Result<Vec<(String, String)>, JobError> {
        let mut devices = Vec::new();
        let prefix = format!("spark.{}.resource.", self.name);
        for (key, number) in read::string_map(self.job, "/spec/sparkConf")? {
            let name = key.strip_prefix(&prefix).and_then(|rest| rest.strip_suffix(".amount"));
            let vendor = name.map(|name| {
                self.at(&format!("/spec/sparkConf/{prefix}{name}.vendor"), Form::Quantity, |text| {
                    Some(text.to_owned())
                })
            });
            if let (Some(name), Some(vendor)) = (name, vendor.transpose()?.flatten()) {
                let wrong = || malformed(&format!("/spec/sparkConf[{key}]"), Form::Integer.rule());
                let number = texts::integer(&number).ok_or_else(wrong)?;
                devices.push((format!("{vendor}/{name}"), number.to_string()));
            }
        }
        let number = self.own(read::count(self.role, "/gpu/quantity"))?.unwrap_or(0);
        let gpu = self.own(read::string(self.role, "/gpu/name"))?;
        let gpu = gpu.filter(|gpu| number > 0 && !gpu.is_empty());
        devices.extend(gpu.map(|gpu| (gpu.to_owned(), number.to_string())));
        Ok(devices)
    }

    /// Returns the volume mounts of a role, and the volumes that they name.
    fn volumes(&self) -> Result<(Vec<Value>, Vec<Value>), JobError> {
        fn name(value: &Value) -> &str {
            value.get("name").and_then(Value::as_str).unwrap_or_default()
        }
        let mounts = self.own(read::list(self.role, "/volumeMounts"))?.iter();
        let mounts: Vec<Value> =
            mounts.filter(|mount| !name(mount).starts_with(LOCAL_FOLDER)).cloned().collect();
        let volumes = read::list(self.job, "/spec/volumes")?.iter();
        let used = |volume: &&Value| mounts.iter().any(|mount| name(mount) == name(volume));
        let volumes = volumes.filter(used).cloned().collect();
        Ok((mounts, volumes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spark_container(job: &Value, name: &str) -> Value {
        template(job, &job["spec"][name], name).unwrap()["spec"]["containers"][0].clone()
    }

    /// What Spark's own documentation says of each setting.
    #[test]
    fn requests_are_what_spark_asks_for() {
        let cases = [
            (json!({}), "1", "1408Mi"),
            (json!({"cores": 3, "memory": "10g"}), "3", "11264Mi"),
            (json!({"cores": 3, "coreRequest": "500m", "memory": "512m"}), "500m", "896Mi"),
            (json!({"memory": "2048", "memoryOverhead": "100"}), "1", "2148Mi"),
            (json!({"memory": "4G", "memoryOverhead": "1GB"}), "1", "5120Mi"),
        ];
        for (role, cpu, memory) in cases {
            let job = json!({"spec": {"type": "Scala", "driver": role}});
            let requests = &spark_container(&job, "driver")["resources"]["requests"];
            assert_eq!(*requests, json!({"cpu": cpu, "memory": memory}), "{role}");
        }
        let settings = [
            ("spark.executor.cores", "2", "2", "1433Mi"),
            ("spark.kubernetes.executor.request.cores", "1500m", "1500m", "1433Mi"),
            ("spark.executor.memory", "4g", "1", "5734Mi"),
            ("spark.executor.memoryOverhead", "1g", "1", "2048Mi"),
            ("spark.executor.memoryOverheadFactor", "0.5", "1", "1536Mi"),
            ("spark.kubernetes.memoryOverheadFactor", "0.5", "1", "1536Mi"),
            ("spark.executor.pyspark.memory", "512", "1", "1945Mi"),
            ("spark.memory.offHeap.size", "1g", "1", "2457Mi"),
            ("spark.memory.offHeap.size", "1073741824", "1", "2457Mi"),
            ("spark.executor.minMemoryOverhead", "1g", "1", "2048Mi"),
            ("spark.executor.minMemoryOverhead", "1m", "1", "1433Mi"),
            ("spark.driver.memory", "9g", "1", "1433Mi"),
        ];
        for (setting, value, cpu, memory) in settings {
            let mut job = json!({"spec": {"type": "Python", "executor": {}, "sparkConf": {"spark.memory.offHeap.enabled": " True"}}});
            job["spec"]["sparkConf"][setting] = json!(value);
            let requests = &spark_container(&job, "executor")["resources"]["requests"];
            assert_eq!(*requests, json!({"cpu": cpu, "memory": memory}), "{setting}");
        }
        // Names of earlier versions, which count where the present ones are absent.
        for (settings, memory) in [
            (json!({"spark.yarn.executor.memoryOverhead": "1g"}), "2048Mi"),
            (
                json!({"spark.yarn.executor.memoryOverhead": "1g", "spark.executor.memoryOverhead": "100"}),
                "1124Mi",
            ),
            (json!({"spark.yarn.driver.memoryOverhead": "1g"}), "1408Mi"),
            (json!({"spark.unsafe.offHeap": "true", "spark.memory.offHeap.size": "1g"}), "2432Mi"),
            (
                json!({"spark.unsafe.offHeap": "true", "spark.memory.offHeap.enabled": "false", "spark.memory.offHeap.size": "1g"}),
                "1408Mi",
            ),
        ] {
            let job = json!({"spec": {"type": "Scala", "executor": {}, "sparkConf": settings}});
            let requests = &spark_container(&job, "executor")["resources"]["requests"];
            assert_eq!(requests["memory"], memory, "{settings}");
        }
        let mut job = json!({"spec": {"memoryOverheadFactor": "0.2", "driver": {"memory": "10g"}}});
        assert_eq!(spark_container(&job, "driver")["resources"]["requests"]["memory"], "12288Mi");
        for (pointer, value) in [
            ("/spec/memoryOverheadFactor", json!("x")),
            ("/spec/driver/memory", json!("4.5g")),
            ("/spec/driver/memory", json!("1Gi")),
            ("/spec/driver/memoryLimit", json!("much")),
            ("/spec/driver/memoryLimit", json!("-1g")),
            ("/spec/driver/memoryOverhead", json!("-1")),
            ("/spec/driver/coreRequest", json!("-1.5")),
            ("/spec/driver/coreLimit", json!("-1")),
            ("/spec/driver/cores", json!(-1)),
            ("/spec/driver/gpu/quantity", json!(-1)),
            ("/spec/driver/sidecars", json!("x")),
            ("/spec/driver/labels", json!("x")),
            ("/spec/driver/template/spec/initContainers", json!("x")),
        ] {
            let mut wrong = job.clone();
            set_at(&mut wrong, pointer, value);
            let path = pointer.trim_start_matches('/').replace('/', ".");
            let error = template(&wrong, &wrong["spec"]["driver"], "driver").unwrap_err().to_string();
            assert!(error.starts_with(&format!("{path}: ")), "{error}");
        }
        job["spec"]["sparkConf"] = json!({"spark.driver.resource.gpu.amount": "2", "spark.driver.resource.gpu.vendor": "nvidia.com"});
        assert_eq!(spark_container(&job, "driver")["resources"]["limits"], json!({"nvidia.com/gpu": "2"}));
    }

    /// Spark completes one container of the role's own template and keeps the others.
    #[test]
    fn containers_of_the_template_are_counted() {
        let container =
            |name: &str| json!({"name": name, "resources": {"requests": {"cpu": "4", "example.com/x": "1"}}});
        let mut job = json!({"spec": {"driver": {"cores": 1, "template": {"spec": {"runtimeClassName": "kata",
            "initContainers": [container("init")],
            "containers": [container("other"), container("spark-kubernetes-driver")]}}}}});
        let made = template(&job, &job["spec"]["driver"], "driver").unwrap();
        let spec = &made["spec"];
        assert_eq!(
            spec["containers"][0]["resources"]["requests"],
            json!({"cpu": "1", "memory": "1408Mi", "example.com/x": "1"})
        );
        assert_eq!(
            (&spec["containers"][1], &spec["initContainers"]),
            (&container("other"), &json!([container("init")]))
        );
        assert_eq!(spec["runtimeClassName"], "kata");
        job["spec"]["driver"]["template"]["spec"]["containers"] = json!([container("first")]);
        let made = template(&job, &job["spec"]["driver"], "driver").unwrap();
        assert_eq!(made["spec"]["containers"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn templates_follow_from_the_roles() {
        let mount = |name: &str| json!({"name": name, "mountPath": format!("/{name}")});
        let driver = json!({
            "cores": 4, "coreRequest": "1500m", "coreLimit": "3", "memory": "1g", "memoryOverhead": "256m",
            "labels": {"a": "role"}, "priorityClassName": "high",
            "template": {"metadata": {"labels": {"a": "template", "b": "template"}}, "spec": {"nodeSelector": {"x": "y"}}},
            "volumeMounts": [mount("data"), mount("spark-local-dir-1")],
            "sidecars": [{"name": "log", "image": "l"}, {"name": "log", "image": "l"}],
            "initContainers": [{"name": "init", "image": "i"}],
        });
        let executor = json!({"gpu": {"name": "example.com/gpu", "quantity": 2}, "memoryLimit": "2g"});
        let mut job = json!({"spec": {"driver": driver, "executor": executor}});
        job["spec"]["volumes"] = json!([{"name": "data"}, {"name": "spark-local-dir-1"}, {"name": "other"}]);
        let made = template(&job, &driver, "driver").unwrap();
        assert_eq!(made["metadata"]["labels"], json!({"a": "role", "b": "template"}));
        let spec = &made["spec"];
        let container = &spec["containers"][0];
        assert_eq!(container["name"], "spark-kubernetes-driver");
        assert_eq!(
            container["resources"],
            json!({"requests": {"cpu": "1500m", "memory": "1280Mi"}, "limits": {"cpu": "3"}})
        );
        assert_eq!(
            (&container["volumeMounts"], &spec["volumes"]),
            (&json!([mount("data")]), &json!([{"name": "data"}]))
        );
        assert_eq!(spec["containers"].as_array().unwrap().len(), 2);
        assert_eq!((&spec["priorityClassName"], &spec["nodeSelector"]), (&json!("high"), &Value::Null));
        let limits = &spark_container(&job, "executor")["resources"]["limits"];
        assert_eq!(*limits, json!({"example.com/gpu": "2", "memory": "2Gi"}));
    }
}
