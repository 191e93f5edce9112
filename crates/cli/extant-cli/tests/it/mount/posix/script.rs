//! The text of the table: cases of steps, one per line.
//!
//! ```text
//! [theme/name]
//! open f rdwr|creat 644 > a        a call; what it opens is called a from here on
//! write a {x*5000}                 text repeated
//! stat &a                          an open file instead of a path
//! link %a name                     an open file's path in /proc
//! @1000:5,6 unlink f               as user 1000, group 5, member of 6
//! repeat 1 9 mkdir d{i} 755        until the first failure
//! eventually mkdir d                until the first success, for some seconds
//! ```

/// A case: a sequence of calls in a separate directory.
pub struct Case {
    pub name: &'static str,
    pub steps: Vec<Step>,
}

/// A line of a case.
pub struct Step {
    pub text: &'static str,
    pub who: Option<Who>,
    pub repeat: Option<(u32, u32)>,
    /// Whether the step may fail at first: a server learns with a delay what the kernel no longer needs.
    pub eventually: bool,
    pub words: Vec<&'static str>,
    /// The name of an opened file in the script.
    pub name: Option<&'static str>,
}

/// The caller of a step, if not root.
#[derive(Clone)]
pub struct Who {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

impl Who {
    fn parse(text: &str) -> Self {
        let number = |t: &str| t.parse().unwrap_or_else(|_| panic!("no number: {t}"));
        let (uid, rest) = text.split_once(':').unwrap_or((text, text));
        let mut groups = rest.split(',').map(number);
        Self {
            uid: number(uid),
            gid: groups.next().unwrap(),
            groups: groups.collect(),
        }
    }
}

pub fn parse(text: &'static str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            let steps = Vec::new();
            cases.push(Case { name, steps });
            continue;
        }
        let case = cases.last_mut().expect("a case before its steps");
        case.steps.push(step(line));
    }
    cases
}

fn step(text: &'static str) -> Step {
    let mut words: Vec<_> = text.split_whitespace().collect();
    let mut who = None;
    if let Some(identity) = words[0].strip_prefix('@') {
        who = Some(Who::parse(identity));
        words.remove(0);
    }
    let mut repeat = None;
    if words[0] == "repeat" {
        let number = |t: &str| t.parse().unwrap();
        repeat = Some((number(words[1]), number(words[2])));
        words.drain(..3);
    }
    let eventually = words[0] == "eventually";
    if eventually {
        words.remove(0);
    }
    let mut name = None;
    if words.len() > 2 && words[words.len() - 2] == ">" {
        name = words.pop();
        words.pop();
    }
    Step {
        text,
        who,
        repeat,
        eventually,
        words,
        name,
    }
}

/// Expands a word: `{x*9}` is nine times x, `{i}` the count of a repeated step, `\0`, `\n`, `\s` and `\xFF` bytes that
/// cannot be written, `""` nothing.
pub fn expand(word: &str, count: u32) -> Vec<u8> {
    if word == "\"\"" {
        return Vec::new();
    }
    let mut out = Vec::new();
    let mut rest = word;
    while let Some((before, more)) = rest.split_once('{') {
        out.extend(plain(before));
        let (inside, after) = more.split_once('}').expect("a closing brace");
        if inside == "i" {
            out.extend(count.to_string().bytes());
        } else {
            let (what, times) = inside.rsplit_once('*').expect("a count in braces");
            out.extend(plain(what).repeat(times.parse().unwrap()));
        }
        rest = after;
    }
    out.extend(plain(rest));
    out
}

fn plain(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'\\' => match bytes.next() {
                Some(b'0') => 0,
                Some(b'n') => b'\n',
                Some(b's') => b' ',
                Some(b'x') => {
                    let digits = [bytes.next().unwrap(), bytes.next().unwrap()];
                    u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
                }
                other => panic!("escape {other:?}"),
            },
            plain => plain,
        });
    }
    out
}
