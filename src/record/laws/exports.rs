//! Laws of exports: their sums equal usage, their pages form one list, and a tenant sees only its own rows.

use super::*;
use crate::record::changes::{Changes, NewRecord};
use crate::record::periods::{Group, Sums, hour_of};
use crate::record::rows::{AmountRow, OpenRow, RecordRow, WorkloadRow, timestamp};
use crate::record::store::{CommitAt, CommitId, Store};
use crate::visibility::access::{Access, TenantDetail};
use crate::visibility::history::export::ExportTopic;
use crate::visibility::history::{HistorySource, Rollup};
use crate::visibility::page::{ModelError, PageQuery};
use crate::visibility::views::{UsageRecordReport, UsageRecordView};

const ROLLUPS: [Option<Rollup>; 3] = [None, Some(Rollup::Hour), Some(Rollup::Day)];

fn topic(rollup: Option<Rollup>, (since, until): (i64, Option<i64>)) -> ExportTopic {
    let page = PageQuery { limit: 1_000_000, continue_token: String::new() };
    ExportTopic { since: timestamp(since), until: until.map(timestamp), rollup, namespace: None, page }
}

fn ask(recorder: &Recorder, topic: &ExportTopic, now: i64) -> Result<UsageRecordReport, ModelError> {
    let history = Ring::new(1).view();
    let source = HistorySource { history: &history, replica: "recorder", now: timestamp(now) };
    let access = match &topic.namespace {
        Some(namespace) => Access::to_namespace(namespace, TenantDetail::Sums),
        None => Access::everything(),
    };
    source.export(topic, &access, Some(recorder))
}

/// Milliseconds of a row in a period.
fn cut(row: &UsageRecordView, (from, until): (i64, i64)) -> i128 {
    let run = row.run.as_ref().unwrap();
    let ms = |time: Option<Timestamp>| time.unwrap().as_millisecond();
    let time = ms(run.until).min(until) - ms(row.start).max(from);
    run.units.parse::<i128>().unwrap() * i128::from(time.max(0))
}

fn exact(text: &str) -> i128 {
    if text.is_empty() { 0 } else { text.parse().unwrap() }
}

/// Used and lost amounts of a period, as `usage` answers them.
fn of_usage(world: &World, (from, until): (i64, i64)) -> (i128, i128) {
    let cohorts = BTreeMap::new();
    let query = UsageQuery {
        by: UsageGroup::Queue,
        from: timestamp(from),
        until: timestamp(until),
        resource: None,
        namespace: None,
        cohorts: &cohorts,
    };
    let usage = world.recorder().read_usage(&query, &world.ring.view(), time(world.now)).unwrap().usage;
    let sums = usage.sums.iter();
    sums.fold((0, 0), |all, row| (all.0 + row.used, all.1 + row.lost))
}

