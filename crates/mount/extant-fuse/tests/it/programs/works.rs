//! Typical programs: append, overwrite, replace by rename. Each program syncs, and notes the acknowledgement and its
//! time.

use crate::it::common::Rng;
use crate::it::judge::stamp::{self, CELL};
use crate::it::programs::witness::{PROGRAM_SHIFT, Witness};
use extant::Volume;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// An event of a program: the begin or the acknowledgement of a change, with its time.
#[derive(Clone, Copy, Debug)]
pub struct Note {
    /// A time before the first call, or after the last.
    pub tick: u64,
    /// Whether the change was acknowledged, and not only begun.
    pub told: bool,
    /// Generation, block or version, depending on the program.
    pub what: u32,
    /// The number of the write, or the number of cells.
    pub number: u32,
}

/// A program's notes, and the errors of its fsyncs.
#[derive(Debug, Default)]
pub struct Story {
    pub notes: Vec<Note>,
    pub fsyncs: u64,
    pub uncovered: Vec<String>,
}

/// The kind of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    Append,
    Overwrite,
    Replace,
}

/// A program that works in the directory of a mount.
pub struct Worker<'a> {
    pub witness: &'a Witness,
    pub dir: &'a Path,
    pub stop: &'a AtomicBool,
    /// Number of the program, from 1.
    pub program: u32,
    pub seed: u64,
}

/// Number of blocks that an overwriter uses.
const BLOCKS: u64 = 48;
const BLOCK: u64 = 4096;

impl Worker<'_> {
    /// Works until `stop` is set.
    pub fn run(&self, work: Work) -> Story {
        let mut story = Story::default();
        let mut rng = Rng::new(self.seed << 8 | u64::from(self.program));
        let mut write = self.program << PROGRAM_SHIFT;
        let mut next = || {
            write += 1;
            write
        };
        match work {
            Work::Append => self.append(&mut story, &mut rng, &mut next),
            Work::Overwrite => self.overwrite(&mut story, &mut rng, &mut next),
            Work::Replace => self.replace(&mut story, &mut rng, &mut next),
        }
        story
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    fn name(&self, what: &str) -> String {
        format!("{what}{}", self.program)
    }

    fn begins(&self, story: &mut Story, what: u32, number: u32) {
        let (tick, told) = (self.witness.device.tick(), false);
        story.notes.push(Note {
            tick,
            told,
            what,
            number,
        });
    }

    fn sync(&self, file: &File, datasync: bool) {
        if datasync {
            file.sync_data()
        } else {
            file.sync_all()
        }
        .unwrap();
    }

    /// Records the fsync of the program's last write, and returns its tick.
    fn synced(&self, story: &mut Story, last: u32) -> u64 {
        let (tick, result) = self.witness.returned(self.program, last);
        story.fsyncs += 1;
        if let Err(e) = result {
            let nth = story.fsyncs;
            story
                .uncovered
                .push(format!("program {}, fsync {nth}: {e}", self.program));
        }
        tick
    }

    fn told(&self, story: &mut Story, tick: u64, what: u32, number: u32) {
        story.notes.push(Note {
            tick,
            told: true,
            what,
            number,
        });
    }

    /// Appends to files; `what` is the generation of the file, `number` its number of cells.
    fn append(&self, story: &mut Story, rng: &mut Rng, next: &mut dyn FnMut() -> u32) {
        for generation in 1.. {
            let path = self.dir.join(format!("{}.{generation}", self.name("log")));
            let mut options = OpenOptions::new();
            let file = options.append(true).create_new(true).open(&path).unwrap();
            let mut cells = 0u64;
            while cells * CELL < 192 << 10 {
                if !self.goes_on() {
                    return;
                }
                let number = next();
                let more = 16 + rng.below(80);
                self.begins(story, generation, (cells + more) as u32);
                let data = stamp::fill(number, cells..cells + more);
                std::io::Write::write_all(&mut &file, &data).unwrap();
                cells += more;
                self.sync(&file, rng.below(2) == 0);
                let tick = self.synced(story, number);
                self.told(story, tick, generation, cells as u32);
            }
            fs::remove_file(&path).unwrap();
        }
    }

    /// Overwrites blocks; `what` is the block, `number` that of the write.
    fn overwrite(&self, story: &mut Story, rng: &mut Rng, next: &mut dyn FnMut() -> u32) {
        let path = self.dir.join(self.name("table"));
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).open(&path).unwrap();
        let cells = BLOCK / CELL;
        let first = next();
        for block in 0..BLOCKS as u32 {
            self.begins(story, block, first);
        }
        file.write_all_at(&stamp::fill(first, 0..BLOCKS * cells), 0)
            .unwrap();
        self.sync(&file, false);
        let tick = self.synced(story, first);
        for block in 0..BLOCKS as u32 {
            self.told(story, tick, block, first);
        }
        while self.goes_on() {
            let block = rng.below(BLOCKS);
            let number = next();
            self.begins(story, block as u32, number);
            let data = stamp::fill(number, block * cells..(block + 1) * cells);
            file.write_all_at(&data, block * BLOCK).unwrap();
            self.sync(&file, rng.below(4) > 0);
            let tick = self.synced(story, number);
            self.told(story, tick, block as u32, number);
        }
    }

    /// Replaces a file; `number` is that of the write.
    fn replace(&self, story: &mut Story, rng: &mut Rng, next: &mut dyn FnMut() -> u32) {
        let (new, path) = (self.name("new"), self.dir.join(self.name("config")));
        let new = self.dir.join(new);
        let dir = File::open(self.dir).unwrap();
        while self.goes_on() {
            let number = next();
            self.begins(story, 0, number);
            let mut options = OpenOptions::new();
            let file = options.write(true).create(true).truncate(true).open(&new);
            let file = file.unwrap();
            let cells = 1 + rng.below(200);
            file.write_all_at(&stamp::fill(number, 0..cells), 0)
                .unwrap();
            self.sync(&file, false);
            self.synced(story, number);
            drop(file);
            fs::rename(&new, &path).unwrap();
            dir.sync_all().unwrap();
            let tick = self.witness.device.tick();
            self.told(story, tick, 0, number);
        }
    }
}

