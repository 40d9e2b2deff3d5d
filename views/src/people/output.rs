//! The formats of `-o` for objects, and their texts.
//!
//! Invariant: a format is chosen once, from the text of the flag, and prints objects of every kind and verb the same way.

use super::json_path::JsonPath;
use super::object_text::{for_output, json_text, name_text, yaml_text};
use serde_json::Value;

/// Formats that kubectl's printers know, in the words of its error.
const KUBECTL_FORMATS: &str = "go-template,go-template-file,json,jsonpath,jsonpath-as-json,jsonpath-file,kyaml,name,template,templatefile,yaml";

/// How objects are printed.
#[derive(Clone, Debug)]
pub enum ObjectFormat {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// `KIND.GROUP/NAME`.
    Name,
    /// The text of a template.
    JsonPath(JsonPath),
    /// The values of a template as a JSON array.
    JsonPathAsJson(JsonPath),
}

/// The value of `-o`.
#[derive(Clone, Debug)]
pub enum Output {
    /// The flag is absent: a table, or a line about what was done.
    Default,
    /// A table with more columns.
    Wide,
    /// Objects.
    Objects(ObjectFormat),
    /// A Go template; only kubectl can print it.
    GoTemplate,
}

/// Flags beside `-o` that formats read.
#[derive(Clone, Debug, Default)]
pub struct OutputOptions {
    /// `--template`: the template, if `-o` names a format without one.
    pub template: Option<String>,
    /// Whether fields that an object lacks are an error.
    pub fail_on_missing: bool,
    /// Formats in the error about an unknown format; by default kubectl's own list.
    pub formats: Option<&'static str>,
}

impl Output {
    /// Reads the value of `-o`; `file` reads the file of a template.
    ///
    /// # Errors
    /// The format is unknown, or its template is malformed.
    pub fn parse(
        text: Option<&str>,
        options: &OutputOptions,
        file: impl Fn(&str) -> Result<String, String>,
    ) -> Result<Self, String> {
        let given = match (text.unwrap_or_default(), &options.template) {
            ("", Some(template)) => return Self::template("go-template", template, options, file),
            ("", None) => return Ok(Self::Default),
            (given, _) => given,
        };
        let (format, argument) = match given.split_once('=') {
            Some((format, argument)) => (format, Some(argument)),
            None => (given, options.template.as_deref()),
        };
        match (format.to_lowercase().as_str(), argument) {
            ("json", _) => Ok(Self::Objects(ObjectFormat::Json)),
            ("yaml", _) => Ok(Self::Objects(ObjectFormat::Yaml)),
            ("name", _) => Ok(Self::Objects(ObjectFormat::Name)),
            ("wide", _) => Ok(Self::Wide),
            ("table", _) => Ok(Self::Default),
            (format, Some(argument)) => Self::template(format, argument, options, file),
            (format @ ("jsonpath" | "jsonpath-as-json" | "jsonpath-file"), None) => {
                Err(format!("template format specified but no template given: -o {format}=..."))
            }
            (_, None) => Err(options.unknown(given)),
        }
    }

    fn template(
        format: &str,
        argument: &str,
        options: &OutputOptions,
        file: impl Fn(&str) -> Result<String, String>,
    ) -> Result<Self, String> {
        let parse = |template: &str| JsonPath::parse(template, !options.fail_on_missing);
        match format {
            "jsonpath" => parse(argument).map(|path| Self::Objects(ObjectFormat::JsonPath(path))),
            "jsonpath-as-json" => {
                parse(argument).map(|path| Self::Objects(ObjectFormat::JsonPathAsJson(path)))
            }
            "jsonpath-file" => {
                parse(&file(argument)?).map(|path| Self::Objects(ObjectFormat::JsonPath(path)))
            }
            "go-template" | "go-template-file" | "template" | "templatefile" => Ok(Self::GoTemplate),
            other => Err(options.unknown(other)),
        }
    }
}

impl OutputOptions {
    fn unknown(&self, format: &str) -> String {
        match self.formats {
            Some(formats) => format!("-o {format}: unknown format; formats: {formats}"),
            None => unknown_format(format),
        }
    }
}

/// Returns kubectl's error for a format that it does not know.
pub fn unknown_format(format: &str) -> String {
    format!(
        "unable to match a printer suitable for the output format {format:?}, allowed formats are: {KUBECTL_FORMATS}"
    )
}

impl ObjectFormat {
    /// Returns the text of one object, or of a list.
    ///
    /// # Errors
    /// The object cannot be printed, for instance because it lacks a field that a strict template names.
    pub fn text(&self, object: &Value, managed_fields: bool) -> Result<String, String> {
        let shown = for_output(object, managed_fields);
        match self {
            Self::Json => Ok(json_text(&shown)),
            Self::Yaml => yaml_text(&shown),
            Self::JsonPath(path) => path.text(&shown),
            Self::JsonPathAsJson(path) => path.values(&shown).map(|values| json_text(&Value::Array(values))),
            Self::Name => {
                let items = object.get("items").and_then(Value::as_array);
                let names = items.map_or_else(|| vec![object], |items| items.iter().collect());
                Ok(names.into_iter().map(|object| name_text(object) + "\n").collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(text: &str) -> Result<Output, String> {
        let file = |name: &str| {
            if name == "known" { Ok("{.kind}".to_owned()) } else { Err("no such file".to_owned()) }
        };
        Output::parse(Some(text), &OutputOptions::default(), file)
    }

    #[test]
    fn every_format_prints_the_object_and_never_a_table() {
        let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}});
        for (format, expected) in [
            (
                "json",
                "{\n    \"apiVersion\": \"v1\",\n    \"kind\": \"Pod\",\n    \"metadata\": {\n        \"name\": \"p\"\n    }\n}\n",
            ),
            (
                "JSON",
                "{\n    \"apiVersion\": \"v1\",\n    \"kind\": \"Pod\",\n    \"metadata\": {\n        \"name\": \"p\"\n    }\n}\n",
            ),
            ("yaml", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\n"),
            ("name", "pod/p\n"),
            ("jsonpath={.metadata.name}", "p"),
            ("jsonpath-file=known", "Pod"),
            ("jsonpath-as-json={.kind}", "[\n    \"Pod\"\n]\n"),
        ] {
            let Ok(Output::Objects(printer)) = parse(format) else { panic!("{format}") };
            assert_eq!(printer.text(&object, false), Ok(expected.to_owned()), "{format}");
        }
    }

    #[test]
    fn other_formats_are_refused() {
        assert!(matches!(parse(""), Ok(Output::Default)) && matches!(parse("wide"), Ok(Output::Wide)));
        assert!(matches!(parse("go-template={{.kind}}"), Ok(Output::GoTemplate)));
        for (format, expected) in [
            (
                "foo",
                "unable to match a printer suitable for the output format \"foo\", allowed formats are: go-template,",
            ),
            ("foo=x", "unable to match a printer"),
            ("jsonpath", "template format specified but no template given"),
            ("jsonpath={..a}", "jsonpath: {..a}: .. is not supported"),
            ("jsonpath-file=x", "no such file"),
        ] {
            let error = parse(format).unwrap_err();
            assert!(error.starts_with(expected), "{format}: {error}");
        }
    }
}
