//! Progress of a check: a line on the terminal for people, lines like those of `e2fsck -C` for programs.

use anyhow::{Context, Result};
use extant_check::CheckStep;
use extant_terminal::progress::Progress;
use lockmeter::{Mutex, lock_class};
use std::fs::{File, OpenOptions};
use std::io::Write;

lock_class!(
    /// The progress shown for a check.
    Steps = "steps of a check"
);

/// The last pass of a check.
const LAST_PASS: u8 = 5;

/// Progress of the check of an image. Passes ascend, and the steps of a pass ascend, whichever threads report them.
pub struct ShownSteps<'n> {
    name: &'n str,
    fd: Option<File>,
    on_terminal: bool,
    holds_end: bool,
    last: Mutex<Shown, Steps>,
}

/// The last progress shown.
#[derive(Default)]
struct Shown {
    pass: u8,
    done: u64,
    /// The line on the terminal.
    line: Option<Progress>,
    /// The last step of the last pass, if it is held until the work ends.
    end: Option<CheckStep>,
}

impl<'n> ShownSteps<'n> {
    /// Shows steps of a check on the terminal, and on a descriptor if one is given.
    pub fn new(name: &'n str, fd: Option<u32>) -> Result<Self> {
        let open = |fd: u32| {
            let path = format!("/proc/self/fd/{fd}");
            let file = OpenOptions::new().append(true).open(path);
            file.with_context(|| format!("--progress-fd {fd}"))
        };
        Ok(Self {
            name,
            fd: fd.map(open).transpose()?,
            on_terminal: true,
            holds_end: false,
            last: Mutex::new(Shown::default()),
        })
    }

    /// Shows steps of the check that starts a repair. The last step is written by [`Self::end`]. If the repair asks
    /// questions, nothing else appears on the terminal.
    pub fn of_repair(name: &'n str, fd: Option<u32>, asks: bool) -> Result<Self> {
        Ok(Self {
            on_terminal: !asks,
            holds_end: true,
            ..Self::new(name, fd)?
        })
    }

    /// Shows a step, if it is far enough from the last step shown.
    pub fn tell(&self, step: CheckStep) {
        let mut last = self.last.lock();
        if step.pass < last.pass {
            return;
        }
        if step.pass > last.pass {
            let what = format!("{}: {}", self.name, step.pass_name());
            let line = || Progress::up_to(&what, step.total);
            *last = Shown {
                pass: step.pass,
                line: self.on_terminal.then(line),
                ..Shown::default()
            };
        } else if step.done < last.done + (step.total / 200).max(1) && step.done < step.total {
            return;
        }
        if let Some(line) = &last.line {
            line.add(step.done.saturating_sub(last.done));
        }
        last.done = last.done.max(step.done);
        if self.holds_end && step.pass == LAST_PASS && step.done >= step.total {
            last.end = Some(step);
            last.line = None;
            return;
        }
        self.write(step.pass, last.done, step.total);
    }

    /// Ends the work: writes the step that was held until now.
    pub fn end(&self) {
        if let Some(step) = self.last.lock().end.take() {
            self.write(step.pass, step.done, step.total);
        }
    }

    fn write(&self, pass: u8, done: u64, total: u64) {
        if let Some(mut fd) = self.fd.as_ref() {
            // A reader that closed its end loses the output.
            let _ = writeln!(fd, "{pass} {done} {total} {}", self.name);
        }
    }
}
