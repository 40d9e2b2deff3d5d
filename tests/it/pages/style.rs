//! The style sheet of the dashboard: contrast of its colours in both themes, as WCAG 2.2 AA asks for.

use regex::Regex;
use std::collections::BTreeMap;

/// Texts and what they stand on: 4.5 to 1.
const TEXTS: [(&str, &str); 26] = [
    ("ink", "bg"),
    ("ink", "surface"),
    ("ink", "sunken"),
    ("ink-2", "bg"),
    ("ink-2", "surface"),
    ("ink-2", "sunken"),
    ("ink-2", "warn-bg"),
    ("ink-2", "bad-bg"),
    ("ink", "warn-bg"),
    ("ink", "bad-bg"),
    ("ink-3", "bg"),
    ("ink-3", "surface"),
    ("ink-3", "heat-0"),
    ("link", "bg"),
    ("link", "surface"),
    ("link", "warn-bg"),
    ("bad", "bg"),
    ("bad", "bad-bg"),
    ("warn", "bg"),
    ("warn", "surface"),
    ("good", "bg"),
    ("bg", "ink"),
    ("heat-ink", "heat-1"),
    ("heat-ink", "heat-2"),
    ("heat-ink", "heat-3"),
    ("heat-ink-4", "heat-4"),
];
/// Graphics that mean something and what they stand on: 3 to 1.
const GRAPHICS: [(&str, &str); 13] = [
    ("used", "bg"),
    ("used", "track"),
    ("borrowed", "bg"),
    ("borrowed", "track"),
    ("lent", "track"),
    ("track-edge", "bg"),
    ("control", "bg"),
    ("control", "surface"),
    ("focus", "bg"),
    ("group-1", "bg"),
    ("group-2", "bg"),
    ("group-3", "bg"),
    ("group-4", "bg"),
];

fn style() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/views/src/dashboard/assets/sluice.css");
    std::fs::read_to_string(path).unwrap()
}

/// Colours by name in a block of the style sheet.
fn colours(block: &str) -> BTreeMap<String, [f64; 3]> {
    let token = Regex::new("--([a-z0-9-]+): #([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2});").unwrap();
    let channel = |text: &str| f64::from(u8::from_str_radix(text, 16).unwrap()) / 255.0;
    token
        .captures_iter(block)
        .map(|found| (found[1].to_owned(), [channel(&found[2]), channel(&found[3]), channel(&found[4])]))
        .collect()
}

/// Colours of the light and of the dark theme.
fn themes() -> [BTreeMap<String, [f64; 3]>; 2] {
    let style = style();
    let (light, rest) = style.split_once("@media (prefers-color-scheme: dark)").unwrap();
    let (dark, _) = rest.split_once("\n}\n").unwrap();
    [colours(light), colours(dark)]
}

fn contrast(a: [f64; 3], b: [f64; 3]) -> f64 {
    let luminance = |colour: [f64; 3]| -> f64 {
        let linear = colour.map(|c| if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) });
        0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    };
    let (a, b) = (luminance(a), luminance(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

#[test]
fn colours_have_enough_contrast() {
    assert!((contrast([0.0; 3], [1.0; 3]) - 21.0).abs() < 1e-9);
    let mut weak = Vec::new();
    for (theme, colours) in ["light", "dark"].iter().zip(themes()) {
        for (pairs, least) in [(&TEXTS[..], 4.5), (&GRAPHICS[..], 3.0)] {
            for (front, back) in pairs {
                let ratio = contrast(colours[*front], colours[*back]);
                if ratio < least {
                    weak.push(format!("{theme}: {front} on {back} {ratio:.2} < {least}"));
                }
            }
        }
    }
    assert!(weak.is_empty(), "{weak:#?}");
}

#[test]
fn both_themes_have_the_same_colours() {
    let [light, dark] = themes();
    assert!(light.len() > 25 && light.keys().eq(dark.keys()));
}

#[test]
fn motion_ends_on_request_and_nothing_is_loaded() {
    let style = style();
    assert!(style.contains("@media (prefers-reduced-motion: reduce)"));
    assert!(!style.contains("url(") && !style.contains("@import"));
}

/// Rows of a heat map with fewer cells than others end with none, not with cells of the colour of what is full.
#[test]
fn a_short_row_of_a_heat_map_has_no_more_cells() {
    assert!(style().lines().any(|line| line.starts_with(".heat .none { background: none;")));
}

/// The name of a user is as long as its issuer likes: it gives way, and the page keeps the width of the window.
#[test]
fn the_name_of_a_user_is_cut() {
    let style = style();
    let rule = style.lines().find(|line| line.starts_with(".where .user {")).unwrap();
    for part in ["min-width: 0", "overflow: hidden", "text-overflow: ellipsis"] {
        assert!(rule.contains(part), "{rule}");
    }
    let around = style.lines().find(|line| line.starts_with(".where {")).unwrap();
    assert!(around.contains("min-width: 0"), "{around}");
}
