//! The pods of a SparkApplication, as its operator and Spark make them from the fields of a role and from `sparkConf`, as far as
//! quota and placement depend on it.
//!
//! Invariants: an amount that cannot be read is an error that names its field; what Spark requests beyond the fields of a role is
//! counted: cores where no request is given, memory beside the heap, and containers of the role's own pod template.

use super::JobError;
use super::played_status::set_at;
use super::read::{self, malformed};
use crate::resources::Quantity;
use serde_json::{Value, json};

/// Volumes with names like this are for Spark's own scratch space, and made by the operator.
const LOCAL_FOLDER: &str = "spark-local-dir-";

/// Memory that Spark adds to the heap at least, in MiB.
const LEAST_OVERHEAD: i64 = 384;

/// Amounts of a role that stand in its container as they are, with their place there.
pub(super) const AMOUNTS: [(&str, Amount, &str); 4] = [
    ("coreRequest", Amount::Quantity, "/requests/cpu"),
    ("coreLimit", Amount::Quantity, "/limits/cpu"),
    ("memory", Amount::JavaMemory, "/requests/memory"),
    ("memoryLimit", Amount::JavaMemory, "/limits/memory"),
];

/// Fields of a role's pod template that Spark keeps and that quota depends on.
const KEPT_OF_TEMPLATE: [&str; 4] = ["overhead", "resourceClaims", "resources", "runtimeClassName"];

/// How an amount is written.
#[derive(Clone, Copy)]
pub(super) enum Amount {
    Quantity,
    JavaMemory,
}

impl Amount {
    /// Returns an amount as a quantity; `None` if it is none.
    pub(super) fn read(self, text: &str) -> Option<String> {
        let quantity = match self {
            Self::Quantity => text.to_owned(),
            Self::JavaMemory => binary_memory(text),
        };
        Quantity::parse(&quantity).is_ok().then_some(quantity)
    }
}

/// Returns an amount of memory of the JVM, whose suffixes are powers of 1024, as a quantity. As with Kueue a suffix in capital
/// letters is none of the JVM, and with its own of the quantity it is refused: `1G` could mean either.
fn binary_memory(text: &str) -> String {
    let lower = text.to_lowercase();
    let suffixes = [
        ("k", "Ki"),
        ("kb", "Ki"),
        ("m", "Mi"),
        ("mb", "Mi"),
        ("g", "Gi"),
        ("gb", "Gi"),
        ("t", "Ti"),
        ("tb", "Ti"),
        ("p", "Pi"),
        ("pb", "Pi"),
    ];
    match suffixes.iter().find(|(java, _)| lower.ends_with(java)) {
        Some((java, binary)) => format!("{}{binary}", text.strip_suffix(java).unwrap_or(text)),
        None => text.to_owned(),
    }
}

