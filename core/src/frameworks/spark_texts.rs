//! Texts of a SparkApplication on which its charge depends, as the programs that read them do: Spark (`JavaUtils.byteStringAs`, the
//! converters of `ConfigBuilder`, `String.toBoolean` of Scala, `Double.parseDouble` of Java) and its operator (`ParseBool` of Go, the
//! conversion of memory limits to quantities).
//!
//! Invariants: this is the only place that reads such a text; a text that its program refuses, or that cannot be read here as the
//! program does, is refused by the name of its field.

use super::read::path_of;
use super::row::Pointer;
use crate::api::validation::FieldError;
use crate::resources::Quantity;

/// Bytes of a mebibyte.
const MEBIBYTE: i64 = 1 << 20;
/// Suffixes of sizes, in lower case, with their bytes.
const SUFFIXES: [(&str, i64); 11] = [
    ("b", 1),
    ("k", 1 << 10),
    ("kb", 1 << 10),
    ("m", MEBIBYTE),
    ("mb", MEBIBYTE),
    ("g", 1 << 30),
    ("gb", 1 << 30),
    ("t", 1 << 40),
    ("tb", 1 << 40),
    ("p", 1 << 50),
    ("pb", 1 << 50),
];

/// What a text says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A boolean of Spark.
    Boolean,
    /// The boolean that says whether Spark changes the number of executors: the operator reads it as well.
    Switch,
    /// A number of at least 0.
    Integer,
    /// A part of at least 0, which may have a fraction.
    Fraction,
    /// A size in mebibytes where it has no suffix.
    Mebibytes,
    /// A size in bytes where it has no suffix.
    Bytes,
    /// A quantity of Kubernetes of at least 0: the API server refuses pods with less.
    Quantity,
    /// A quantity of Kubernetes of at least 0, or a size with a suffix of Spark: the operator converts it.
    Limit,
}

/// A setting in `sparkConf`, by its name there.
pub(super) const SETTINGS: [(Pointer, Form); 22] = [
    ("/spec/sparkConf/spark.dynamicAllocation.enabled", Form::Switch),
    ("/spec/sparkConf/spark.streaming.dynamicAllocation.enabled", Form::Switch),
    ("/spec/sparkConf/spark.executor.instances", Form::Integer),
    ("/spec/sparkConf/spark.driver.cores", Form::Integer),
    ("/spec/sparkConf/spark.executor.cores", Form::Integer),
    ("/spec/sparkConf/spark.kubernetes.driver.request.cores", Form::Quantity),
    ("/spec/sparkConf/spark.kubernetes.executor.request.cores", Form::Quantity),
    ("/spec/sparkConf/spark.driver.memory", Form::Mebibytes),
    ("/spec/sparkConf/spark.executor.memory", Form::Mebibytes),
    ("/spec/sparkConf/spark.driver.memoryOverhead", Form::Mebibytes),
    ("/spec/sparkConf/spark.executor.memoryOverhead", Form::Mebibytes),
    ("/spec/sparkConf/spark.driver.minMemoryOverhead", Form::Mebibytes),
    ("/spec/sparkConf/spark.executor.minMemoryOverhead", Form::Mebibytes),
    ("/spec/sparkConf/spark.driver.memoryOverheadFactor", Form::Fraction),
    ("/spec/sparkConf/spark.executor.memoryOverheadFactor", Form::Fraction),
    ("/spec/sparkConf/spark.kubernetes.memoryOverheadFactor", Form::Fraction),
    ("/spec/sparkConf/spark.executor.pyspark.memory", Form::Mebibytes),
    ("/spec/sparkConf/spark.memory.offHeap.enabled", Form::Boolean),
    ("/spec/sparkConf/spark.memory.offHeap.size", Form::Bytes),
    ("/spec/sparkConf/spark.yarn.driver.memoryOverhead", Form::Mebibytes),
    ("/spec/sparkConf/spark.yarn.executor.memoryOverhead", Form::Mebibytes),
    ("/spec/sparkConf/spark.unsafe.offHeap", Form::Boolean),
];