/// The sums of the export of a period equal usage, whichever rows it has.
pub(super) fn check_sums(world: &World, since: i64, until: Option<i64>) -> Result<(), TestCaseError> {
    let now = ms(world.now);
    for rollup in ROLLUPS {
        let report = ask(world.recorder(), &topic(rollup, (since, until)), now).unwrap();
        let step = if rollup == Some(Rollup::Day) { DAY } else { HOUR };
        let from = since - since.rem_euclid(step);
        let end = report.recorded.until.unwrap().as_millisecond();
        if end <= since {
            prop_assert!(report.items.is_empty());
            continue;
        }
        let rows = report.items.iter();
        let (used, lost) = if rollup.is_none() {
            (rows.map(|row| cut(row, (from, end))).sum::<i128>(), None)
        } else {
            prop_assert!(report.items.iter().all(|row| row.end.unwrap().as_millisecond() <= end));
            let lost = |row: &UsageRecordView| exact(&row.sums.as_ref().unwrap().lost.unit_milliseconds);
            (
                rows.clone().map(|row| exact(&row.used.unit_milliseconds)).sum::<i128>(),
                Some(rows.map(lost).sum::<i128>()),
            )
        };
        let expected = of_usage(world, (from, end));
        prop_assert_eq!(used, expected.0, "{:?} from {} until {}", rollup, from, end);
        prop_assert_eq!(lost.unwrap_or(expected.1), expected.1);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn an_export_has_the_sums_of_usage(steps in steps(), from in 0_i64..40, hours in 1_i64..40) {
        let mut world = World::new();
        for step in &steps {
            world.step(*step);
        }
        world.settle();
        let since = ms(0) + from * HOUR;
        check_sums(&world, since, None)?;
        let until = since + hours * HOUR;
        if until < ms(world.now) {
            check_sums(&world, since, Some(until))?;
        }
    }

    #[test]
    fn pages_are_one_list_while_more_is_recorded(
        steps in steps(),
        later in steps(),
        limit in 1_usize..5,
        rollup in prop::sample::select(&ROLLUPS[..]),
        until in prop::option::of(1_i64..40),
    ) {
        let mut world = World::new();
        for step in &steps {
            world.step(*step);
        }
        world.settle();
        let until = until.map(|hours| ms(0) + hours * HOUR).filter(|until| *until < ms(world.now));
        let all = topic(rollup, (ms(0) - 1, until));
        let expected = ask(world.recorder(), &all, ms(world.now)).unwrap();
        let (mut found, mut later) = (Vec::new(), later.iter());
        let mut page = ExportTopic { page: PageQuery { limit, ..PageQuery::default() }, ..all };
        let mut asked_at = ms(world.now);
        loop {
            let report = ask(world.recorder(), &page, asked_at).unwrap();
            prop_assert!(report.items.len() <= limit);
            prop_assert_eq!(report.recorded.until, expected.recorded.until);
            found.extend(report.items);
            if report.metadata.continue_token.is_empty() {
                break;
            }
            page.page.continue_token = report.metadata.continue_token;
            for step in later.by_ref().take(3) {
                world.step(*step);
            }
            // What is written meanwhile takes no day.
            asked_at += 1;
        }
        prop_assert_eq!(found, expected.items);
    }
}

fn workload(number: i64) -> WorkloadRow {
    WorkloadRow {
        uid: Arc::from(format!("uid-{number:03}")),
        namespace: Arc::from(["a", "b", "c"][usize::try_from(number % 3).unwrap()]),
        name: Arc::from(format!("w-{number}")),
        cluster_queue: Arc::from("cq"),
        ..WorkloadRow::default()
    }
}

fn amounts() -> Vec<AmountRow> {
    let row =
        |resource: &str, amount| AmountRow { flavor: Arc::from("f"), resource: Arc::from(resource), amount };
    vec![row("cpu", 1_500), row("memory", 1 << 30)]
}

/// Segments that end each second at the same times in three namespaces, open runs, and sums of three days.
fn commit(number: i64) -> CommitId {
    CommitId { number, writer: 1 }
}

fn filled(path: &std::path::Path) -> Recorder {
    let (mut store, _) = Store::open(path, time(0)).unwrap();
    store.commit(&Changes::default(), CommitAt { id: commit(1), now: ms(-1), until: Some(ms(-1)) }).unwrap();
    let mut changes = Changes::default();
    for number in 0..240 {
        let row = RecordRow {
            record: Arc::from("segment"),
            time: time(100 + number / 6),
            start: Some(time(number / 7)),
            workload: workload(number),
            result: Arc::from("evicted:A,B"),
            amounts: amounts(),
            ..RecordRow::default()
        };
        changes.records.push(NewRecord { row, ..NewRecord::default() });
    }
    for number in 240..270 {
        let row = OpenRow {
            workload: workload(number),
            start: ms(50),
            since: ms(50),
            counted_until: ms(3 * 86_400),
            amounts: amounts(),
            ..OpenRow::default()
        };
        changes.runs.insert(Arc::clone(&row.workload.uid), Some(row));
    }
    for number in 0..200 {
        let workload = workload(number);
        let key = Group { flavor: "f", resource: "cpu", ..Group::of(&workload) };
        let local_queue = format!("lq-{}", number % 20);
        let key = Group { local_queue: &local_queue, ..key }.key();
        let hour = hour_of(ms(number / 4 * 3_600));
        changes.add(hour, key, |sums| *sums = Sums { ended: 1, ..Sums::default() });
    }
    changes.hours.push((ms(3 * 86_400) - HOUR, Vec::new()));
    store
        .commit(&changes, CommitAt { id: commit(2), now: ms(3 * 86_400), until: Some(ms(3 * 86_400)) })
        .unwrap();
    drop(store);
    Recorder::open(path, time(3 * 86_400)).unwrap().0
}

struct RecordFile(PathBuf);

impl RecordFile {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("sluice-export-{name}-{}.redb", std::process::id())))
    }
}

