//! The environment of steps: open files by name, a directory for each case, and callers other than root.

use super::script::{Case, Step, Who, expand};
use super::sys::Result;
use super::{acl, attributes, data, names, volume_calls};
use rustix::fs::{AtFlags, CWD, Mode, Statx, StatxFlags, chmod};
use rustix::io::Errno;
use rustix::thread as credentials;
use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// Time limit for a step that has to succeed eventually.
const LONGEST: Duration = Duration::from_secs(10);

/// Runs all steps of a case in a new directory, and returns the result of each.
pub fn play(top: &Path, case: &Case) -> Vec<String> {
    let dir = top.join(case.name.replace('/', "-"));
    std::fs::create_dir(&dir).unwrap();
    chmod(&dir, Mode::from_raw_mode(0o777)).unwrap();
    std::env::set_current_dir(&dir).unwrap();
    let _ = rustix::process::umask(Mode::from_raw_mode(0o022));
    let mut world = World::default();
    let lines = case.steps.iter().map(|step| world.step(case.name, step));
    let lines = lines.collect();
    world.end();
    lines
}

#[derive(Default)]
pub struct World {
    pub files: HashMap<String, OwnedFd>,
    pub times: HashMap<Vec<u8>, Statx>,
    pub handles: HashMap<String, Vec<u8>>,
    pub running: HashMap<String, std::process::Child>,
}

impl World {
    fn step(&mut self, case: &str, step: &Step) -> String {
        self.wait_for_attributes(step);
        let outcome = match step.repeat {
            None if step.eventually => said(self.eventually(step)),
            None => said(self.as_who(step, 0)),
            Some((from, to)) => (from..=to)
                .find_map(|i| {
                    let failed = self.as_who(step, i).err()?;
                    Some(format!("{} at {i}", name_of(failed)))
                })
                .unwrap_or_else(|| "all ok".into()),
        };
        format!("{case}: {} => {outcome}", step.text)
    }

    /// Waits until cached attributes have expired, because the kernel may cache the attributes of a file that is open
    /// for writing on a FUSE mount for a moment. With the wait, the answer does not depend on the speed of the steps.
    fn wait_for_attributes(&self, step: &Step) {
        const FUSE: i64 = 0x6573_5546;
        let verb = step
            .text
            .split([' ', ':'])
            .find(|word| !word.starts_with('@'));
        let asks = ["mark", "moved", "stat", "blocks", "times", "attributes"];
        let fuse = || rustix::fs::statfs(".").is_ok_and(|fs| fs.f_type == FUSE);
        if verb.is_some_and(|verb| asks.contains(&verb)) && !self.files.is_empty() && fuse() {
            std::thread::sleep(Duration::from_millis(15));
        }
    }

    fn eventually(&mut self, step: &Step) -> Result<String> {
        let end = Instant::now() + LONGEST;
        loop {
            let outcome = self.as_who(step, 0);
            if outcome.is_ok() || Instant::now() > end {
                return outcome;
            }
            std::thread::yield_now();
        }
    }

    fn as_who(&mut self, step: &Step, count: u32) -> Result<String> {
        let Some(who) = &step.who else {
            return self.call(step, count);
        };
        let act = || {
            become_user(who);
            self.call(step, count)
        };
        std::thread::scope(|s| s.spawn(act).join()).unwrap()
    }

    fn call(&mut self, step: &Step, count: u32) -> Result<String> {
        let args = Args {
            text: step.text,
            words: step.words[1..].iter().map(|w| expand(w, count)).collect(),
            name: step.name,
        };
        let verb = step.words[0];
        for module in [
            names::call,
            data::call,
            attributes::call,
            acl::call,
            volume_calls::call,
        ] {
            if let Some(done) = module(self, verb, &args)? {
                return Ok(done);
            }
        }
        panic!("no such step: {}", step.text);
    }

    fn end(mut self) {
        for (_, mut child) in self.running.drain() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Returns an open file, if it could be opened.
    pub fn fd(&self, name: &[u8]) -> Result<BorrowedFd<'_>> {
        let name = std::str::from_utf8(name).unwrap();
        let file = self.files.get(name).ok_or(Errno::BADF)?;
        Ok(file.as_fd())
    }

    /// Returns the statx of a path or an open file.
    pub fn statx(&self, path: &[u8], flags: AtFlags) -> Result<Statx> {
        let all = StatxFlags::ALL;
        match path.strip_prefix(b"&") {
            Some(file) => rustix::fs::statx(self.fd(file)?, c"", AtFlags::EMPTY_PATH | flags, all),
            None => rustix::fs::statx(CWD, path, flags, all),
        }
    }
}

/// Changes the credentials of this thread to those of another user.
fn become_user(who: &Who) {
    let group = |g: &u32| rustix::fs::Gid::from_raw(*g);
    let groups: Vec<_> = who.groups.iter().map(group).collect();
    credentials::set_thread_groups(&groups).unwrap();
    let gid = group(&who.gid);
    credentials::set_thread_res_gid(gid, gid, gid).unwrap();
    let uid = rustix::fs::Uid::from_raw(who.uid);
    credentials::set_thread_res_uid(uid, uid, uid).unwrap();
}

/// The arguments of a step.
pub struct Args<'a> {
    text: &'a str,
    words: Vec<Vec<u8>>,
    name: Option<&'static str>,
}