/// The settings of Spark.
pub(super) const SPARK_CONF: Pointer = "/spec/sparkConf";

/// Settings with the names that they had in earlier versions of Spark, which it reads where the present one is absent. `*` stands
/// for a role.
pub(super) const FORMER_NAMES: [(&str, &str); 2] = [
    ("spark.*.memoryOverhead", "spark.yarn.*.memoryOverhead"),
    ("spark.memory.offHeap.enabled", "spark.unsafe.offHeap"),
];

/// What settings with the number of a device begin with; its name follows.
const DEVICES: [&str; 2] = ["spark.driver.resource.", "spark.executor.resource."];

/// Fields of the object. The operator passes an empty one on, and Spark or the API server refuses it; in an object that an earlier
/// version took it counts as absent.
pub(super) const FIELDS: [(Pointer, Form); 11] = [
    ("/spec/memoryOverheadFactor", Form::Fraction),
    ("/spec/driver/coreRequest", Form::Quantity),
    ("/spec/driver/coreLimit", Form::Quantity),
    ("/spec/driver/memory", Form::Mebibytes),
    ("/spec/driver/memoryOverhead", Form::Mebibytes),
    ("/spec/driver/memoryLimit", Form::Limit),
    ("/spec/executor/coreRequest", Form::Quantity),
    ("/spec/executor/coreLimit", Form::Quantity),
    ("/spec/executor/memory", Form::Mebibytes),
    ("/spec/executor/memoryOverhead", Form::Mebibytes),
    ("/spec/executor/memoryLimit", Form::Limit),
];

/// Settings by which Spark changes the number of executors.
pub(super) const ALLOCATION: [Pointer; 2] = [
    "/spec/sparkConf/spark.dynamicAllocation.enabled",
    "/spec/sparkConf/spark.streaming.dynamicAllocation.enabled",
];

impl Form {
    /// Returns whether the programs that read a text can read it.
    pub(super) fn accepts(self, text: &str) -> bool {
        match self {
            Self::Boolean => boolean(text).is_some(),
            Self::Switch => boolean(text).is_some() || switches_on(text),
            Self::Integer => integer(text).is_some(),
            Self::Fraction => fraction(text).is_some(),
            Self::Mebibytes => mebibytes(text).is_some(),
            Self::Bytes => bytes_as_mebibytes(text).is_some(),
            Self::Quantity => quantity(text).is_some(),
            Self::Limit => limit(text).is_some(),
        }
    }

    /// What a text must be.
    pub(super) const fn rule(self) -> &'static str {
        match self {
            Self::Boolean | Self::Switch => "must be true or false",
            Self::Integer => "must be a whole number of at least 0",
            Self::Fraction => "must be a number of at least 0",
            Self::Mebibytes | Self::Bytes => {
                "must be a whole number of at least 0 with a suffix of Spark, such as 512m or 4g"
            }
            Self::Quantity => "must be a quantity of at least 0",
            Self::Limit => "must be a quantity of at least 0, or a size of Spark such as 4g",
        }
    }

    /// Returns the fault of a text, if it has one.
    pub(super) fn fault(self, pointer: &str, text: &str) -> Option<FieldError> {
        (!self.accepts(text)).then(|| FieldError::invalid(shown(pointer), text, self.rule()))
    }
}

/// Returns a pointer as users write a path; names of settings contain dots.
pub(super) fn shown(pointer: &str) -> String {
    let setting = pointer.strip_prefix("/spec/sparkConf/");
    setting.map_or_else(|| path_of(pointer), |name| format!("spec.sparkConf[{name}]"))
}

/// Returns whether a setting is the number of a device, whose name is part of that of the setting.
pub(super) fn is_number_of_devices(setting: &str) -> bool {
    let of_role = |prefix: &&str| setting.strip_prefix(*prefix).is_some_and(|rest| rest.ends_with(".amount"));
    DEVICES.iter().any(of_role)
}

