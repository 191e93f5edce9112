//! Requests at a prompt, or line by line from standard input: those of `extant inspect`, and the requests of debugfs
//! that read files or change the directory.

use super::{Answers, failed};
use anyhow::{Context as _, Result, bail};
use extant_check::inspect::{Inspector, Request, Value};
use extant_cli_core::address::patterns::NoMatch;
use extant_cli_core::address::request::{path_from, words_from};
use extant_cli_core::address::{Address, host_path};
use extant_cli_core::format::show::{ShowPath, show};
use extant_cli_core::image::images::Images;
use extant_cli_core::image::streams;
use extant_terminal::output;
use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, Editor, Helper};
use std::cell::RefCell;
use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// Commands of the prompt that are not requests.
const OWN: &[(&str, &str)] = &[
    ("cd DIR", "make DIR the directory that paths begin at"),
    ("pwd", "show that directory"),
    ("cat PATH", "write a file to standard output"),
    ("dump PATH FILE", "copy a file to a new one of the host"),
    ("help", "this list"),
    ("quit", "end, as ^D does"),
];

/// An inspected image.
pub(super) struct Session<'a, 'd> {
    inspector: &'a Inspector<'d>,
    image: &'a Path,
    answers: Answers,
    /// The current directory, from the root.
    at: RefCell<Vec<u8>>,
}

/// The action after a line.
enum AfterLine {
    Line,
    End,
}

/// The position of the unfinished word.
struct Unfinished<'l> {
    begin: usize,
    word: &'l str,
    is_first: bool,
}

impl<'a, 'd> Session<'a, 'd> {
    pub(super) fn new(inspector: &'a Inspector<'d>, image: &'a Path, answers: Answers) -> Self {
        let at = RefCell::new(b"/".to_vec());
        Self {
            inspector,
            image,
            answers,
            at,
        }
    }

    /// Answers requests from the prompt or standard input. Returns whether there was any request.
    pub(super) fn run(&self) -> Result<bool> {
        if std::io::stdin().is_terminal() && std::io::stdout().is_terminal() {
            self.prompt().map(|()| true)
        } else {
            self.lines()
        }
    }

    fn lines(&self) -> Result<bool> {
        let (mut any, mut all_answered) = (false, true);
        for line in std::io::stdin().lock().split(b'\n') {
            let line = line.context("standard input")?;
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            any = true;
            match self.line(line) {
                Ok(AfterLine::Line) => {}
                Ok(AfterLine::End) => break,
                Err(error) if error.is::<extant_terminal::interrupt::Interrupted>() => {
                    return Err(error);
                }
                Err(error) => {
                    all_answered = false;
                    output::complain(output::one_line(&error));
                }
            }
        }
        if all_answered {
            Ok(any)
        } else {
            Err(output::told())
        }
    }

    fn prompt(&self) -> Result<()> {
        let config = Config::builder()
            .auto_add_history(true)
            .completion_type(CompletionType::List)
            .build();
        let mut editor: Editor<Words<'_, 'a, 'd>, DefaultHistory> = Editor::with_config(config)?;
        editor.set_helper(Some(Words { session: self }));
        let history = history();
        if let Some(file) = &history {
            // The history does not exist the first time.
            let _ = editor.load_history(file);
        }
        loop {
            let at = show(&self.at.borrow());
            match editor.readline(&format!("{}:{at}> ", self.image.shown())) {
                Ok(line) if line.trim().is_empty() => {}
                Ok(line) => match self.line(line.as_bytes()) {
                    Ok(AfterLine::Line) => {}
                    Ok(AfterLine::End) => break,
                    Err(error) => output::complain(output::one_line(&error)),
                },
                Err(ReadlineError::Interrupted) => {}
                Err(ReadlineError::Eof) => break,
                Err(error) => return Err(error.into()),
            }
        }
        if let Some(file) = &history {
            // If the home is not writable, the history is lost.
            let _ = editor.save_history(file);
        }
        Ok(())
    }

    fn line(&self, line: &[u8]) -> Result<AfterLine> {
        let words = Request::words_of(line);
        let Some((name, words)) = words.split_first() else {
            return Ok(AfterLine::Line);
        };
        match (name.as_slice(), words) {
            (b"quit" | b"q" | b"exit", []) => return Ok(AfterLine::End),
            (b"help" | b"?" | b"lr", []) => help()?,
            (b"pwd", []) => println(&show(&self.at.borrow()))?,
            (b"cd", []) => *self.at.borrow_mut() = b"/".to_vec(),
            (b"cd", [dir]) => self.change(dir)?,
            (b"cat", [path]) => self.cat(path, &mut output::stdout())?,
            (b"dump", [path, to]) => self.dump(path, to)?,
            (b"cd" | b"cat" | b"dump" | b"quit" | b"help" | b"pwd", _) => {
                let usage = OWN.iter().map(|(usage, _)| *usage);
                let usage = usage.filter(|u| u.as_bytes().starts_with(name));
                bail!("usage: {}", usage.collect::<String>());
            }
            _ => self.request(name, words)?,
        }
        Ok(AfterLine::Line)
    }

