//! Files of prices, and bills whose numbers were computed by hand.

use super::*;
use proptest::prelude::*;

const FILE: &str = "\
currency: EUR
prices:
- {resource: nvidia.com/gpu, perHour: 2.50}
- {resource: nvidia.com/gpu, flavor: h100, perHour: \"4.1\"}
- {resource: cpu, perHour: 0.031234}
- {resource: memory, perHour: 0.004}
";

fn hours(unit_milliseconds: i128) -> HoursView {
    HoursView { unit_milliseconds: unit_milliseconds.to_string(), ..HoursView::default() }
}

fn flavor(flavor: &str, [used, borrowed, lost]: [i128; 3]) -> FlavorUsage {
    FlavorUsage { flavor: flavor.to_owned(), used: hours(used), borrowed: hours(borrowed), lost: hours(lost) }
}

fn row(resource: &str, flavors: Vec<FlavorUsage>) -> UsageView {
    UsageView { resource: resource.to_owned(), flavors, ..UsageView::default() }
}

fn report(items: Vec<UsageView>) -> UsageReport {
    let names: BTreeSet<String> = items.iter().map(|item| item.resource.clone()).collect();
    UsageReport {
        items,
        sums: names.iter().map(|name| row(name, Vec::new())).collect(),
        ..UsageReport::default()
    }
}

/// Units × milliseconds of a number of thousandths of an hour.
fn time(resource: &str, thousandths: i128) -> i128 {
    units_per_hour(resource) / 1_000 * thousandths
}

fn costs(text: &str, items: Vec<UsageView>) -> (Vec<Option<String>>, Bill) {
    let report = report(items);
    let bill = Prices::read(text, "p.yaml").unwrap().bill(&report).unwrap();
    ((0..report.items.len()).map(|position| bill.item(position)).collect(), bill)
}

#[test]
fn hours_cost_their_price_in_units_that_texts_show() {
    let gpu = |name: &str, thousandths: i128| flavor(name, [time("nvidia.com/gpu", thousandths), 0, 0]);
    let of = |resource: &str, thousandths: i128| {
        row(resource, vec![flavor("any", [time(resource, thousandths), 0, 0])])
    };
    let (found, bill) = costs(
        FILE,
        vec![
            // 10 × 4.1 + 4 × 2.5
            row("nvidia.com/gpu", vec![gpu("h100", 10_000), gpu("l4", 4_000)]),
            // 100 × 0.031234
            of("cpu", 100_000),
            // 1,024 GiB hours × 0.004
            of("memory", 1_024_000),
            of("pods", 1_000),
            // Half an hour × 2.5
            row("nvidia.com/gpu", vec![gpu("l4", 500)]),
        ],
    );
    let expected = ["51.00", "3.12", "4.10", "-", "1.25"];
    let found: Vec<String> = found.into_iter().map(|cost| cost.unwrap_or_else(|| "-".to_owned())).collect();
    assert_eq!(found, expected);
    // Sums in the order of the names: cpu, memory, nvidia.com/gpu, pods.
    let sums: Vec<Option<String>> = (0..4).map(|position| bill.sum(position)).collect();
    assert_eq!(sums, [Some("3.12".to_owned()), Some("4.10".to_owned()), Some("52.25".to_owned()), None]);
    assert_eq!((bill.total().as_str(), bill.currency.as_str()), ("59.47", "EUR"));
    assert_eq!(bill.without_price(), ["pods"]);
    assert_eq!(bill.sha256.len(), 64);
}

#[test]
fn each_row_is_rounded_half_up() {
    let text = |price: &str, more: &str| {
        format!("currency: X\n{more}prices:\n- {{resource: nvidia.com/gpu, perHour: {price}}}\n")
    };
    let hour = time("nvidia.com/gpu", 1_000);
    for (price, used, more, expected) in [
        ("0.005", hour, "", "0.01"),
        ("0.004999", hour, "", "0.00"),
        ("0.01", hour / 2, "", "0.01"),
        ("0.01", hour / 2 - 1, "", "0.00"),
        ("0.005", 3 * hour, "", "0.02"),
        ("1.5", hour, "decimals: 0\n", "2"),
        ("1.499999", hour, "decimals: 0\n", "1"),
        ("1.499999", hour, "decimals: 6\n", "1.499999"),
        ("0", hour, "", "0.00"),
        ("999999999", 1_000_000_000 * hour, "", "999999999000000000.00"),
    ] {
        let item = row("nvidia.com/gpu", vec![flavor("f", [used, 0, 0])]);
        let (found, _) = costs(&text(price, more), vec![item]);
        assert_eq!(found, [Some(expected.to_owned())], "{price} {used} {more}");
    }
}

#[test]
fn factors_change_the_price_of_borrowed_and_lost_hours() {
    let text = |factors: &str| {
        format!("currency: X\nfactors: {factors}\nprices:\n- {{resource: cpu, perHour: 1}}\n")
    };
    let hour = time("cpu", 1_000);
    for (factors, [used, borrowed, lost], expected) in [
        ("{}", [10, 4, 3], "10.00"),
        ("{borrowed: 0.5}", [10, 4, 3], "8.00"),
        ("{lost: 0}", [10, 4, 3], "7.00"),
        ("{borrowed: 1.25, lost: 0.5}", [10, 4, 3], "9.50"),
        // All hours are both: never less than nothing.
        ("{borrowed: 0, lost: 0}", [10, 10, 10], "0.00"),
    ] {
        let item = row("cpu", vec![flavor("f", [used * hour, borrowed * hour, lost * hour])]);
        let (found, bill) = costs(&text(factors), vec![item]);
        assert_eq!(found, [Some(expected.to_owned())], "{factors}");
        assert!(!bill.borrowed_is_hidden);
    }
    // A reader without the right to see borrowed hours.
    let hidden = FlavorUsage { borrowed: HoursView::default(), ..flavor("f", [10 * hour, 0, 0]) };
    let (found, bill) = costs(&text("{borrowed: 0.5}"), vec![row("cpu", vec![hidden.clone()])]);
    assert_eq!((found, bill.borrowed_is_hidden), (vec![Some("10.00".to_owned())], true));
    let (_, bill) = costs(FILE, vec![row("cpu", vec![hidden])]);
    assert!(!bill.borrowed_is_hidden, "nothing depends on them");
}

#[test]
fn hours_without_a_price_are_named_and_cost_nothing() {
    let text = "currency: X\nprices:\n- {resource: nvidia.com/gpu, flavor: h100, perHour: 1}\n";
    let used = time("nvidia.com/gpu", 1_000);
    let items = || {
        vec![
            row("nvidia.com/gpu", vec![flavor("a100", [used, 0, 0]), flavor("h100", [used, 0, 0])]),
            row("nvidia.com/gpu", vec![flavor("a100", [used, 0, 0])]),
            row("cpu", vec![flavor("a100", [used, 0, 0])]),
            row("memory", vec![flavor("a100", [0, 0, 0])]),
        ]
    };
    let (found, bill) = costs(text, items());
    assert_eq!(found, [Some("1.00".to_owned()), None, None, None]);
    assert_eq!(bill.without_price(), ["cpu", "nvidia.com/gpu in a100"]);
    let mut answer = json!(report(items()));
    bill.add_to(&mut answer);
    assert_eq!((&answer["items"][0]["cost"], answer["items"][1].get("cost")), (&json!("1.00"), None));
    assert_eq!(answer["prices"]["withoutPrice"], json!(["cpu", "nvidia.com/gpu in a100"]));
    assert_eq!((&answer["prices"]["total"], &answer["prices"]["file"]), (&json!("1.00"), &json!("p.yaml")));
}

/// A manager of an earlier version answers without flavors.
#[test]
fn rows_without_flavors_cost_the_price_of_all_flavors() {
    let whole =
        |resource: &str| UsageView { used: hours(time(resource, 2_000)), ..row(resource, Vec::new()) };
    let (found, _) = costs(FILE, vec![whole("memory")]);
    assert_eq!(found, [Some("0.01".to_owned())]);
    let refused = Prices::read(FILE, "p.yaml").unwrap().bill(&report(vec![whole("nvidia.com/gpu")]));
    assert!(refused.unwrap_err().contains("it is older than this command"));
    let unreadable = UsageView {
        used: HoursView { unit_milliseconds: "x".to_owned(), ..HoursView::default() },
        ..row("cpu", Vec::new())
    };
    let refused = Prices::read(FILE, "p.yaml").unwrap().bill(&report(vec![unreadable]));
    assert!(refused.unwrap_err().contains("\"x\""));
}

#[test]
fn what_cannot_be_counted_is_an_error() {
    let text = "currency: X\nprices:\n- {resource: a, perHour: 999999999}\n";
    for used in [i128::MAX, i128::MAX / 1_000] {
        let item = row("a", vec![flavor("f", [used, 0, 0])]);
        let refused = Prices::read(text, "p.yaml").unwrap().bill(&report(vec![item]));
        assert!(refused.unwrap_err().contains("more than can be counted"), "{used}");
    }
}

#[test]
fn wrong_files_are_refused_with_file_line_and_field() {
    let one = |row: &str| format!("currency: EUR\nprices:\n- {{resource: cpu, perHour: 1}}\n- {row}\n");
    let cases = [
        (one("{resource: gpu, perHour: -1}"), "p.yaml:4: perHour: gpu: -1 is negative"),
        (one("{resource: gpu, perHour: .nan}"), "p.yaml:4: perHour: gpu: \".nan\" is no decimal number"),
        (one("{resource: gpu, perHour: .inf}"), "is no decimal number"),
        (one("{resource: gpu, perHour: 1e3}"), "is no decimal number"),
        (one("{resource: gpu, perHour: \"1,5\"}"), "is no decimal number"),
        (one("{resource: gpu, perHour: \"\"}"), "is no decimal number"),
        (one("{resource: gpu, perHour: \"5.\"}"), "is no decimal number"),
        (
            one("{resource: gpu, perHour: 1000000000}"),
            "p.yaml:4: perHour: gpu: 1000000000 is more than 999999999",
        ),
        (one(&format!("{{resource: gpu, perHour: {}}}", "9".repeat(60))), "is more than 999999999"),
        (one("{resource: gpu, perHour: 0.1234567}"), "0.1234567 has more than 6 decimals"),
        (one("{resource: cpu, perHour: 2}"), "p.yaml:4: resource: cpu has a price already"),
        (
            one("{resource: gpu, flavor: a, perHour: 2}\n- {resource: gpu, flavor: a, perHour: 3}"),
            "p.yaml:5: resource: gpu in a has a price already",
        ),
        (one("{resource: \"\", perHour: 1}"), "p.yaml:4: resource: \"\" is no name of a resource"),
        (one("{resource: a b, perHour: 1}"), "is no name of a resource"),
        (one("{resource: gpu, flavor: \"\", perHour: 1}"), "p.yaml:4: flavor: \"\" is no name of a flavor"),
        (one("{resource: gpu, price: 1}"), "price"),
        (one("{resource: gpu}"), "perHour"),
        (one("gpu"), "p.yaml:4: "),
        ("prices:\n- {resource: cpu, perHour: 1}\n".to_owned(), "currency"),
        ("currency: EUR\nprices: []\n".to_owned(), "prices: has 0 entries"),
        ("currency: EUR\ncurrency: USD\nprices: []\n".to_owned(), "p.yaml:2: "),
        (
            "currency: \" \"\nprices: []\n".to_owned(),
            "p.yaml:1: currency: must be a text of 1 to 16 characters",
        ),
        ("currency: \"a\\nb\"\nprices: []\n".to_owned(), "currency: must be a text"),
        (format!("currency: {}\nprices: []\n", "x".repeat(17)), "currency: must be a text"),
        (
            "currency: E\ndecimals: 7\nprices: []\n".to_owned(),
            "p.yaml:2: decimals: \"7\" is no number from 0 to 6",
        ),
        ("currency: E\ndecimals: -1\nprices: []\n".to_owned(), "decimals: \"-1\" is no number"),
        (
            "currency: E\nfactors: {borrowed: -0.5}\nprices: []\n".to_owned(),
            "p.yaml:2: factors.borrowed: -0.5 is negative",
        ),
        (
            "currency: E\nfactors: {lost: 1001}\nprices: []\n".to_owned(),
            "factors.lost: 1001 is more than 1000",
        ),
        ("currency: E\nfactors: {idle: 1}\nprices: []\n".to_owned(), "idle"),
        (String::new(), "p.yaml:"),
        ("[]".to_owned(), "p.yaml:"),
        ("{".to_owned(), "p.yaml:"),
    ];
    for (text, part) in cases {
        let error = Prices::read(&text, "p.yaml").unwrap_err();
        assert!(error.contains(part) && error.starts_with("p.yaml:"), "{text}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn only_prices_of_a_flavor_need_hours_by_flavor() {
    assert!(Prices::read(FILE, "p").unwrap().depend_on_flavors());
    let text = "currency: X\nprices:\n- {resource: cpu, perHour: 1}\n";
    assert!(!Prices::read(text, "p").unwrap().depend_on_flavors());
}

proptest! {
    /// The cost of a sum differs from that of its parts only by their rounding, and does not depend on how a row is divided into
    /// flavors of one price.
    #[test]
    fn costs_add_up(parts in prop::collection::vec(0_i128..10_000_000_000_000_000, 1..20), price in 0_i128..2_000_000) {
        let text = format!("currency: X\nprices:\n- {{resource: cpu, perHour: {}.{:06}}}\n", price / 1_000_000, price % 1_000_000);
        let prices = Prices::read(&text, "p").unwrap();
        let all: i128 = parts.iter().sum();
        let one = |used: i128| report(vec![row("cpu", vec![flavor("f", [used, 0, 0])])]);
        let whole = prices.bill(&one(all)).unwrap().total;
        let by_flavor = parts.iter().map(|used| flavor("f", [*used, 0, 0])).collect();
        prop_assert_eq!(prices.bill(&report(vec![row("cpu", by_flavor)])).unwrap().total, whole);
        let rows = parts.iter().map(|used| row("cpu", vec![flavor("f", [*used, 0, 0])])).collect();
        let bill = prices.bill(&report(rows)).unwrap();
        prop_assert_eq!(bill.sums[0], Some(bill.total));
        let halves = i128::try_from(parts.len()).unwrap() + 1;
        prop_assert!(((bill.total - whole) * 2).abs() <= halves, "{} {}", bill.total, whole);
        // The exact cost in hundredths is all × price / (units of an hour × 10^4).
        let (numerator, denominator) = (all * price, units_per_hour("cpu") * 10_000);
        prop_assert!((whole * denominator - numerator).abs() * 2 <= denominator);
    }
}
