//! Quotas of a ClusterQueue as flags: `FLAVOR:RESOURCE=QUANTITY;RESOURCE=QUANTITY[,FLAVOR:...]`.
//!
//! Invariants: names and quantities follow Kubernetes' rules; an explicit zero is kept; contradictions, such as a resource that
//! is given twice, are errors that name flag, text and column. Printing a parsed value gives an equal text.

use crate::api::validation::syntax;
use crate::resources::Quantity;
use serde_json::{Value, json};
use std::fmt;

/// Amounts of the resources of one flavor, in the order in which they are given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlavorAmounts {
    /// The flavor.
    pub flavor: String,
    /// Resources and quantities.
    pub amounts: Vec<(String, String)>,
}

/// The value of a flag, which may be given several times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuotaText {
    /// The flavors, each once.
    pub flavors: Vec<FlavorAmounts>,
}

impl QuotaText {
    /// Parses the values of a flag.
    ///
    /// # Errors
    /// A value is malformed; the text names the flag, the value and the column, counted from 1.
    pub fn parse(flag: &str, values: &[String]) -> Result<Self, String> {
        let mut all = Self::default();
        for value in values {
            all.add(value).map_err(|problem| format!("{flag}: {value:?}: {problem}"))?;
        }
        Ok(all)
    }

    fn add(&mut self, value: &str) -> Result<(), String> {
        let mut column = 1;
        for part in value.split(',') {
            self.add_flavor(part, column)?;
            column += part.chars().count() + 1;
        }
        Ok(())
    }

    fn add_flavor(&mut self, text: &str, column: usize) -> Result<(), String> {
        let (flavor, amounts) = text.split_once(':').ok_or_else(|| {
            format!("\":\" expected after the flavor {text:?} (column {})", column + text.chars().count())
        })?;
        let name = flavor.trim();
        if let Some(problem) = syntax::subdomain(name).into_iter().next() {
            return Err(format!("invalid flavor {name:?} (column {column}): {problem}"));
        }
        let mut column = column + flavor.chars().count() + 1;
        // A closing semicolon ends the last amount.
        let amounts = amounts.strip_suffix(';').unwrap_or(amounts);
        for amount in amounts.split(';') {
            let (resource, quantity) = parse_amount(amount, column)?;
            let known = self.flavor_mut(name);
            if known.amounts.iter().any(|(known, _)| *known == resource) {
                return Err(format!("resource {resource} is given twice for flavor {name}"));
            }
            known.amounts.push((resource, quantity));
            column += amount.chars().count() + 1;
        }
        Ok(())
    }

    fn flavor_mut(&mut self, name: &str) -> &mut FlavorAmounts {
        let place = self.flavors.iter().position(|known| known.flavor == name).unwrap_or_else(|| {
            self.flavors.push(FlavorAmounts { flavor: name.to_owned(), amounts: Vec::new() });
            self.flavors.len() - 1
        });
        // `place` was found or pushed above.
        #[expect(clippy::indexing_slicing, reason = "the place is that of an element")]
        &mut self.flavors[place]
    }

    fn amount(&self, flavor: &str, resource: &str) -> Option<&str> {
        let flavor = self.flavors.iter().find(|known| known.flavor == flavor)?;
        flavor.amounts.iter().find(|(name, _)| name == resource).map(|(_, quantity)| quantity.as_str())
    }
}

impl fmt::Display for QuotaText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flavor = |known: &FlavorAmounts| {
            let amounts: Vec<String> =
                known.amounts.iter().map(|(resource, quantity)| format!("{resource}={quantity}")).collect();
            format!("{}:{}", known.flavor, amounts.join(";"))
        };
        f.write_str(&self.flavors.iter().map(flavor).collect::<Vec<_>>().join(","))
    }
}

fn parse_amount(text: &str, column: usize) -> Result<(String, String), String> {
    let (resource, quantity) = text.split_once('=').ok_or_else(|| {
        let end = column + text.chars().count();
        if text.trim().is_empty() {
            format!("resource expected (column {column})")
        } else {
            format!("\"=\" expected after the resource {:?} (column {end})", text.trim())
        }
    })?;
    let place = column + resource.chars().count() + 1;
    let name = resource.trim();
    if let Some(problem) = syntax::qualified_name(name).into_iter().next() {
        return Err(format!("invalid resource {name:?} (column {column}): {problem}"));
    }
    let quantity = quantity.trim();
    if quantity.is_empty() {
        return Err(format!("quantity expected after \"{name}=\" (column {place})"));
    }
    match Quantity::parse(quantity) {
        // Kubernetes reads a sign or a suffix alone as 0; as a quota that is a typing error.
        Ok(_) if !quantity.contains(|c: char| c.is_ascii_digit()) => {
            Err(format!("invalid quantity {quantity:?} (column {place}): no digits"))
        }
        Ok(value) if value.is_negative() => {
            Err(format!("invalid quantity {quantity:?} (column {place}): a quota is at least 0"))
        }
        Ok(value) => Ok((name.to_owned(), value.to_string())),
        Err(problem) => Err(format!("invalid quantity {quantity:?} (column {place}): {problem}")),
    }
}