    fn request(&self, name: &[u8], words: &[Vec<u8>]) -> Result<()> {
        let words = [&[name.to_vec()], words].concat();
        let request = Request::new(words_from(words, &self.at.borrow())?)?;
        let mut out = output::stdout();
        let answered = self.answers.give(self.inspector, &request, &mut out);
        out.flush()?;
        answered.map_err(|e| failed(self.image, &request, e))
    }

    fn path(&self, word: &[u8]) -> Vec<u8> {
        path_from(&self.at.borrow(), word)
    }

    fn change(&self, dir: &[u8]) -> Result<()> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        let whole = self.path(dir);
        for name in whole.split(|&b| b == b'/') {
            match name {
                b"" | b"." => {}
                b".." => drop(names.pop()),
                name => names.push(name.to_vec()),
            }
        }
        let path = if whole.starts_with(b"<") {
            whole
        } else {
            [b"/".to_vec(), names.join(&b'/')].concat()
        };
        let request = Request::new(vec![b"dirents".to_vec(), path.clone()])?;
        let listed = self.inspector.answer(&request, &mut |_| Ok(()));
        listed.map_err(|e| failed(self.image, &request, e))?;
        *self.at.borrow_mut() = path;
        Ok(())
    }

    fn cat(&self, path: &[u8], out: &mut impl Write) -> Result<()> {
        let address = Address::root(self.image).at(&self.path(path));
        Images::each(false, &[address], NoMatch::Fails, |place| {
            streams::out_of_image(place, out)
        })?;
        Ok(out.flush()?)
    }

    fn dump(&self, path: &[u8], to: &[u8]) -> Result<()> {
        let to = host_path(to);
        let shown = || to.shown();
        let file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&to);
        self.cat(path, &mut file.with_context(shown)?)
            .with_context(shown)
    }

    /// Returns the names of the directory that a path leads into.
    fn names_in(&self, dir: &[u8]) -> Vec<(Vec<u8>, bool)> {
        let mut names = Vec::new();
        let request = Request::new(vec![b"dirents".to_vec(), self.path(dir)]);
        let Ok(request) = request else { return names };
        // An unreadable directory has no names to offer.
        let _ = self.inspector.answer(&request, &mut |record| {
            let field = |name: &str| record.fields.iter().find(|f| f.0 == name).map(|f| &f.1);
            let deleted = matches!(field("deleted"), Some(Value::Is(true)));
            let is_dir = matches!(field("type"), Some(Value::Text(kind)) if kind == "directory");
            if let (Some(Value::Name(name)), false) = (field("name"), deleted)
                && !matches!(name.as_slice(), b"." | b"..")
            {
                names.push((name.clone(), is_dir));
            }
            Ok(())
        });
        names
    }

    fn candidates(&self, unfinished: &Unfinished<'_>) -> Vec<Pair> {
        let pair = |text: String| Pair {
            display: text.clone(),
            replacement: text,
        };
        let word = unfinished.word;
        if unfinished.is_first {
            let own = OWN.iter().filter_map(|(usage, _)| usage.split(' ').next());
            let names = Request::names();
            let all = names
                .split(", ")
                .chain(own)
                .filter(|name| name.starts_with(word));
            return all.map(|name| pair(format!("{name} "))).collect();
        }
        let (dir, begun) = match word.rfind('/') {
            Some(slash) => word.split_at(slash + 1),
            None => ("", word),
        };
        let listed = if dir.is_empty() { "." } else { dir };
        let names = self.names_in(listed.as_bytes()).into_iter();
        names
            .filter_map(|(name, is_dir)| Some((String::from_utf8(name).ok()?, is_dir)))
            .filter(|(name, _)| name.starts_with(begun))
            .map(|(name, is_dir)| Pair {
                replacement: format!("{dir}{name}{}", if is_dir { "/" } else { " " }),
                display: name,
            })
            .collect()
    }
}

fn println(line: &str) -> Result<()> {
    Ok(writeln!(output::stdout(), "{line}")?)
}

fn help() -> Result<()> {
    let mut out = output::stdout();
    writeln!(out, "{}", Request::names())?;
    for (usage, what) in OWN {
        writeln!(out, "{usage:16}{what}")?;
    }
    Ok(out.flush()?)
}

/// Returns the path of the history: below `XDG_STATE_HOME`, or the home.
fn history() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let home = || Some(Path::new(&std::env::var_os("HOME")?).join(".local/state"));
    let dir = state
        .filter(|dir| dir.is_absolute())
        .or_else(home)?
        .join("extant");
    std::fs::create_dir_all(&dir).ok()?;
    Some(dir.join("inspect-history"))
}

/// Completion for the line editor.
struct Words<'s, 'a, 'd> {
    session: &'s Session<'a, 'd>,
}

impl Completer for Words<'_, '_, '_> {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        pos: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let written = line.get(..pos).unwrap_or(line);
        let begin = written.rfind(' ').map_or(0, |at| at + 1);
        let unfinished = Unfinished {
            begin,
            word: &written[begin..],
            is_first: written[..begin].trim().is_empty(),
        };
        Ok((unfinished.begin, self.session.candidates(&unfinished)))
    }
}

impl Hinter for Words<'_, '_, '_> {
    type Hint = String;
}
impl Highlighter for Words<'_, '_, '_> {}
impl Validator for Words<'_, '_, '_> {}
impl Helper for Words<'_, '_, '_> {}