impl Args<'_> {
    pub fn get(&self, at: usize) -> Option<&[u8]> {
        self.words.get(at).map(Vec::as_slice)
    }

    pub fn bytes(&self, at: usize) -> &[u8] {
        self.get(at)
            .unwrap_or_else(|| panic!("word {at} missing: {}", self.text))
    }

    pub fn text(&self, at: usize) -> &str {
        std::str::from_utf8(self.bytes(at)).unwrap()
    }

    /// Returns a path; `%a` is the path of the open file in /proc.
    pub fn path(&self, world: &World, at: usize) -> Result<Vec<u8>> {
        Ok(match self.bytes(at) {
            [b'%', file @ ..] => {
                format!("/proc/self/fd/{}", world.fd(file)?.as_raw_fd()).into_bytes()
            }
            path => path.to_vec(),
        })
    }

    /// Parses a decimal number, with k, m, g, t or p for powers of 1024, and an optional term to add or subtract.
    pub fn number(&self, at: usize) -> i64 {
        self.number_in(self.text(at))
    }

    pub fn number_or(&self, at: usize, default: i64) -> i64 {
        if self.words.len() > at {
            self.number(at)
        } else {
            default
        }
    }

    fn number_in(&self, text: &str) -> i64 {
        if let Some((a, b)) = text.rsplit_once('+').filter(|(a, _)| !a.is_empty()) {
            return self.number_in(a) + self.number_in(b);
        }
        if let Some((a, b)) = text.rsplit_once('-').filter(|(a, _)| !a.is_empty()) {
            return self.number_in(a) - self.number_in(b);
        }
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let shift = match &text[digits.len()..] {
            "" => 0,
            "k" => 10,
            "m" => 20,
            "g" => 30,
            "t" => 40,
            other => panic!("{other}: {}", self.text),
        };
        let number: i64 = digits
            .parse()
            .unwrap_or_else(|_| panic!("a number: {}", self.text));
        number << shift
    }

    pub fn octal(&self, at: usize) -> u32 {
        u32::from_str_radix(self.text(at), 8)
            .unwrap_or_else(|_| panic!("octal digits: {}", self.text))
    }

    pub fn octal_or(&self, at: usize, default: u32) -> u32 {
        if self.words.len() > at {
            self.octal(at)
        } else {
            default
        }
    }

    /// Parses flags by name, separated by bars; flags without names are hexadecimal.
    pub fn flags(&self, at: usize, known: &[(&str, u32)]) -> u32 {
        if self.words.len() <= at {
            return 0;
        }
        let one = |name: &str| {
            if let Some(hex) = name.strip_prefix("0x") {
                return u32::from_str_radix(hex, 16).unwrap();
            }
            let found = known.iter().find(|(n, _)| *n == name);
            found
                .unwrap_or_else(|| panic!("flag {name}: {}", self.text))
                .1
        };
        self.text(at).split('|').map(one).fold(0, |a, b| a | b)
    }

    /// Stores an opened file under the step's name.
    pub fn keep(&self, world: &mut World, file: OwnedFd) {
        let name = self.name.unwrap_or("_");
        world.files.insert(name.into(), file);
    }

    pub fn name(&self) -> String {
        self.name.unwrap_or("_").into()
    }
}

fn said(outcome: Result<String>) -> String {
    match outcome {
        Ok(text) if text.is_empty() => "ok".into(),
        Ok(text) => text,
        Err(errno) => name_of(errno),
    }
}

pub fn name_of(errno: Errno) -> String {
    let named = [
        (Errno::PERM, "EPERM"),
        (Errno::NOENT, "ENOENT"),
        (Errno::IO, "EIO"),
        (Errno::NXIO, "ENXIO"),
        (Errno::TOOBIG, "E2BIG"),
        (Errno::BADF, "EBADF"),
        (Errno::AGAIN, "EAGAIN"),
        (Errno::ACCESS, "EACCES"),
        (Errno::BUSY, "EBUSY"),
        (Errno::EXIST, "EEXIST"),
        (Errno::XDEV, "EXDEV"),
        (Errno::NODEV, "ENODEV"),
        (Errno::NOTDIR, "ENOTDIR"),
        (Errno::ISDIR, "EISDIR"),
        (Errno::INVAL, "EINVAL"),
        (Errno::NOTTY, "ENOTTY"),
        (Errno::TXTBSY, "ETXTBSY"),
        (Errno::FBIG, "EFBIG"),
        (Errno::NOSPC, "ENOSPC"),
        (Errno::ROFS, "EROFS"),
        (Errno::MLINK, "EMLINK"),
        (Errno::RANGE, "ERANGE"),
        (Errno::NAMETOOLONG, "ENAMETOOLONG"),
        (Errno::NOSYS, "ENOSYS"),
        (Errno::NOTEMPTY, "ENOTEMPTY"),
        (Errno::LOOP, "ELOOP"),
        (Errno::NODATA, "ENODATA"),
        (Errno::OVERFLOW, "EOVERFLOW"),
        (Errno::OPNOTSUPP, "EOPNOTSUPP"),
        (Errno::STALE, "ESTALE"),
        (Errno::NOEXEC, "ENOEXEC"),
        (Errno::SPIPE, "ESPIPE"),
        (Errno::DQUOT, "EDQUOT"),
        (Errno::FAULT, "EFAULT"),
        (Errno::ADDRINUSE, "EADDRINUSE"),
        (Errno::CONNREFUSED, "ECONNREFUSED"),
        (Errno::SHUTDOWN, "ESHUTDOWN"),
        (Errno::NOTCONN, "ENOTCONN"),
    ];
    match named.iter().find(|(known, _)| *known == errno) {
        Some((_, name)) => (*name).into(),
        None => format!("errno {}", errno.raw_os_error()),
    }
}
