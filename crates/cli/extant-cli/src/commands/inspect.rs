//! `extant inspect`: options and output. The requests are those of `extant_check::inspect`.

mod prompt;

use anyhow::{Context, Result, anyhow, bail};
use extant_check::inspect::{InspectError, Inspector, Layout, Record, Request, Value};
use extant_cli_core::address::Rooted;
use extant_cli_core::format::show::{ShowPath, base64_if_odd, exact, show};
use extant_cli_core::format::times;
use extant_cli_core::image::images;
use extant_terminal::output;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Show the structures inside an image, field by field
#[derive(clap::Args, Debug)]
#[command(
    long_about = long_about(),
    after_help = "Examples:\n  extant inspect disk.img\n  extant inspect disk.img stat /etc/passwd\n  extant inspect disk.img dump-block 1027\n  extant inspect --json disk.img -R 'icheck 5000 5001'"
)]
pub struct Args {
    /// Image to inspect
    image: Rooted,
    /// A request, as separate words
    #[arg(trailing_var_arg = true, value_name = "REQUEST")]
    words: Vec<OsString>,
    /// A request as one argument; may be given several times
    #[arg(short = 'R', long, value_name = "REQUEST")]
    request: Vec<OsString>,
    /// Read requests from a file, one per line; lines that begin with # are ignored
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Print as JSON, one object per line and request
    #[arg(long)]
    json: bool,
}

/// Returns the help, with the list of requests.
fn long_about() -> String {
    let mut requests = String::new();
    for (name, usage, about) in Request::table() {
        requests += format!("  {:23} {about}", format!("{name} {usage}")).trim_end();
        requests.push('\n');
    }
    format!(
        "Show the structures inside an image, field by field

The requests, which also have the names of debugfs:

{requests}
INODE is a path in the image, or a number such as <12>. Symbolic links in paths are not followed.

Without a request, requests are read at a prompt, with completion and a history, or from standard input. The prompt \
also accepts cd, pwd, cat, dump, help and quit.

Damage does not end an answer that can continue: damage is reported where it occurs, with the wrong checksum. An \
image whose journal needs recovery is shown as it will be after recovery; --noload shows it as it is on disk."
    )
}

pub fn run(args: &Args) -> Result<()> {
    let requests = requests(args)?;
    let image = &args.image.0.image;
    let name = image.shown();
    let device = images::device(image)?;
    let inspector = Inspector::open(&device, !images::journals_are_left());
    let inspector = inspector.with_context(|| name.clone())?;
    for finding in inspector.findings() {
        output::warn(format_args!(
            "{name}: {}",
            show(finding.to_string().as_bytes())
        ));
    }
    let answers = Answers { json: args.json };
    if requests.is_empty() {
        return if prompt::Session::new(&inspector, image, answers).run()? {
            Ok(())
        } else {
            bail!("no request; there are {}", Request::names())
        };
    }
    let mut out = output::stdout();
    let done = output::each(requests, |request| {
        let answered = answers.give(&inspector, &request, &mut out);
        answered.map_err(|e| failed(image, &request, e))
    });
    out.flush()?;
    done
}

/// The format of answers.
#[derive(Clone, Copy)]
struct Answers {
    json: bool,
}

impl Answers {
    fn give(
        self,
        inspector: &Inspector<'_>,
        request: &Request,
        out: &mut impl Write,
    ) -> Result<(), InspectError> {
        if self.json {
            answer_json(inspector, request, out)
        } else {
            answer(inspector, request, out)
        }
    }
}

/// Returns the error of a request without an answer.
fn failed(image: &Path, request: &Request, error: InspectError) -> anyhow::Error {
    match error {
        InspectError::Output(e) => e.into(),
        e => anyhow!(
            "{}: {}: {}",
            image.shown(),
            request.name(),
            show(e.to_string().as_bytes())
        ),
    }
}

/// Shows the superblock.
pub(super) fn superblock(image: &Rooted, json: bool) -> Result<()> {
    run(&Args {
        image: image.clone(),
        words: vec!["superblock".into()],
        request: Vec::new(),
        file: None,
        json,
    })
}

/// Returns all requests, in the order of the options' help.
fn requests(args: &Args) -> Result<Vec<Request>> {
    let mut requests = Vec::new();
    if !args.words.is_empty() {
        let words = args.words.iter().map(|w| w.clone().into_vec());
        requests.push(Request::new(words.collect()).map_err(or_debugfs)?);
    }
    for line in &args.request {
        let request = Request::from_line(&line.clone().into_vec());
        requests.push(request.map_err(or_debugfs)?);
    }
    if let Some(file) = &args.file {
        let text = std::fs::read(file).with_context(|| file.shown())?;
        for line in text.split(|&b| b == b'\n') {
            let line = line.trim_ascii();
            if !line.is_empty() && !line.starts_with(b"#") {
                requests.push(Request::from_line(line).map_err(or_debugfs)?);
            }
        }
    }
    Ok(requests)
}