/// Returns whether a setting has the name of an earlier version of Spark.
pub(super) fn is_former_name(setting: &str) -> bool {
    let names = |former: &str| ["driver", "executor"].iter().any(|role| former.replace('*', role) == setting);
    FORMER_NAMES.iter().any(|(_, former)| names(former))
}

/// Removes what Java's `trim` removes.
fn trim(text: &str) -> &str {
    text.trim_matches(|letter| letter <= ' ')
}

/// Reads a boolean of Spark.
pub(super) fn boolean(text: &str) -> Option<bool> {
    let text = trim(text);
    [("true", true), ("false", false)]
        .into_iter()
        .find(|(word, _)| text.eq_ignore_ascii_case(word))
        .map(|(_, value)| value)
}

/// Returns whether Spark or its operator takes a text for true.
pub(super) fn switches_on(text: &str) -> bool {
    boolean(text) == Some(true) || matches!(text, "1" | "t" | "T" | "TRUE" | "true" | "True")
}

/// Reads a number.
pub(super) fn integer(text: &str) -> Option<i32> {
    trim(text).parse().ok().filter(|number| *number >= 0)
}

/// Reads a part. Java's letters of types are allowed, its hexadecimal numbers are not.
pub(super) fn fraction(text: &str) -> Option<Quantity> {
    let text = trim(text);
    let digits = text.strip_suffix(['f', 'F', 'd', 'D']).unwrap_or(text);
    let is_decimal =
        digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
    let known = digits.parse::<f64>().ok().filter(|number| is_decimal && number.is_finite());
    known.and_then(|_| Quantity::parse(digits).ok()).filter(|part| !part.is_negative())
}

/// Reads a size in mebibytes.
pub(super) fn mebibytes(text: &str) -> Option<i64> {
    let (number, bytes) = size(text)?;
    let bytes = bytes.unwrap_or(MEBIBYTE);
    if bytes >= MEBIBYTE { number.checked_mul(bytes / MEBIBYTE) } else { Some(number / (MEBIBYTE / bytes)) }
}

/// Reads a size in bytes, of which Spark requests whole mebibytes.
pub(super) fn bytes_as_mebibytes(text: &str) -> Option<i64> {
    let (number, bytes) = size(text)?;
    Some(number.checked_mul(bytes.unwrap_or(1))? / MEBIBYTE)
}

/// Reads a size: the number before its suffix, and the bytes of the suffix if there is one.
fn size(text: &str) -> Option<(i64, Option<i64>)> {
    let lower = text.to_lowercase();
    let text = trim(&lower);
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (number, suffix) = text.split_at_checked(end)?;
    let bytes = SUFFIXES.iter().find(|(known, _)| *known == suffix).map(|(_, bytes)| *bytes);
    if number.is_empty() || (bytes.is_none() && !suffix.is_empty()) {
        return None;
    }
    Some((number.parse().ok()?, bytes))
}

/// Reads a quantity of at least 0.
pub(super) fn quantity(text: &str) -> Option<String> {
    Quantity::parse(text).is_ok_and(|quantity| !quantity.is_negative()).then(|| text.to_owned())
}