impl Drop for RecordFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn pages(recorder: &Recorder, topic: &ExportTopic, limit: usize) -> (Vec<UsageRecordView>, Vec<String>) {
    let mut page = ExportTopic { page: PageQuery { limit, ..PageQuery::default() }, ..topic.clone() };
    let (mut all, mut tokens) = (Vec::new(), Vec::new());
    loop {
        let report = ask(recorder, &page, ms(3 * 86_400)).unwrap();
        all.extend(report.items);
        if report.metadata.continue_token.is_empty() {
            return (all, tokens);
        }
        tokens.push(report.metadata.continue_token.clone());
        page.page.continue_token = report.metadata.continue_token;
    }
}

/// Far more rows of others are between its rows than a page passes over.
#[test]
fn a_tenant_sees_its_own_rows_and_no_name_of_others() {
    let file = RecordFile::new("tenants");
    let recorder = filled(&file.0);
    for rollup in ROLLUPS {
        let (everything, _) = pages(&recorder, &topic(rollup, (ms(-1), None)), 1_000);
        let expected = if rollup.is_none() { 270 * 2 } else { everything.len() };
        assert_eq!(everything.len(), expected, "{rollup:?}");
        let mut count = 0;
        for namespace in ["a", "b", "c", "d"] {
            let own = ExportTopic { namespace: Some(namespace.to_owned()), ..topic(rollup, (ms(-1), None)) };
            for limit in [1, 7, 1_000] {
                let (rows, tokens) = pages(&recorder, &own, limit);
                let all: Vec<_> =
                    everything.iter().filter(|row| row.namespace == namespace).cloned().collect();
                assert_eq!(rows, all, "{rollup:?} {namespace} in pages of {limit}");
                for token in tokens {
                    let text = decoded(&token);
                    let names = everything.iter().filter(|row| row.namespace != namespace);
                    let mut names = names.filter_map(|row| row.run.as_ref());
                    assert!(!names.any(|run| text.contains(&run.uid)), "{text}");
                    let others = ["a", "b", "c"].into_iter().filter(|other| *other != namespace);
                    for other in others {
                        assert!(!text.contains(&format!("\\u001f{other}\\u001f")), "{text}");
                    }
                }
                count += rows.len();
            }
        }
        assert_eq!(count, everything.len() * 3);
    }
}

fn decoded(token: &str) -> String {
    use base64::Engine as _;
    String::from_utf8(base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(token).unwrap()).unwrap()
}

#[test]
fn a_row_has_amounts_exactly_and_in_units() {
    let file = RecordFile::new("rows");
    let recorder = filled(&file.0);
    let mut report = ask(&recorder, &topic(None, (ms(139) - 1, None)), ms(3 * 86_400)).unwrap();
    assert!(report.recorded.complete && report.metadata.continue_token.is_empty());
    let last = json!(report.items.pop());
    let [first, ..] = &report.items[..] else { panic!("no row") };
    assert_eq!(
        json!(first),
        json!({
            "metadata": {"namespace": "a", "name": "w-234.0.0"}, "start": time(33), "end": time(139),
            "namespace": "a", "localQueue": "", "clusterQueue": "cq", "priorityClass": "",
            "flavor": "f", "resource": "cpu",
            "used": {"unitMilliseconds": "159000000", "hours": 1.5 * 106.0 / 3_600.0, "text": "0.044"},
            "run": {"uid": "uid-234", "name": "w-234", "priority": 0, "attempt": 0, "part": 0, "until": time(139),
                "result": "evicted:A,B", "amount": {"value": "1500m", "number": 1.5}, "units": "1500"},
        })
    );
    assert_eq!((&last["run"]["until"], last.get("end")), (&json!(time(3 * 86_400)), None));
    assert_eq!((&last["run"]["result"], &last["run"]["amount"]["value"]), (&json!(""), &json!("1Gi")));
}