/// Returns the pod template that follows from a role.
pub(super) fn template(job: &Value, role: &Value, name: &str) -> Result<Value, JobError> {
    let role = SparkRole { job, role, name };
    let mut template = json!({"metadata": {}, "spec": {}});
    for field in ["labels", "annotations"] {
        let mut map = read::string_map(role.role, &format!("/template/metadata/{field}"))?;
        map.extend(read::string_map(role.role, &format!("/{field}"))?);
        if !map.is_empty() {
            set_at(&mut template, &format!("/metadata/{field}"), json!(map));
        }
    }
    let mut own = read::list(role.role, "/template/spec/containers")?.to_vec();
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
    for added in read::list(role.role, "/sidecars")?.iter().chain(&own) {
        if !containers.iter().any(|known| same(known, added)) {
            containers.push(added.clone());
        }
    }
    set_at(&mut template, "/spec/containers", Value::Array(containers));
    let mut first = read::list(role.role, "/initContainers")?.to_vec();
    first.extend_from_slice(read::list(role.role, "/template/spec/initContainers")?);
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

impl<'a> SparkRole<'a> {
    /// Returns a text of the role; where it is absent, the setting that Spark reads in its place.
    fn text(&self, field: &str, setting: &str) -> Result<Option<&'a str>, JobError> {
        let own = read::string(self.role, &format!("/{field}"))?.filter(|text| !text.is_empty());
        Ok(if own.is_some() { own } else { self.setting(setting)? })
    }

    /// Returns a setting of Spark. In its name, `*` stands for the role.
    fn setting(&self, name: &str) -> Result<Option<&'a str>, JobError> {
        let pointer = format!("/spec/sparkConf/{}", name.replace('*', self.name));
        Ok(read::string(self.job, &pointer)?.filter(|text| !text.is_empty()))
    }

    fn wrong(&self, field: &str) -> JobError {
        malformed(&format!("/spec/{}/{field}", self.name), "must be a quantity")
    }

    /// Returns the resources of Spark's container, given that of the role's pod template.
    fn resources(&self, base: &Value) -> Result<Value, JobError> {
        let kept = base.get("resources").filter(|resources| resources.is_object());
        let mut resources = kept.cloned().unwrap_or_else(|| json!({}));
        for (field, amount, place) in AMOUNTS {
            let text = read::string(self.role, &format!("/{field}"))?.filter(|text| !text.is_empty());
            let quantity = text.map(|text| amount.read(text).ok_or_else(|| self.wrong(field))).transpose()?;
            if let Some(quantity) = quantity {
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
        if let Some(text) = self.text("coreRequest", "spark.kubernetes.*.request.cores")? {
            return Amount::Quantity.read(text).ok_or_else(|| self.wrong("coreRequest"));
        }
        if let Some(cores) = read::count(self.role, "/cores")? {
            return Ok(cores.to_string());
        }
        let text = self.setting("spark.*.cores")?.unwrap_or("1");
        Amount::Quantity.read(text).ok_or_else(|| self.wrong("cores"))
    }

    /// Returns the memory that Spark requests, in MiB: the heap, and what is needed beside it.
    fn memory(&self) -> Result<i64, JobError> {
        let heap = self.text("memory", "spark.*.memory")?.unwrap_or("1g");
        let heap = mebibytes(heap).ok_or_else(|| self.wrong("memory"))?;
        let overhead = match self.text("memoryOverhead", "spark.*.memoryOverhead")? {
            Some(text) => mebibytes(text).ok_or_else(|| self.wrong("memoryOverhead"))?,
            None => self.overhead_of(heap)?,
        };
        let mut beside = Vec::new();
        if self.name == "executor" {
            if self.is("Python")? {
                beside.push("spark.executor.pyspark.memory");
            }
            if self.setting("spark.memory.offHeap.enabled")? == Some("true") {
                beside.push("spark.memory.offHeap.size");
            }
        }
        let mut total = heap.saturating_add(overhead);
        for setting in beside {
            let text = self.setting(setting)?.unwrap_or("0");
            let more = mebibytes(text).ok_or_else(|| {
                malformed(&format!("/spec/sparkConf/{setting}"), "must be an amount of memory")
            })?;
            total = total.saturating_add(more);
        }
        Ok(total)
    }

    /// Returns the memory beside the heap where no amount is given, in MiB: a part of the heap, which is larger where Spark starts
    /// other programs than the JVM.
    fn overhead_of(&self, heap: i64) -> Result<i64, JobError> {
        let field = "/spec/memoryOverheadFactor";
        let own = self.setting("spark.*.memoryOverheadFactor")?;
        let all = read::string(self.job, field)?.filter(|text| !text.is_empty());
        let factor = own.or(all).or(self.setting("spark.kubernetes.memoryOverheadFactor")?);
        let default = if self.is("Python")? || self.is("R")? { "0.4" } else { "0.1" };
        let factor = Quantity::parse(factor.unwrap_or(default)).ok().filter(|factor| !factor.is_negative());
        let factor = factor.ok_or_else(|| malformed(field, "must be a number of at least 0"))?;
        Ok((heap.saturating_mul(factor.milli()) / 1000).max(LEAST_OVERHEAD))
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
            let vendor =
                name.map(|name| self.setting(&format!("{prefix}{name}.vendor"))).transpose()?.flatten();
            if let (Some(name), Some(vendor)) = (name, vendor) {
                devices.push((format!("{vendor}/{name}"), number));
            }
        }
        let number = read::count(self.role, "/gpu/quantity")?.unwrap_or(0);
        let gpu = read::string(self.role, "/gpu/name")?.filter(|gpu| number > 0 && !gpu.is_empty());
        devices.extend(gpu.map(|gpu| (gpu.to_owned(), number.to_string())));
        Ok(devices)
    }

    /// Returns the volume mounts of a role, and the volumes that they name.
    fn volumes(&self) -> Result<(Vec<Value>, Vec<Value>), JobError> {
        fn name(value: &Value) -> &str {
            value.get("name").and_then(Value::as_str).unwrap_or_default()
        }
        let mounts = read::list(self.role, "/volumeMounts")?.iter();
        let mounts: Vec<Value> =
            mounts.filter(|mount| !name(mount).starts_with(LOCAL_FOLDER)).cloned().collect();
        let volumes = read::list(self.job, "/spec/volumes")?.iter();
        let used = |volume: &&Value| mounts.iter().any(|mount| name(mount) == name(volume));
        let volumes = volumes.filter(used).cloned().collect();
        Ok((mounts, volumes))
    }
}