/// Reads the limit of memory, as the operator converts it.
pub(super) fn limit(text: &str) -> Option<String> {
    let text = text.trim();
    let lower = text.to_lowercase();
    let number = |suffix: &str| lower.strip_suffix(suffix).filter(|_| suffix != "b");
    let converted = SUFFIXES.iter().find_map(|(suffix, _)| {
        let unit = suffix.chars().next()?.to_ascii_uppercase();
        Some(format!("{}{unit}i", number(suffix)?))
    });
    quantity(converted.as_deref().unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the programs read, from their sources.
    #[test]
    fn texts_are_read_as_their_programs_read_them() {
        for (text, known) in [
            ("true", Some(true)),
            ("True", Some(true)),
            (" TRUE\t", Some(true)),
            ("tRuE", Some(true)),
            ("\u{1}false ", Some(false)),
            ("1", None),
            ("t", None),
            ("yes", None),
            ("", None),
            ("\u{a0}true", None),
        ] {
            assert_eq!(boolean(text), known, "{text:?}");
        }
        for (text, on) in [("1", true), ("T", true), ("tRUE", true), ("0", false), ("on", false)] {
            assert_eq!(switches_on(text), on, "{text:?}");
        }
        for (text, known) in [
            ("4G", Some(4096)),
            ("4gB", Some(4096)),
            (" 512M ", Some(512)),
            ("2048", Some(2048)),
            ("1t", Some(1 << 20)),
            ("1p", Some(1 << 30)),
            ("1536k", Some(1)),
            ("1048576b", Some(1)),
            ("1023k", Some(0)),
            ("4.5g", None),
            ("1Gi", None),
            ("-1g", None),
            ("1 g", None),
            ("g", None),
            ("", None),
            ("9223372036854775807", Some(i64::MAX)),
            ("9223372036854775808", None),
            ("9223372036854775807p", None),
        ] {
            assert_eq!(mebibytes(text), known, "{text:?}");
        }
        for (text, known) in
            [("8g", Some(8192)), ("1073741824", Some(1024)), ("1048575", Some(0)), ("9g ", Some(9216))]
        {
            assert_eq!(bytes_as_mebibytes(text), known, "{text:?}");
        }
        for (text, known) in [
            ("0.1", true),
            (" .5 ", true),
            ("1e-1", true),
            ("0.4f", true),
            ("2D", true),
            ("+0.3", true),
            ("100m", false),
            ("1E", false),
            ("-0.1", false),
            ("NaN", false),
            ("Infinity", false),
            ("1e999", false),
            ("0x1p3", false),
            ("", false),
        ] {
            assert_eq!(fraction(text).is_some(), known, "{text:?}");
        }
        for (text, known) in
            [("3", Some(3)), (" +3 ", Some(3)), ("3.0", None), ("-1", None), ("3000000000", None)]
        {
            assert_eq!(integer(text), known, "{text:?}");
        }
        for (text, known) in [
            ("2g", Some("2Gi")),
            ("2GB", Some("2Gi")),
            ("4.5g", Some("4.5Gi")),
            ("1Gi", Some("1Gi")),
            (" 1024 ", Some("1024")),
            ("3kb", Some("3Ki")),
            ("nonsense", None),
            ("-1g", None),
            ("-1", None),
            ("", None),
        ] {
            assert_eq!(limit(text).as_deref(), known, "{text:?}");
        }
        for (text, known) in [("1500m", true), ("0", true), ("-1", false), ("-1500m", false), ("", false)] {
            assert_eq!(quantity(text).is_some(), known, "{text:?}");
        }
    }

    #[test]
    fn settings_are_found_by_their_names() {
        for (setting, devices, former) in [
            ("spark.driver.resource.gpu.amount", true, false),
            ("spark.executor.resource.fpga.amount", true, false),
            ("spark.executor.resource.gpu.vendor", false, false),
            ("spark.task.resource.gpu.amount", false, false),
            ("spark.yarn.driver.memoryOverhead", false, true),
            ("spark.yarn.executor.memoryOverhead", false, true),
            ("spark.unsafe.offHeap", false, true),
            ("spark.executor.memoryOverhead", false, false),
        ] {
            assert_eq!(
                (is_number_of_devices(setting), is_former_name(setting)),
                (devices, former),
                "{setting}"
            );
            let pointer = format!("{SPARK_CONF}/{setting}");
            assert!(!former || SETTINGS.iter().any(|(checked, _)| *checked == pointer), "{setting}");
        }
    }

    #[test]
    fn settings_are_shown_by_their_names() {
        let fault = |(pointer, form): (Pointer, Form)| form.fault(pointer, "?").unwrap().to_string();
        assert!(
            fault(SETTINGS[0])
                .starts_with("spec.sparkConf[spark.dynamicAllocation.enabled]: Invalid value: \"?\"")
        );
        assert!(fault(FIELDS[1]).starts_with("spec.driver.coreRequest: Invalid value"));
    }
}
