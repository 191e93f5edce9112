//! The terminal, from the first picture until its state is restored.

use super::report::Report;
use super::source::{Sample, Samples};
use super::view::{self, Ui};
use anyhow::{Context, Result};
use extant_terminal::interrupt;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::io::IsTerminal;
use std::thread;
use std::time::Duration;

/// Interval of polling for keys, signals and samples.
const TICK: Duration = Duration::from_millis(30);
/// Time limit for the end after a signal, because the terminal may be gone.
const LAST: Duration = Duration::from_secs(2);

/// Shows samples until the user quits. Sets `switched` if the lock meter was switched on here.
pub fn run(samples: &Samples, metered: bool, switched: &mut bool) -> Result<()> {
    interrupt::on_signal(|| {
        thread::sleep(LAST);
        std::process::exit(130);
    })?;
    let mut terminal = ratatui::try_init().context("the terminal")?;
    let mut shown = Screen {
        samples,
        ui: Ui::default(),
        first: None,
        last: None,
        report: None,
        metered,
        switched: false,
    };
    let done = shown.run(&mut terminal);
    *switched = shown.switched;
    // Restore the terminal first, so that an error is readable.
    let restored = ratatui::try_restore().context("the terminal");
    done.and(restored)
}

struct Screen<'a> {
    samples: &'a Samples,
    ui: Ui,
    first: Option<Sample>,
    last: Option<Sample>,
    report: Option<Report>,
    /// Whether the lock meter was on at the beginning.
    metered: bool,
    /// Whether the meter was off and has been switched on.
    switched: bool,
}

impl Screen<'_> {
    fn run(&mut self, terminal: &mut DefaultTerminal) -> Result<()> {
        let mut changed = true;
        loop {
            interrupt::check()?;
            // The terminal crate blocks for ever on a terminal that has hung up. So poll only for pending events, and
            // check for a hangup first.
            if !std::io::stdout().is_terminal() {
                return Err(interrupt::Interrupted.into());
            }
            while event::poll(Duration::ZERO).context("the terminal")? {
                match event::read().context("the terminal")? {
                    Event::Key(key) if key.kind != KeyEventKind::Release => {
                        if self.key(key) {
                            return Ok(());
                        }
                        changed = true;
                    }
                    Event::Resize(..) => changed = true,
                    _ => {}
                }
            }
            while let Some(sample) = self.samples.within(Duration::ZERO)? {
                changed |= self.take(sample);
            }
            if changed {
                let (report, ui) = (self.report.as_ref(), self.ui);
                terminal
                    .draw(|frame| view::draw(frame, report, ui))
                    .context("the terminal")?;
                changed = false;
            }
            thread::sleep(TICK);
        }
    }

    /// Takes a sample; returns whether there is something to draw.
    fn take(&mut self, sample: Sample) -> bool {
        if self.ui.paused {
            return false;
        }
        let first = self.first.get_or_insert_with(|| sample.clone());
        let before = self.last.replace(sample.clone());
        self.report = before.map(|before| Report::between(first, &before, &sample));
        self.report.is_some()
    }

    /// Handles a key; returns whether the key quits.
    fn key(&mut self, key: KeyEvent) -> bool {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if control => return true,
            KeyCode::Esc if self.ui.help => self.ui.help = false,
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('s') => self.ui.sort = self.ui.sort.next(),
            KeyCode::Char(' ' | 'p') => self.ui.paused = !self.ui.paused,
            KeyCode::Char('h' | '?') => self.ui.help = !self.ui.help,
            KeyCode::Char('m') => {
                let on = !self
                    .report
                    .as_ref()
                    .map_or(self.metered, |r| r.locks_metered);
                self.samples.meter(on);
                self.switched = on && !self.metered;
            }
            _ => {}
        }
        false
    }
}
