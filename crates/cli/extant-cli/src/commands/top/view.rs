//! The picture: panels that fit the screen, with each line cut to its width.

use super::report::{Report, RequestRate, SlotRate};
use extant_cli_core::format::show::{human, rate, show};
use ratatui::Frame;
use ratatui::backend::TestBackend;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph};
use std::path::Path;

/// The order of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    #[default]
    Rate,
    Time,
    Name,
}

impl Sort {
    /// Returns the next order.
    pub fn next(self) -> Self {
        match self {
            Self::Rate => Self::Time,
            Self::Time => Self::Name,
            Self::Name => Self::Rate,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Time => "time",
            Self::Name => "name",
        }
    }
}

/// The settings that keys change.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ui {
    pub sort: Sort,
    pub paused: bool,
    pub help: bool,
}

/// Smallest screen that fits the panels.
const LEAST: (u16, u16) = (80, 20);
const HEAD: Style = Style::new().add_modifier(Modifier::BOLD);

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, report: Option<&Report>, ui: Ui) {
    let area = frame.area();
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let (w, h) = LEAST;
        let text =
            format!("The terminal is too small:\n{w} columns and {h} rows are enough.\nq ends.");
        frame.render_widget(Paragraph::new(text), area);
        return;
    }
    let rows = [
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ];
    let [head, body, foot] = Layout::vertical(rows).areas(area);
    frame.render_widget(
        Paragraph::new(title(report, ui, head.width)).style(HEAD),
        head,
    );
    let keys = "q end   s sort   space halt   m lock meter   h help";
    frame.render_widget(
        Paragraph::new(keys).style(Style::new().fg(Color::DarkGray)),
        foot,
    );
    match report {
        Some(report) => panels(frame, report, ui, body),
        None => frame.render_widget(Paragraph::new("\n  The first look is on its way."), body),
    }
    if ui.help {
        help(frame, area);
    }
}

fn panels(frame: &mut Frame<'_>, report: &Report, ui: Ui, body: Rect) {
    let columns = [Constraint::Percentage(60), Constraint::Min(32)];
    let [left, right] = Layout::horizontal(columns).areas(body);
    // On a tall screen, locks get the remaining lines, because there are more lock classes than kinds of requests in
    // use.
    let wanted = u16::try_from(report.requests.len())
        .unwrap_or(u16::MAX)
        .saturating_add(3);
    let most = left.height.saturating_sub(8).max(8);
    let tops = [
        Constraint::Length(wanted.clamp(8, most)),
        Constraint::Min(0),
    ];
    let [requests, locks] = Layout::vertical(tops).areas(left);
    let panels = [
        Constraint::Length(7),
        Constraint::Length(6),
        Constraint::Min(0),
    ];
    let [log, memory, slots] = Layout::vertical(panels).areas(right);
    let title = format!("requests by {}", ui.sort.word());
    panel(frame, requests, &title, |w, h| {
        request_lines(report, ui.sort, w, h)
    });
    panel(frame, locks, "locks, in a second", |w, h| {
        lock_lines(report, w, h)
    });
    panel(frame, log, "log and pushes", |w, _| log_lines(report, w));
    panel(frame, memory, "memory", |w, _| memory_lines(report, w));
    panel(frame, slots, "slots", |w, h| slot_lines(report, w, h));
}

/// Draws a border with a title, and as many lines as fit.
fn panel(
    frame: &mut Frame<'_>,
    area: Rect,
    title: &str,
    lines: impl FnOnce(usize, usize) -> Vec<Line<'static>>,
) {
    let block = Block::bordered().title(format!(" {title} "));
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let mut lines = lines(inner.width.into(), inner.height.into());
    lines.truncate(inner.height.into());
    frame.render_widget(Paragraph::new(lines), inner);
}

/// Fits a text to a number of columns: shorter text is padded, longer text is cut with an ellipsis.
fn fit(text: &str, width: usize) -> String {
    match text.chars().count() {
        n if n <= width => format!("{text:width$}"),
        _ => {
            let kept: String = text.chars().take(width.saturating_sub(1)).collect();
            format!("{kept}…")
        }
    }
}

/// Formats texts at both ends of a line.
fn ends(left: &str, right: &str, width: usize) -> String {
    let room = width.saturating_sub(right.chars().count() + 1);
    format!("{} {right}", fit(left, room))
}

fn title(report: Option<&Report>, ui: Ui, width: u16) -> String {
    let Some(r) = report else {
        return "extant top".into();
    };
    let name = Path::new(&r.image)
        .file_name()
        .map(|n| n.to_string_lossy().into_owned());
    let name = name.unwrap_or_else(|| r.image.clone());
    let mut right = format!(
        "{}/s, {}, up {}",
        rate(r.requests_per_second),
        r.transport,
        time(r.uptime_seconds)
    );
    let troubles = format!("{} troubles", r.troubles);
    for (so, word) in [
        (r.frozen, "frozen"),
        (r.read_only.is_some(), "read-only"),
        (r.troubles > 0, troubles.as_str()),
        (ui.paused, "HALTED"),
    ] {
        if so {
            right = format!("{right}, {word}");
        }
    }
    ends(
        &format!("extant top  {}", show(name.as_bytes())),
        &right,
        width.into(),
    )
}

