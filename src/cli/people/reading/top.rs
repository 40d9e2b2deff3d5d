//! `sluice top`: a screen of workloads or queues that is read repeatedly.
//!
//! Invariants: it only reads; the terminal is restored however the program ends; after a failed reading the last one stays on
//! the screen, with the error.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::terminal::{self, Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen};
use crossterm::{execute, queue};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc::{self, Receiver};

use super::list::resource;
use super::{PAGE, TableArgs, ViewQuery, ask, read, rows, time_of};
use crate::cli::files;
use crate::cli::people::connection::{ConnectionArgs, Session};
use crate::cli::people::failure::print_error;
use crate::cli::people::pages::encoded;
use crate::people::duration::{self, TimeLimit};
use crate::people::top::{Key, Reading, Request, Size, TopKind, TopScreen};
use crate::people::views;
use crate::visibility::views::{Answer, ManagerView, Verdict};

/// Shortest time between two readings.
const SHORTEST: Duration = Duration::from_millis(500);
/// Most events of the terminal that wait.
const EVENTS: usize = 64;

/// Arguments of `top`.
#[derive(Debug, clap::Args)]
pub(crate) struct TopArgs {
    /// What the rows are.
    #[arg(value_enum, default_value = "workload")]
    kind: Rows,
    /// Workloads of all namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Only Workloads of this ClusterQueue.
    #[arg(short = 'c', long, value_name = "NAME")]
    clusterqueue: Option<String>,
    /// Time between two readings, at least 500ms.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration::parse)]
    interval: TimeLimit,
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Rows {
    #[value(alias = "workloads")]
    Workload,
    #[value(aliases = ["queues", "clusterqueue"])]
    Queue,
}

pub(crate) async fn run(args: &TopArgs) -> anyhow::Result<ExitCode> {
    let session = args.table.connect(&args.connection).await?;
    let source = Source { args, session: &session };
    // An error of the first reading is printed like that of `list`, without a screen.
    let reading = source.read().await?;
    let screen = TopScreen::new(match args.kind {
        Rows::Workload => TopKind::Workloads,
        Rows::Queue => TopKind::Queues,
    });
    let is_terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if is_terminal { source.show(screen, reading).await } else { source.print(&screen, reading).await }
}

impl TopArgs {
    fn interval(&self) -> Duration {
        self.interval.0.unwrap_or(SHORTEST).max(SHORTEST)
    }
}

/// A reading, and how far the time to which its ages are counted is ahead of the clock of this machine.
struct Seen {
    reading: Reading,
    ahead: SignedDuration,
}

impl Seen {
    fn now(&self) -> Timestamp {
        let now = Timestamp::now();
        now.saturating_add(self.ahead).unwrap_or(now)
    }
}

/// Source of readings.
struct Source<'a> {
    args: &'a TopArgs,
    session: &'a Session,
}

