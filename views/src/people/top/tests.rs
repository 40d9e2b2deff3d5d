//! Keys, frames and rows of the screen.

use super::*;
use crate::people::views::Look;
use crate::visibility::views::{PendingView, Position, ViewMetadata, WorkloadState};
use jiff::Timestamp;

const SIZE: Size = Size { columns: 80, lines: 10 };

fn look() -> Look {
    Look {
        utf8: true,
        color: false,
        width: None,
        headings: true,
        wide: false,
        labels: false,
        csv: false,
        now: Timestamp::from_second(10_000).unwrap(),
        offset: jiff::tz::Offset::UTC,
    }
}

fn workload(namespace: &str, name: &str, waits: i64, priority: i64) -> WorkloadView {
    let metadata =
        ViewMetadata { namespace: namespace.to_owned(), name: name.to_owned(), ..ViewMetadata::default() };
    WorkloadView {
        metadata,
        cluster_queue: "main".to_owned(),
        reason: if priority > 5 { "WaitingForQuota" } else { "Suspended" }.to_owned(),
        priority,
        since: Some(Timestamp::from_second(10_000 - waits).unwrap()),
        ..WorkloadView::default()
    }
}

fn reading() -> Reading {
    let runs = WorkloadView { state: WorkloadState::Admitted, ..workload("a", "runs", 9000, 0) };
    let at = |place: u64, row: WorkloadView| {
        let position = Position { cluster_queue: place, ..Position::default() };
        WorkloadView { position: Some(position), ..row }
    };
    let workloads = vec![
        runs,
        at(2, workload("a", "young", 10, 9)),
        at(3, workload("b", "old", 3600, 1)),
        at(1, workload("b", "middle", 60, 7)),
    ];
    Reading { workloads, ..Reading::default() }
}

/// Presses keys; the last answer.
fn press(screen: &mut TopScreen, keys: &[Key], reading: &Reading) -> Request {
    keys.iter().map(|key| screen.press(*key, reading, SIZE.page())).last().unwrap()
}

/// Names in the order of the frame, the marked one with `>`.
fn names(screen: &TopScreen, reading: &Reading) -> Vec<String> {
    let lines = screen.frame(reading, look(), SIZE).into_iter().skip(4);
    let name = |line: &str| {
        let mark = if line.contains('>') { ">" } else { "" };
        let words: Vec<&str> = line.split_whitespace().filter(|word| !word.contains('>')).collect();
        words
            .iter()
            .find(|word| ["runs", "young", "old", "middle"].contains(word))
            .map(|word| format!("{mark}{word}"))
    };
    lines.filter_map(|line| name(&line)).collect()
}

#[test]
fn first_lines_say_what_happens() {
    let decisions = DecisionView {
        admissions_per_minute: Some(12.44),
        evictions_per_minute: Some(1.0),
        ..DecisionView::default()
    };
    let mut reading = Reading { decisions: Some(decisions), ..reading() };
    let lines = TopScreen::default().frame(&reading, look(), SIZE);
    assert_eq!(lines.first().unwrap(), "1 admitted, 3 pending; 12.4 admissions/min; 1.0 evictions/min");
    assert_eq!(lines.get(1).unwrap(), "oldest pending: b/old for 60m: Suspended");
    assert_eq!(lines.len(), SIZE.lines);

    // The queues know Workloads that were not read.
    let queue = ClusterQueueView {
        admitted: 7,
        pending: PendingView { total: 900, ..PendingView::default() },
        ..ClusterQueueView::default()
    };
    reading.queues = Some(vec![queue]);
    reading.decisions = None;
    for (left, text) in [
        (RowsLeft::None, ""),
        (RowsLeft::Number(400), "; rows are the first 4 of 404"),
        (RowsLeft::Some, "; rows are the first 4, there are more"),
    ] {
        reading.left = left;
        let lines = TopScreen::default().frame(&reading, look(), SIZE);
        assert_eq!(*lines.first().unwrap(), format!("7 admitted, 900 pending{text}"));
    }
}

#[test]
fn keys_choose_rows_and_their_order() {
    let (mut screen, reading) = (TopScreen::default(), reading());
    assert_eq!(names(&screen, &reading), [">old", "middle", "young", "runs"]);
    press(&mut screen, &[Key::Char('o')], &reading);
    assert_eq!(names(&screen, &reading), [">middle", "young", "old", "runs"]);
    press(&mut screen, &[Key::Char('o'), Key::Char('o')], &reading);
    assert_eq!(names(&screen, &reading), [">young", "middle", "old", "runs"]);
    press(&mut screen, &[Key::Char('n'), Key::Char('n')], &reading);
    assert_eq!(names(&screen, &reading), [">middle", "old"]);
    press(&mut screen, &[Key::Char('r'), Key::Char('r')], &reading);
    assert_eq!(names(&screen, &reading), [">middle"]);
    press(&mut screen, &[Key::Escape], &reading);
    assert_eq!(names(&screen, &reading).len(), 4);
    // Typed characters enter the filter, also a character with a meaning as a key.
    let typed = [Key::Char('/'), Key::Char('q'), Key::Backspace, Key::Char('o'), Key::Char('u')];
    press(&mut screen, &typed, &reading);
    assert_eq!(screen.frame(&reading, look(), SIZE).last().unwrap(), "/ou");
    press(&mut screen, &[Key::Enter], &reading);
    assert_eq!(names(&screen, &reading), [">young"]);
}