fn time(seconds: f64) -> String {
    let s = seconds.max(0.0) as u64;
    match s {
        0..60 => format!("{s} s"),
        60..3600 => format!("{}:{:02} min", s / 60, s % 60),
        _ => format!("{}:{:02} h", s / 3600, s / 60 % 60),
    }
}

/// Formats a time in at most six columns.
fn us(us: f64) -> String {
    let (value, unit) = match us {
        us if us < 1e3 => (us, "us"),
        us if us < 1e6 => (us / 1e3, "ms"),
        us => (us / 1e6, "s"),
    };
    let digits = usize::from(value < 10.0);
    format!("{value:.digits$}{unit}")
}

/// Formats a number in at most five columns.
fn compact(n: f64) -> String {
    let (value, unit) = match n {
        n if n < 1e3 => return format!("{n:.0}"),
        n if n < 1e6 => (n / 1e3, "k"),
        n if n < 1e9 => (n / 1e6, "M"),
        n => (n / 1e9, "G"),
    };
    let digits = usize::from(value < 10.0);
    format!("{value:.digits$}{unit}")
}

fn or_dash(value: f64, text: impl FnOnce(f64) -> String) -> String {
    if value > 0.0 { text(value) } else { "-".into() }
}

fn request_lines(r: &Report, sort: Sort, width: usize, height: usize) -> Vec<Line<'static>> {
    let mut rows: Vec<&RequestRate> = r.requests.iter().collect();
    let key = |r: &RequestRate| match sort {
        Sort::Rate => r.per_second,
        _ => r.per_second * r.mean_us,
    };
    match sort {
        Sort::Name => rows.sort_by(|a, b| a.kind.cmp(&b.kind)),
        // Idle requests are sorted by their total number.
        _ => rows.sort_by(|a, b| {
            let by = key(b)
                .partial_cmp(&key(a))
                .unwrap_or(std::cmp::Ordering::Equal);
            by.then(b.count.cmp(&a.count))
        }),
    }
    let failures = width >= 52;
    let name = width.saturating_sub(if failures { 37 } else { 28 });
    let line = |kind: &str, rate: &str, mean: &str, data: &str, failed: &str| {
        let mut text = format!("{} {rate:>8} {mean:>9} {data:>8}", fit(kind, name));
        if failures {
            text += &format!(" {failed:>8}");
        }
        Line::from(text)
    };
    let head = line("kind", "per s", "mean", "data/s", "failed/s");
    let mut lines = vec![head.style(HEAD)];
    lines.extend(rows.iter().take(height.saturating_sub(1)).map(|r| {
        line(
            &r.kind,
            &or_dash(r.per_second, rate),
            &or_dash(r.mean_us, us),
            &or_dash(r.bytes_per_second, |b| human(b as u64)),
            &or_dash(r.failed_per_second, rate),
        )
    }));
    lines
}

fn lock_lines(r: &Report, width: usize, height: usize) -> Vec<Line<'static>> {
    if !r.locks_metered {
        return vec![
            Line::from(fit("The lock meter is off: m switches it on.", width)),
            Line::from(fit("It costs some of the speed while it is on.", width)),
        ];
    }
    let name = width.saturating_sub(20);
    let line = |class: &str, taken: &str, waits: &str, waited: &str| {
        let class = fit(class, name);
        Line::from(format!("{class} {taken:>5} {waits:>5} {waited:>7}"))
    };
    let mut lines = vec![line("class", "taken", "waits", "waited").style(HEAD)];
    lines.extend(r.locks.iter().take(height.saturating_sub(1)).map(|l| {
        line(
            &l.name,
            &compact(l.taken_per_second),
            &or_dash(l.waits_per_second, compact),
            &or_dash(l.waited_ms_per_second, |ms| us(ms * 1000.0)),
        )
    }));
    lines
}

/// Returns a bar of `width` columns.
fn bar(share: f64, width: usize) -> String {
    let full = (share.clamp(0.0, 1.0) * width as f64).round() as usize;
    "█".repeat(full) + &"░".repeat(width.saturating_sub(full))
}

fn gauge(name: &str, part: u64, all: u64, width: usize) -> Line<'static> {
    let share = part as f64 / all.max(1) as f64;
    let text = format!("{:>4.0}%", share * 100.0);
    Line::from(format!(
        "{} {}{text}",
        fit(name, 8),
        bar(share, width.saturating_sub(14))
    ))
}