impl Source<'_> {
    async fn read(&self) -> anyhow::Result<Seen> {
        let fields = self.args.clusterqueue.as_ref().map(|name| format!("clusterQueue={name}"));
        let query =
            ViewQuery { fields: fields.unwrap_or_default(), limit: Some(PAGE), ..ViewQuery::default() };
        let path = resource(self.session, "workloadviews", self.args.all_namespaces);
        let found = rows(self.session, &path, &query, "workloadviews").await?;
        let ahead = time_of(&found.head).duration_since(Timestamp::now());
        let left = found.left;
        let workloads = read(&found.items.into())?;
        let is_whole = self.args.all_namespaces && self.args.clusterqueue.is_none();
        let queues = match self.args.kind {
            Rows::Queue => Some(self.queues().await?),
            // Queues are read only for their counts; without the right, the counts of the rows are shown.
            Rows::Workload if is_whole => self.queues().await.ok(),
            Rows::Workload => None,
        };
        Ok(Seen { reading: Reading { workloads, left, queues, decisions: self.decisions().await }, ahead })
    }

    async fn queues<T: serde::de::DeserializeOwned>(&self) -> anyhow::Result<T> {
        let found =
            rows(self.session, "clusterqueueviews", &ViewQuery::default(), "clusterqueueviews").await?;
        read(&found.items.into())
    }

    /// Returns the decisions of the leader; `None` without the right, or if no manager answers.
    async fn decisions(&self) -> Option<crate::visibility::views::DecisionView> {
        let found = rows(self.session, "managerviews", &ViewQuery::default(), "managerviews").await.ok()?;
        let managers: Vec<ManagerView> = read(&found.items.into()).ok()?;
        managers.into_iter().find(|view| view.leads)?.decisions
    }

    async fn why(&self, namespace: &str, name: &str) -> anyhow::Result<String> {
        let path = format!("namespaces/{}/workloadviews/{}/verdict", encoded(namespace), encoded(name));
        let answer = ask(self.session, &path, "workloadviews/verdict").await?;
        let verdict: Answer<Verdict> = read(&answer)?;
        Ok(views::why(&verdict, true, self.args.table.look(time_of(&answer))))
    }

    /// Prints a table after each interval.
    async fn print(&self, screen: &TopScreen, mut seen: Seen) -> anyhow::Result<ExitCode> {
        loop {
            files::print(&screen.page(&seen.reading, self.args.table.look(seen.now())))?;
            loop {
                tokio::time::sleep(self.args.interval()).await;
                match self.read().await {
                    Ok(next) => break seen = next,
                    Err(error) => drop(print_error(&error)),
                }
            }
            files::print("\n")?;
        }
    }

    /// Shows the screen until a key or a signal ends it.
    async fn show(&self, mut screen: TopScreen, mut seen: Seen) -> anyhow::Result<ExitCode> {
        let _terminal = Terminal::take()?;
        let mut keys = terminal_events();
        let mut end = std::pin::pin!(terminated());
        let mut next = std::pin::pin!(tokio::time::sleep(self.args.interval()));
        loop {
            Terminal::draw(&screen.frame(&seen.reading, self.args.table.look(seen.now()), size()))?;
            let key = tokio::select! {
                () = &mut end => return Ok(self.session.ended(ExitCode::SUCCESS)),
                () = &mut next => {
                    if !screen.is_frozen() {
                        match self.read().await {
                            Ok(found) => {
                                seen = found;
                                screen.set_error(None);
                            }
                            Err(error) => screen.set_error(Some(format!("{error:#}"))),
                        }
                    }
                    next.set(tokio::time::sleep(self.args.interval()));
                    continue;
                }
                key = keys.recv() => key,
            };
            let Some(event) = key else { return Ok(self.session.ended(ExitCode::SUCCESS)) };
            let Some(key) = key_of(&event) else { continue };
            let request = match key {
                Pressed::Interrupt => Request::Quit,
                Pressed::Key(key) => screen.press(key, &seen.reading, size().page()),
            };
            match request {
                Request::Draw => {}
                Request::Quit => return Ok(self.session.ended(ExitCode::SUCCESS)),
                Request::Why { namespace, name } => {
                    let text = self.why(&namespace, &name).await;
                    screen.show_text(text.unwrap_or_else(|error| format!("error: {error:#}")));
                }
            }
        }
    }
}

/// The terminal in raw mode, on the alternate screen.
struct Terminal;

impl Terminal {
    fn take() -> anyhow::Result<Self> {
        terminal::enable_raw_mode()?;
        // Created before the second step, so that a failure of it ends raw mode.
        let taken = Self;
        execute!(std::io::stdout(), EnterAlternateScreen, Hide)?;
        Ok(taken)
    }

    /// Replaces the lines on the screen in one write.
    fn draw(lines: &[String]) -> anyhow::Result<()> {
        let mut frame = Vec::new();
        for (row, line) in lines.iter().enumerate() {
            let row = u16::try_from(row)?;
            queue!(frame, MoveTo(0, row))?;
            frame.extend_from_slice(line.as_bytes());
            queue!(frame, Clear(ClearType::UntilNewLine))?;
        }
        queue!(frame, Clear(ClearType::FromCursorDown))?;
        let mut out = std::io::stdout().lock();
        out.write_all(&frame)?;
        Ok(out.flush()?)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A terminal that no longer exists needs no restoring.
        let _ = execute!(std::io::stdout(), Show, LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}

fn size() -> Size {
    // A serial console does not know its size, and reports 0.
    let known = terminal::size().ok().filter(|(columns, lines)| *columns > 0 && *lines > 0);
    let (columns, lines) = known.unwrap_or((80, 24));
    Size { columns: columns.into(), lines: lines.into() }
}

/// Returns the events of the terminal. A thread reads them, because the library has no asynchronous way to wait.
fn terminal_events() -> Receiver<Event> {
    let (sender, receiver) = mpsc::channel(EVENTS);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if sender.blocking_send(event).is_err() {
                break;
            }
        }
    });
    receiver
}

/// Waits for a signal that ends the program. Ctrl-C arrives as a key.
async fn terminated() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut end), Ok(mut hangup)) = (signal(SignalKind::terminate()), signal(SignalKind::hangup()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = end.recv() => {}
        _ = hangup.recv() => {}
    }
}

enum Pressed {
    Key(Key),
    Interrupt,
}

fn key_of(event: &Event) -> Option<Pressed> {
    // A terminal that changed its size is drawn again.
    let Event::Key(KeyEvent { code, modifiers, kind, .. }) = event else { return None };
    if *kind == KeyEventKind::Release {
        return None;
    }
    let is_control = modifiers.contains(KeyModifiers::CONTROL);
    Some(Pressed::Key(match code {
        KeyCode::Char('c') if is_control => return Some(Pressed::Interrupt),
        KeyCode::Char(_) if is_control => return None,
        KeyCode::Char(c) => Key::Char(*c),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        _ => return None,
    }))
}