/// The three quota flags of a ClusterQueue.
#[derive(Clone, Debug, Default)]
pub struct Quotas {
    /// `--nominal-quota`.
    pub nominal: QuotaText,
    /// `--borrowing-limit`.
    pub borrowing: QuotaText,
    /// `--lending-limit`.
    pub lending: QuotaText,
}

impl Quotas {
    /// Parses the values of the three flags.
    ///
    /// # Errors
    /// A value is malformed, or the flags contradict each other.
    pub fn parse(nominal: &[String], borrowing: &[String], lending: &[String]) -> Result<Self, String> {
        let quotas = Self {
            nominal: QuotaText::parse("--nominal-quota", nominal)?,
            borrowing: QuotaText::parse("--borrowing-limit", borrowing)?,
            lending: QuotaText::parse("--lending-limit", lending)?,
        };
        for (flag, limits) in [("--borrowing-limit", &quotas.borrowing), ("--lending-limit", &quotas.lending)]
        {
            for FlavorAmounts { flavor, amounts } in &limits.flavors {
                for (resource, _) in amounts {
                    if quotas.nominal.amount(flavor, resource).is_none() {
                        return Err(format!(
                            "{flag}: flavor {flavor} has no nominal quota for {resource}: add {resource}=0 to --nominal-quota"
                        ));
                    }
                }
            }
        }
        Ok(quotas)
    }

    /// Returns `spec.resourceGroups`: flavors that share resources form one group, in the order of its first flavor.
    ///
    /// # Errors
    /// Flavors share some resources but not all; the text names the missing ones.
    pub fn to_groups(&self) -> Result<Vec<Value>, String> {
        let mut groups: Vec<(Vec<&str>, Vec<Value>, &str)> = Vec::new();
        for FlavorAmounts { flavor, amounts } in &self.nominal.flavors {
            let names: Vec<&str> = amounts.iter().map(|(name, _)| name.as_str()).collect();
            match groups.iter_mut().find(|(covered, ..)| covered.iter().any(|name| names.contains(name))) {
                None => {
                    let quotas = self.flavor_quotas(flavor, &names);
                    groups.push((names, vec![quotas], flavor));
                }
                Some((covered, flavors, first)) => {
                    missing(covered, &names, flavor, first)?;
                    missing(&names, covered, first, flavor)?;
                    flavors.push(self.flavor_quotas(flavor, covered));
                }
            }
        }
        let group = |(covered, flavors, _)| json!({"coveredResources": covered, "flavors": flavors});
        Ok(groups.into_iter().map(group).collect())
    }

    fn flavor_quotas(&self, flavor: &str, resources: &[&str]) -> Value {
        let quota = |resource: &&str| {
            let mut quota = json!({"name": resource, "nominalQuota": self.nominal.amount(flavor, resource)});
            for (field, limits) in [("borrowingLimit", &self.borrowing), ("lendingLimit", &self.lending)] {
                if let (Some(fields), Some(limit)) = (quota.as_object_mut(), limits.amount(flavor, resource))
                {
                    fields.insert(field.to_owned(), json!(limit));
                }
            }
            quota
        };
        json!({"name": flavor, "resources": resources.iter().map(quota).collect::<Vec<_>>()})
    }
}