#[test]
fn a_token_expires_when_its_next_rows_are_dropped() {
    let file = RecordFile::new("expired");
    let recorder = filled(&file.0);
    let mut page = topic(None, (ms(-1), None));
    page.page.limit = 3;
    let first = ask(&recorder, &page, ms(3 * 86_400)).unwrap();
    drop(recorder);
    let (mut store, _) = Store::open(&file.0, time(0)).unwrap();
    let newest = RecordRow { record: Arc::from("finish"), time: time(40 * 86_400), ..RecordRow::default() };
    let records = vec![NewRecord { row: newest, ..NewRecord::default() }];
    let hour = Changes { records, hours: vec![(ms(40 * 86_400), Vec::new())], ..Changes::default() };
    store.commit(&hour, CommitAt { id: commit(3), now: ms(40 * 86_400), until: None }).unwrap();
    drop(store);
    let recorder = Recorder::open(&file.0, time(0)).unwrap().0;
    page.page.continue_token = first.metadata.continue_token;
    let refused = ask(&recorder, &page, ms(3 * 86_400) + 5);
    assert!(matches!(refused, Err(ModelError::Expired(_))), "{refused:?}");
}

/// A page costs the same with any token.
#[test]
fn a_token_of_any_content_costs_at_most_a_page() {
    use base64::Engine as _;
    let file = RecordFile::new("written");
    let recorder = filled(&file.0);
    let now = ms(3 * 86_400);
    let ask_with = |rollup, period: Value, place: Value| {
        let words = topic(rollup, (0, None)).rollup.map_or("runs", Rollup::as_str);
        let token = json!({"s": format!("export/{words}/"), "p": period, "k": place}).to_string();
        let mut page = topic(rollup, (ms(-1), None));
        page.page.continue_token = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(token);
        ask(&recorder, &page, now)
    };
    let all = json!({"f": i64::MIN, "u": i64::MAX, "a": i64::MAX, "b": i64::MAX, "w": i64::MAX});
    for rollup in ROLLUPS {
        let report = ask_with(rollup, all.clone(), json!({"t": ms(-1)})).unwrap();
        assert_eq!(report.recorded.until, Some(timestamp(now)), "{rollup:?}");
    }
    let early = json!({"f": 0, "u": now, "a": 0, "b": now});
    let refused = ask_with(None, early, json!({"r": true}));
    assert!(matches!(refused, Err(ModelError::Expired(_))), "{refused:?}");
}

#[test]
fn unrecorded_and_uncommitted_time_is_incomplete() {
    let file = RecordFile::new("incomplete");
    let recorder = filled(&file.0);
    let complete = |rollup, since: i64, now: i64| {
        ask(&recorder, &topic(rollup, (ms(since), None)), ms(now)).unwrap().recorded.complete
    };
    let day = 86_400;
    for rollup in ROLLUPS {
        assert!(!complete(rollup, -10, 3 * day), "it began later: {rollup:?}");
    }
    assert!(complete(None, 3 * day, 3 * day + 60));
    assert!(!complete(None, 3 * day, 3 * day + 600), "the last commit is ten minutes old");
    assert!(complete(Some(Rollup::Hour), 3 * day, 3 * day + 3_660), "the hour has just ended");
    assert!(!complete(Some(Rollup::Hour), 3 * day, 3 * day + 3_700));
    assert!(complete(Some(Rollup::Day), 3 * day, 3 * day + 3_700));
}