/// Returns an amount of memory in MiB, which is Spark's unit where none is given; `None` if it is none.
fn mebibytes(text: &str) -> Option<i64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let quantity = if plain { format!("{text}Mi") } else { binary_memory(text) };
    let quantity = Quantity::parse(&quantity).ok().filter(|quantity| !quantity.is_negative())?;
    Some(quantity.value().saturating_add((1 << 20) - 1) >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_the_jvm_is_binary() {
        for (text, quantity) in [
            ("1g", Some("1Gi")),
            ("512mb", Some("512Mi")),
            ("3kb", Some("3Ki")),
            ("2t", Some("2Ti")),
            ("1Gi", Some("1Gi")),
            ("1024", Some("1024")),
            ("1G", None),
            ("512MB", None),
            ("nonsense", None),
        ] {
            assert_eq!(Amount::JavaMemory.read(text).as_deref(), quantity, "{text}");
        }
        assert_eq!(Amount::Quantity.read("750m").as_deref(), Some("750m"));
    }

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
            (json!({"memory": "1Gi", "memoryOverhead": "1g"}), "1", "2048Mi"),
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
            ("spark.driver.memory", "9g", "1", "1433Mi"),
        ];
        for (setting, value, cpu, memory) in settings {
            let mut job = json!({"spec": {"type": "Python", "executor": {}, "sparkConf": {"spark.memory.offHeap.enabled": "true"}}});
            job["spec"]["sparkConf"][setting] = json!(value);
            let requests = &spark_container(&job, "executor")["resources"]["requests"];
            assert_eq!(*requests, json!({"cpu": cpu, "memory": memory}), "{setting}");
        }
        let mut job = json!({"spec": {"memoryOverheadFactor": "0.2", "driver": {"memory": "10g"}}});
        assert_eq!(spark_container(&job, "driver")["resources"]["requests"]["memory"], "12288Mi");
        for (pointer, value) in [
            ("/spec/memoryOverheadFactor", "x"),
            ("/spec/driver/memory", "1G"),
            ("/spec/driver/memoryOverhead", "-1"),
        ] {
            let mut wrong = job.clone();
            set_at(&mut wrong, pointer, json!(value));
            let path = pointer.trim_start_matches('/').replace('/', ".");
            let error = template(&wrong, &wrong["spec"]["driver"], "driver").unwrap_err().to_string();
            assert!(error.starts_with(&path), "{error}");
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