#[test]
fn mark_stays_with_its_row() {
    let (mut screen, mut reading) = (TopScreen::default(), reading());
    press(&mut screen, &[Key::Down, Key::Down], &reading);
    assert_eq!(names(&screen, &reading), ["old", "middle", ">young", "runs"]);
    reading.workloads.retain(|row| row.metadata.name != "old");
    assert_eq!(names(&screen, &reading), ["middle", ">young", "runs"]);
    press(&mut screen, &[Key::PageDown], &reading);
    assert_eq!(names(&screen, &reading), ["middle", "young", ">runs"]);
    press(&mut screen, &[Key::End, Key::Down, Key::Up], &reading);
    let asked = press(&mut screen, &[Key::Enter], &reading);
    assert_eq!(asked, Request::Why { namespace: "a".to_owned(), name: "young".to_owned() });
    // The marked row no longer exists: the first one is marked.
    reading.workloads.retain(|row| row.metadata.name != "young");
    assert_eq!(names(&screen, &reading), [">middle", "runs"]);
    assert_eq!(press(&mut screen, &[Key::Char('q')], &reading), Request::Quit);
}

#[test]
fn text_scrolls_and_closes() {
    let (mut screen, reading) = (TopScreen::default(), reading());
    let lines: Vec<String> = (0..50).map(|line| format!("line {line}")).collect();
    let text = lines.join("\n");
    screen.show_text(text);
    assert_eq!(screen.frame(&reading, look(), SIZE).first().unwrap(), "line 0");
    press(&mut screen, &[Key::Down, Key::PageDown], &reading);
    assert_eq!(screen.frame(&reading, look(), SIZE).first().unwrap(), "line 6");
    press(&mut screen, &[Key::End, Key::Down], &reading);
    assert_eq!(screen.frame(&reading, look(), SIZE).first().unwrap(), "line 49");
    // `q` closes the text and does not end the command.
    assert_eq!(press(&mut screen, &[Key::Char('q')], &reading), Request::Draw);
    assert_eq!(names(&screen, &reading).len(), 4);
}

#[test]
fn no_frame_is_larger_than_the_terminal() {
    let long = WorkloadView {
        message: "x".repeat(500_000),
        reason: "\u{1b}[2Jred\nnext".to_owned(),
        ..workload("a", &"n".repeat(253), 5, 1)
    };
    let mut reading = reading();
    reading.workloads.extend((0..200).map(|_| long.clone()));
    for (columns, lines) in [(0, 0), (1, 1), (20, 4), (20, 6), (80, 24)] {
        for color in [false, true] {
            for keys in [&[Key::Home][..], &[Key::End], &[Key::Char('?')], &[Key::Char(' ')]] {
                let mut screen = TopScreen::default();
                press(&mut screen, keys, &reading);
                let size = Size { columns, lines };
                let frame = screen.frame(&reading, Look { color, ..look() }, size);
                assert!(frame.len() <= lines, "{columns}x{lines}: {} lines", frame.len());
                for line in &frame {
                    assert!(!line.contains("[2J") || !line.contains("\u{1b}[2J"), "{line:?}");
                    let shown = frame::without_colors(line);
                    assert!(shown.chars().count() <= columns, "{columns}x{lines}: {shown:?}");
                }
            }
        }
    }
}

#[test]
fn queues_are_sorted_by_what_waits() {
    let queue = |name: &str, total: u64| ClusterQueueView {
        metadata: ViewMetadata { name: name.to_owned(), ..ViewMetadata::default() },
        pending: PendingView { total, ..PendingView::default() },
        active: true,
        ..ClusterQueueView::default()
    };
    let mut reading =
        Reading { queues: Some(vec![queue("quiet", 1), queue("busy", 7)]), ..Reading::default() };
    let mut screen = TopScreen::new(TopKind::Queues);
    let text = screen.page(&reading, look());
    assert!(text.find("busy").unwrap() < text.find("quiet").unwrap(), "{text}");
    assert_eq!(press(&mut screen, &[Key::Enter], &reading), Request::Draw);
    reading.queues = None;
    assert!(screen.frame(&reading, look(), SIZE).iter().any(|line| line.contains("no row matches")));
}