/// Fails if `flavor`, which has the resources `names`, lacks one of `wanted`, the resources of `other`.
fn missing(wanted: &[&str], names: &[&str], flavor: &str, other: &str) -> Result<(), String> {
    match wanted.iter().find(|name| !names.contains(name)) {
        None => Ok(()),
        Some(name) => Err(format!(
            "--nominal-quota: flavors {other} and {flavor} share a resource, so each needs all: flavor {flavor} has no quota for {name}: add {name}=0"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn quotas(nominal: &str, borrowing: &[&str]) -> Result<Vec<Value>, String> {
        let borrowing: Vec<String> = borrowing.iter().map(|&text| text.to_owned()).collect();
        Quotas::parse(&[nominal.to_owned()], &borrowing, &[])?.to_groups()
    }

    #[test]
    fn errors_name_flag_text_and_column() {
        for (nominal, borrowing, expected) in [
            (
                "h100:cpu=9;cpu=8",
                "",
                r#"--nominal-quota: "h100:cpu=9;cpu=8": resource cpu is given twice for flavor h100"#,
            ),
            ("h100:cpu=", "", r#"--nominal-quota: "h100:cpu=": quantity expected after "cpu=" (column 10)"#),
            (
                "h100:cpu=1",
                "h100:memory=1",
                "--borrowing-limit: flavor h100 has no nominal quota for memory: add memory=0 to --nominal-quota",
            ),
            ("h100", "", r#"--nominal-quota: "h100": ":" expected after the flavor "h100" (column 5)"#),
            (
                "h100:cpu",
                "",
                r#"--nominal-quota: "h100:cpu": "=" expected after the resource "cpu" (column 9)"#,
            ),
            ("h100:", "", r#"--nominal-quota: "h100:": resource expected (column 6)"#),
            (
                "a:cpu=1,b:cpu=x",
                "",
                r#"--nominal-quota: "a:cpu=1,b:cpu=x": invalid quantity "x" (column 15)"#,
            ),
            (
                "a:cpu=-1",
                "",
                r#"--nominal-quota: "a:cpu=-1": invalid quantity "-1" (column 7): a quota is at least 0"#,
            ),
            ("a:cpu=Gi", "", r#"invalid quantity "Gi" (column 7)"#),
            ("A!:cpu=1", "", r#"invalid flavor "A!" (column 1)"#),
            ("a:c u=1", "", r#"invalid resource "c u" (column 3)"#),
            (
                "a:cpu=1;memory=1,b:cpu=1",
                "",
                "flavors a and b share a resource, so each needs all: flavor b has no quota for memory: add memory=0",
            ),
            ("a:cpu=1,b:cpu=1;memory=1", "", "flavor a has no quota for memory"),
            ("a:cpu=1,a:cpu=2", "", "resource cpu is given twice for flavor a"),
        ] {
            let borrowing: Vec<&str> = Some(borrowing).filter(|text| !text.is_empty()).into_iter().collect();
            let error = quotas(nominal, &borrowing).unwrap_err();
            assert!(error.contains(expected), "{nominal}: {error}");
        }
    }

    #[test]
    fn flavors_that_share_resources_form_one_group() {
        let groups =
            quotas("a:cpu=1.5;memory=10Gi,b:memory=0;cpu=500m;,c:gpu=0,a.b/c-d:x.y/gpu-a=4", &["a:cpu=0"]);
        // A flavor name has no slash.
        assert!(groups.unwrap_err().contains("invalid flavor \"a.b/c-d\""));
        let groups =
            quotas("a:cpu=1.5;memory=10Gi,b:memory=0;cpu=500m;,c:gpu=0,d:vgpu=4", &["a:cpu=0"]).unwrap();
        let expected = json!([
            {"coveredResources": ["cpu", "memory"], "flavors": [
                {"name": "a", "resources": [
                    {"name": "cpu", "nominalQuota": "1500m", "borrowingLimit": "0"}, {"name": "memory", "nominalQuota": "10Gi"}]},
                {"name": "b", "resources": [{"name": "cpu", "nominalQuota": "500m"}, {"name": "memory", "nominalQuota": "0"}]}]},
            {"coveredResources": ["gpu"], "flavors": [{"name": "c", "resources": [{"name": "gpu", "nominalQuota": "0"}]}]},
            {"coveredResources": ["vgpu"], "flavors": [{"name": "d", "resources": [{"name": "vgpu", "nominalQuota": "4"}]}]},
        ]);
        assert_eq!(Value::Array(groups), expected);
    }

    prop_compose! {
        fn amounts()(names in prop::collection::btree_set("[a-z]{1,4}|[a-z]{1,3}\\.[a-z]{1,3}/[a-z]{1,3}-[a-z0-9]", 1..4), values in prop::collection::vec("[0-9]{1,4}(|m|k|Ki|Gi|M)|[0-9]\\.[1-9]|0", 4)) -> Vec<(String, String)> {
            names.into_iter().zip(values).collect()
        }
    }

    proptest! {
        /// Every printed quota is parsed as the same quota.
        #[test]
        fn printed_quotas_are_read_back(flavors in prop::collection::btree_map("[a-z][a-z0-9.-]{0,5}[a-z0-9]", amounts(), 1..5)) {
            let flavors: Vec<FlavorAmounts> =
                flavors.into_iter().map(|(flavor, amounts)| FlavorAmounts { flavor, amounts }).collect();
            let given = QuotaText { flavors };
            prop_assume!(given.flavors.iter().all(|known| syntax::subdomain(&known.flavor).is_empty()));
            let read = QuotaText::parse("--nominal-quota", &[given.to_string()]).unwrap();
            let value = |text: &QuotaText| -> Vec<(String, String, Quantity)> {
                let rows = text.flavors.iter().flat_map(|known| known.amounts.iter().map(|amount| (known.flavor.clone(), amount)));
                rows.map(|(flavor, (name, quantity))| (flavor, name.clone(), Quantity::parse(quantity).unwrap())).collect()
            };
            prop_assert_eq!(value(&read), value(&given));
            prop_assert_eq!(QuotaText::parse("--nominal-quota", &[read.to_string()]), Ok(read));
        }

        /// No text that a shell can pass makes the parser panic.
        #[test]
        fn every_text_is_read_or_refused(text in "[a-c:;=,0-9.iKé\u{0}-]{0,20}") {
            let _ = Quotas::parse(std::slice::from_ref(&text), &[], std::slice::from_ref(&text)).and_then(|quotas| quotas.to_groups());
        }
    }
}