/// Adds to the error of an unknown request where more requests are answered.
fn or_debugfs(error: InspectError) -> InspectError {
    match error {
        InspectError::Request(text) if text.starts_with("no request \"") => {
            InspectError::Request(format!(
                "{text} (called by a link named debugfs, extant answers lsdel, dump_unused and most others of debugfs)"
            ))
        }
        other => other,
    }
}

/// Answers with tables and lines.
fn answer(
    inspector: &Inspector<'_>,
    request: &Request,
    out: &mut impl Write,
) -> Result<(), InspectError> {
    let mut table = "";
    inspector.answer(request, &mut |record| match record.layout {
        Layout::Row => {
            let is_new = table != record.kind;
            table = record.kind;
            row(&record, is_new, out)
        }
        _ => {
            table = "";
            let names = record.fields.iter().map(|field| field.0.len());
            let width = names.max().unwrap_or(0) + 1;
            for (name, value) in &record.fields {
                writeln!(out, "{:width$} {}", format!("{name}:"), text(value))?;
            }
            Ok(())
        }
    })
}

/// Minimum width of columns, enough for most numbers.
const COLUMN: usize = 9;

/// Width of names of fields, which are longer.
const FIELD: usize = 26;

fn row(record: &Record, is_new: bool, out: &mut dyn Write) -> io::Result<()> {
    let last = record.fields.len().saturating_sub(1);
    let mut line = |cell: &dyn Fn(&(&'static str, Value)) -> String| {
        for (i, field) in record.fields.iter().enumerate() {
            let width = match field.0 {
                "field" => FIELD,
                name => name.len().max(COLUMN),
            };
            if i == last {
                writeln!(out, "{}", cell(field))?
            } else {
                write!(out, "{:width$} ", cell(field))?
            }
        }
        Ok(())
    };
    if is_new {
        line(&|field| field.0.to_owned())?;
    }
    line(&|field| text(&field.1))
}

/// Formats a value for people.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::Nothing => "-".into(),
        Value::Is(true) => "yes".into(),
        Value::Is(false) => "no".into(),
        Value::Number(n) => n.to_string(),
        Value::Hex(n) => format!("{n:#x}"),
        Value::Octal(n) => format!("{n:04o}"),
        Value::Time(0) => "0".into(),
        Value::Time(secs) => times::local(extant::Timestamp::new(*secs, 0)),
        Value::Text(text) => show(text.as_bytes()),
        Value::Name(name) => show(name),
        Value::Bytes(bytes) if bytes.iter().all(|&b| b == 0) => "zeros".into(),
        Value::Bytes(bytes) => hex(bytes),
        _ => String::new(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Answers with a JSON object: the request, and its records as they are produced.
fn answer_json(
    inspector: &Inspector<'_>,
    request: &Request,
    out: &mut impl Write,
) -> Result<(), InspectError> {
    let words: Vec<_> = request.words().iter().map(|w| show(w)).collect();
    let (name, words) = (quoted(request.name()), words.join(" "));
    write!(
        out,
        "{{\"request\":{name},\"about\":{},\"records\":[",
        quoted(&words)
    )?;
    let mut comma = "";
    let answered = inspector.answer(request, &mut |record| {
        write!(out, "{comma}{{\"kind\":{}", quoted(record.kind))?;
        comma = ",";
        for (name, value) in &record.fields {
            write!(out, ",{}:{}", quoted(name), json(value))?;
            if let Value::Name(bytes) = value
                && let Some(bytes) = base64_if_odd(bytes)
            {
                write!(out, ",\"{name}_bytes\":\"{bytes}\"")?;
            }
        }
        write!(out, "}}")
    });
    let error = match &answered {
        Err(InspectError::Output(_)) => return answered,
        Err(e) => quoted(&show(e.to_string().as_bytes())),
        Ok(()) => "null".into(),
    };
    writeln!(out, "],\"error\":{error}}}")?;
    answered
}

/// Formats a value as JSON: numbers as numbers, bytes in hexadecimal.
fn json(value: &Value) -> String {
    match value {
        Value::Nothing => "null".into(),
        Value::Is(yes) => yes.to_string(),
        Value::Number(n) | Value::Hex(n) | Value::Octal(n) => n.to_string(),
        Value::Time(secs) => secs.to_string(),
        Value::Bytes(bytes) => quoted(&hex(bytes)),
        Value::Name(name) => quoted(&exact(name)),
        other => quoted(&text(other)),
    }
}

fn quoted(text: &str) -> String {
    // Serializing a string never fails.
    serde_json::to_string(text).unwrap_or_default()
}
