//! A terminal of a known size, for tests of displays: tmux, with a separate server that ends with the test.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Time limit until output is visible.
const LONGEST: Duration = Duration::from_secs(60);

/// A terminal with a shell in it.
pub struct Terminal {
    name: String,
    _home: tempfile::TempDir,
    socket: std::path::PathBuf,
}

impl Terminal {
    /// Starts a terminal with this number of columns and rows.
    pub fn new(columns: u16, rows: u16) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let home = tempfile::tempdir().unwrap();
        let terminal = Self {
            name: format!(
                "extant-test-{}-{}",
                std::process::id(),
                NEXT.fetch_add(1, Relaxed)
            ),
            socket: home.path().join("socket"),
            _home: home,
        };
        let (columns, rows) = (columns.to_string(), rows.to_string());
        let mut new = terminal.tmux();
        new.args([
            "-f",
            "/dev/null",
            "-u",
            "new-session",
            "-d",
            "-s",
            &terminal.name,
        ]);
        new.args(["-x", &columns, "-y", &rows])
            .env("PS1", "ready> ");
        new.args(["env", "PS1=ready> ", "LC_ALL=C.UTF-8", "sh", "-i"]);
        let out = new.output().unwrap();
        assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
        // Keys typed before the shell reads may be lost.
        terminal.until_seen("ready>");
        terminal
    }

    fn tmux(&self) -> Command {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(&self.socket).env_remove("TMUX");
        command
    }

    fn said(&self, command: &str, args: &[&str]) -> String {
        let mut tmux = self.tmux();
        let out = tmux.args([command, "-t", &self.name]).args(args).output();
        let out = out.unwrap();
        let errors = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{command} {args:?}: {errors}");
        String::from_utf8(out.stdout).unwrap()
    }

    /// Returns the text of the screen, one line per row.
    pub fn screen(&self) -> Vec<String> {
        let text = self.said("capture-pane", &["-p"]);
        text.lines().map(str::to_string).collect()
    }

    /// Types a line.
    pub fn types(&self, line: &str) {
        self.said("send-keys", &["-l", line]);
        self.presses("Enter");
    }

    /// Presses a key, by tmux' name for it.
    pub fn presses(&self, key: &str) {
        self.said("send-keys", &[key]);
    }

    /// Waits until the screen satisfies the condition, and returns it.
    #[track_caller]
    pub fn until(&self, such: impl Fn(&[String]) -> bool) -> Vec<String> {
        let end = Instant::now() + LONGEST;
        loop {
            let screen = self.screen();
            if such(&screen) {
                return screen;
            }
            assert!(
                Instant::now() < end,
                "the screen stays\n{}",
                screen.join("\n")
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until a text is on the screen.
    #[track_caller]
    pub fn until_seen(&self, text: &str) -> Vec<String> {
        self.until(|screen| screen.iter().any(|line| line.contains(text)))
    }

    /// Waits until a text is on a complete screen: the text may be seen while the screen is being drawn.
    #[track_caller]
    pub fn until_fits(&self, text: &str, columns: u16) -> Vec<String> {
        let there = |screen: &[String]| screen.iter().any(|line| line.contains(text));
        self.until(|screen| there(screen) && misfit(screen, columns.into()).is_none())
    }

    /// Asserts that the terminal is as a shell leaves it: the main screen, a cursor, and the settings recorded before.
    #[track_caller]
    pub fn is_as_before(&self, settings: &Path) {
        let told = self.said("display-message", &["-p", "#{alternate_on} #{cursor_flag}"]);
        assert_eq!(told.trim(), "0 1", "alternate screen, cursor");
        self.types(&format!(
            "stty -g | cmp - {} && echo same settings",
            settings.display()
        ));
        self.until(|screen| screen.iter().any(|line| line == "same settings"));
    }

    /// Records the settings in a file.
    pub fn note_settings(&self, file: &Path) {
        self.types(&format!("stty -g >{} && echo noted", file.display()));
        self.until(|screen| screen.iter().any(|line| line == "noted"));
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The programs in it get SIGHUP, and end.
        let _ = self.tmux().arg("kill-server").output();
    }
}

/// Returns the first fault of the layout, if any: every panel must have its whole border, and the panels must use the
/// screen's width.
pub fn misfit(screen: &[String], columns: usize) -> Option<String> {
    let text = screen.join("\n");
    let wide = |line: &String| line.chars().count();
    if let Some(line) = screen.iter().find(|line| wide(line) > columns) {
        return Some(format!("too wide: {line}"));
    }
    for corner in ['┌', '┐', '└', '┘'] {
        let found = text.matches(corner).count();
        if found != 5 {
            return Some(format!("{found} {corner} for five panels"));
        }
    }
    let sides = |line: &&String| line.contains('│');
    let whole = |line: &String| line.matches('│').count() == 4 && wide(line) == columns;
    let broken = screen
        .iter()
        .filter(sides)
        .find(|line| !whole(line) && !corner_in(line));
    broken.map(|line| format!("broken: {line}"))
}

/// Returns whether, in a row, one panel ends next to another that continues.
fn corner_in(line: &str) -> bool {
    line.contains(['┌', '└']) && line.contains(['┐', '┘'])
}