/// Checks that the recovered volume has every change acknowledged by the tick, and no change that had not begun.
pub fn judge(
    volume: &Volume,
    work: Work,
    program: u32,
    story: &Story,
    at: u64,
) -> Result<(), String> {
    let notes = &story.notes[..story.notes.partition_point(|n| n.tick < at)];
    let judged = match work {
        Work::Append => judge_log(volume, program, notes),
        Work::Overwrite => judge_table(volume, program, notes),
        Work::Replace => judge_config(volume, program, notes),
    };
    judged.map_err(|e| format!("program {program}, {work:?}: {e}"))
}

fn read(volume: &Volume, path: &str) -> Result<Option<Vec<Option<stamp::Value>>>, String> {
    match volume.read(path) {
        Ok(bytes) => Ok(Some(
            bytes.chunks(CELL as usize).map(stamp::parse).collect(),
        )),
        Err(extant::Error::NotFound) => Ok(None),
        Err(e) => Err(format!("{path}: {e}")),
    }
}

fn judge_log(volume: &Volume, program: u32, notes: &[Note]) -> Result<(), String> {
    let Some(last) = notes.iter().rfind(|n| n.told) else {
        return Ok(());
    };
    // The program may have continued with the next generation, and removed this one.
    let begun = notes.last().map_or(0, |n| n.what);
    let longest = (192 << 10) / CELL;
    let may_be_gone = begun > last.what || u64::from(last.number) >= longest;
    let path = format!("/log{program}.{}", last.what);
    let cells = match read(volume, &path)? {
        Some(cells) => cells,
        None if may_be_gone => return Ok(()),
        None => {
            return Err(format!(
                "{path} is not there, with {} cells told",
                last.number
            ));
        }
    };
    let begun = notes.iter().rfind(|n| n.what == last.what);
    let most = begun.map_or(0, |n| n.number) as usize;
    if cells.len() < last.number as usize || cells.len() > most {
        return Err(format!(
            "{path} has {} cells, {} were told, {most} begun",
            cells.len(),
            last.number
        ));
    }
    for (i, &cell) in cells.iter().enumerate() {
        let own = cell
            .is_some_and(|v| v as u32 == i as u32 && (v >> 32) as u32 >> PROGRAM_SHIFT == program);
        let unsynced = i >= last.number as usize;
        if !(own || unsynced && cell == Some(0)) {
            return Err(format!(
                "{path}, cell {i}, {} were told: {}",
                last.number,
                stamp::describe(cell)
            ));
        }
    }
    Ok(())
}

fn judge_table(volume: &Volume, program: u32, notes: &[Note]) -> Result<(), String> {
    let path = format!("/table{program}");
    if !notes.iter().any(|n| n.told) {
        return Ok(());
    }
    let cells = read(volume, &path)?.ok_or("it is not there")?;
    let each = (BLOCK / CELL) as usize;
    if cells.len() != BLOCKS as usize * each {
        return Err(format!("{path} has {} cells", cells.len()));
    }
    let mut told = [0u32; BLOCKS as usize];
    let mut begun = [0u32; BLOCKS as usize];
    for note in notes {
        let of = if note.told { &mut told } else { &mut begun };
        of[note.what as usize] = note.number;
    }
    for (i, &cell) in cells.iter().enumerate() {
        let block = i / each;
        let number = cell.map_or(0, |v| (v >> 32) as u32);
        let in_place = cell.is_some_and(|v| v as u32 == i as u32);
        if !in_place || number < told[block] || number > begun[block] {
            return Err(format!(
                "{path}, block {block}, cell {i}: {}; told {}, begun {}",
                stamp::describe(cell),
                told[block],
                begun[block]
            ));
        }
    }
    Ok(())
}

fn judge_config(volume: &Volume, program: u32, notes: &[Note]) -> Result<(), String> {
    let path = format!("/config{program}");
    let told = notes.iter().rfind(|n| n.told).map_or(0, |n| n.number);
    let begun = notes.last().map_or(0, |n| n.number);
    let Some(cells) = read(volume, &path)? else {
        return match told {
            0 => Ok(()),
            _ => Err(format!("{path} is not there, told {told}")),
        };
    };
    let first = cells.first().copied().flatten().unwrap_or(0);
    let number = (first >> 32) as u32;
    let whole = cells
        .iter()
        .enumerate()
        .all(|(i, c)| *c == Some(stamp::value(number, i as u64)));
    if !whole || number < told || number > begun {
        return Err(format!(
            "{path}: {} cells, the first {}, whole: {whole}; told {told}, begun {begun}",
            cells.len(),
            stamp::describe(Some(first))
        ));
    }
    Ok(())
}