fn row(name: &str, value: &str, width: usize) -> Line<'static> {
    Line::from(ends(name, value, width))
}

fn log_lines(r: &Report, width: usize) -> Vec<Line<'static>> {
    let p = &r.pushes;
    let times = match p.counted {
        0 => "-".into(),
        _ => format!(
            "{} {} {}",
            us(p.p50_us as f64),
            us(p.p99_us as f64),
            us(p.max_us as f64)
        ),
    };
    vec![
        match r.log.blocks {
            0 => row("fill", "no journal", width),
            blocks => gauge("fill", r.log.used_blocks, blocks, width),
        },
        row("commits/s", &or_dash(r.log.commits_per_second, rate), width),
        row(
            "written/s",
            &or_dash(r.log.bytes_per_second, |b| human(b as u64)),
            width,
        ),
        row(
            "pushes/s",
            &or_dash(p.per_second, |n| format!("{n:.1}")),
            width,
        ),
        // The median, the 99th percentile and the longest.
        row("p50 p99 max", &times, width),
    ]
}

fn memory_lines(r: &Report, width: usize) -> Vec<Line<'static>> {
    let m = &r.memory;
    let data = format!("{} of {}", human(m.data_bytes), human(m.data_limit));
    vec![
        gauge("cache", m.data_bytes, m.data_limit, width),
        row("data", &data, width),
        row(
            "dirty, meta",
            &format!("{}, {}", human(m.dirty_bytes), human(m.metadata_bytes)),
            width,
        ),
        row("inodes", &m.inodes.to_string(), width),
    ]
}

fn slot_lines(r: &Report, width: usize, height: usize) -> Vec<Line<'static>> {
    let busy = |s: &&SlotRate| {
        (
            s.requests_per_second,
            s.transactions as f64,
            s.threads as f64,
        )
    };
    let mut slots: Vec<&SlotRate> = r.slots.iter().collect();
    let rows = height.saturating_sub(1);
    let more = slots.len().saturating_sub(rows);
    if more > 0 {
        // The busiest slots, in their order.
        let order = |a: &&SlotRate, b: &&SlotRate| busy(b).partial_cmp(&busy(a));
        slots.sort_by(|a, b| order(a, b).unwrap_or(std::cmp::Ordering::Equal));
        slots.truncate(rows.saturating_sub(1));
        slots.sort_by_key(|s| s.slot);
    }
    let name = width.saturating_sub(26);
    let line = |slot: &str, threads: &str, rate: &str, pending: &str, items: &str| {
        let slot = format!("{slot:>name$}");
        Line::from(format!(
            "{slot} {threads:>3} {rate:>8} {pending:>5} {items:>6}"
        ))
    };
    let mut lines = vec![line("slot", "thr", "per s", "trans", "items").style(HEAD)];
    lines.extend(slots.iter().map(|s| {
        line(
            &s.slot.to_string(),
            &s.threads.to_string(),
            &or_dash(s.requests_per_second, rate),
            &compact(s.transactions as f64),
            &compact(s.items as f64),
        )
    }));
    if more > 0 {
        lines.push(Line::from(format!("  {} more", more + 1)));
    }
    lines
}

fn help(frame: &mut Frame<'_>, area: Rect) {
    let text = "q, Esc, ^C  end\n\
                s           sort requests by rate, time or name\n\
                space, p    halt the picture, and let it go on\n\
                m           lock meter of the server on or off\n\
                h, ?        this\n\n\
                trans, items: committed, not yet pushed\n\
                pushes: half of them took no longer than the\n\
                first time, 99 of 100 than the second; then\n\
                the longest since this began";
    let (width, height) = (52, 12);
    let place = Rect {
        x: area.x + area.width.saturating_sub(width) / 2,
        y: area.y + area.height.saturating_sub(height) / 2,
        width: width.min(area.width),
        height: height.min(area.height),
    };
    frame.render_widget(Clear, place);
    frame.render_widget(
        Paragraph::new(text).block(Block::bordered().title(" keys ")),
        place,
    );
}

/// Returns the picture as text.
pub fn text(report: &Report, width: u16, height: u16) -> String {
    drawn(Some(report), Ui::default(), width, height).join("\n") + "\n"
}

fn drawn(report: Option<&Report>, ui: Ui, width: u16, height: u16) -> Vec<String> {
    let Ok(mut terminal) = ratatui::Terminal::new(TestBackend::new(width, height));
    let Ok(done) = terminal.draw(|frame| draw(frame, report, ui));
    let buffer = done.buffer;
    let rows = buffer.content.chunks(usize::from(width).max(1));
    let line =
        |row: &[ratatui::buffer::Cell]| row.iter().map(|cell| cell.symbol()).collect::<String>();
    rows.map(|row| line(row).trim_end().to_string()).collect()
}
