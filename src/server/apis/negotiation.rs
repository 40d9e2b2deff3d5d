//! Content negotiation: selects the media type of an answer.
//!
//! Clients list several types, often one first that this server lacks, such as protobuf. The first type that it has is chosen,
//! by weight and then by order. Unknown types are no error as long as one type is known.

/// A media type of the header `Accept`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Accepted<'a> {
    media: &'a str,
    /// Parameters in order, without the weight.
    parameters: Vec<(&'a str, &'a str)>,
    /// Weight in thousandths.
    weight: u32,
}

impl Accepted<'_> {
    pub(super) fn parameter(&self, name: &str) -> &str {
        self.parameters.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }

    /// Whether it is JSON, or anything.
    pub(super) fn is_json(&self) -> bool {
        matches!(self.media, "application/json" | "application/*" | "*/*")
    }
}

/// Parses the header `Accept`, preferred types first. Without the header every type is accepted.
pub(super) fn accepted(header: Option<&str>) -> Vec<Accepted<'_>> {
    let header = header.filter(|header| !header.trim().is_empty()).unwrap_or("*/*");
    let mut types: Vec<Accepted<'_>> = header.split(',').map(one_type).filter(|one| one.weight > 0).collect();
    types.sort_by_key(|one| std::cmp::Reverse(one.weight));
    types
}

fn one_type(text: &str) -> Accepted<'_> {
    let mut parts = text.split(';').map(str::trim);
    let mut one = Accepted { media: parts.next().unwrap_or_default(), weight: 1_000, ..Accepted::default() };
    for part in parts {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let (name, value) = (name.trim(), value.trim().trim_matches('"'));
        if name == "q" {
            one.weight = thousandths(value);
        } else {
            one.parameters.push((name, value));
        }
    }
    one
}

/// Reads a weight: `0`, `1`, or up to three decimals.
fn thousandths(text: &str) -> u32 {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let decimals: String = decimals.chars().chain("000".chars()).take(3).collect();
    let whole: u32 = whole.parse().unwrap_or(1);
    whole.saturating_mul(1_000).saturating_add(decimals.parse().unwrap_or(0)).min(1_000)
}

/// Form of the answer about a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The objects.
    Json,
    /// A Table.
    Table,
}

impl Format {
    /// Returns the most wanted format that is known; `None` if none is.
    pub(super) fn of(header: Option<&str>) -> Option<Self> {
        accepted(header).iter().find_map(|one| match (one.is_json(), one.parameter("as")) {
            (true, "") => Some(Self::Json),
            (true, "Table") if one.parameter("g") == "meta.k8s.io" && one.parameter("v") == "v1" => {
                Some(Self::Table)
            }
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_known_type_is_taken() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let kubectl = format!("{table},application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json");
        for (header, expected) in [
            (None, Some(Format::Json)),
            (Some(""), Some(Format::Json)),
            (Some("*/*"), Some(Format::Json)),
            (Some(&*kubectl), Some(Format::Table)),
            (Some("application/vnd.kubernetes.protobuf,application/json"), Some(Format::Json)),
            (Some("application/vnd.kubernetes.protobuf"), None),
            (Some("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"), None),
            (Some("application/json;as=Table;v=v1beta1;g=meta.k8s.io, application/json"), Some(Format::Json)),
            (
                Some("application/json;q=0.5, application/json; as=Table; v=v1; g=meta.k8s.io;q=0.9"),
                Some(Format::Table),
            ),
            (Some("application/json;q=0"), None),
            (Some("text/html, */*;q=0.1"), Some(Format::Json)),
        ] {
            assert_eq!(Format::of(header), expected, "{header:?}");
        }
    }
}
