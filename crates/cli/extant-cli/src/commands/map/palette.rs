//! The meaning of the colours in a picture, and the colour of each cell: uses of blocks, or the largest files.

use crate::survey::{Counts, Owned, Survey, Use};
use extant::Volume;
use extant_cli_core::address::bytes;
use extant_cli_core::format::show::show;
use std::borrow::Cow;
use std::collections::HashMap;

/// The appearance of a use or a file.
pub struct Look {
    pub name: Cow<'static, str>,
    pub letter: char,
    /// Index of the colour in the palette of 256 colours.
    pub colour: u8,
    /// Red, green and blue of the colour.
    pub rgb: [u8; 3],
    /// Total number of blocks.
    pub total: u64,
    /// Whether the legend shows the look even without blocks.
    pub always: bool,
}

/// The look of a cell.
#[derive(Clone, Copy)]
pub struct CellLook {
    /// Index of the look.
    pub look: usize,
    /// The share of the cell's blocks in use; 0 for a free cell.
    pub fill: f64,
}

/// Looks, of which the first is that of free blocks, and the cells of the picture in their order.
pub struct Palette {
    pub looks: Vec<Look>,
    pub cells: Vec<CellLook>,
}

/// Name and appearance of a use.
pub struct UseLook {
    pub what: Use,
    /// Key in JSON.
    pub key: &'static str,
    name: &'static str,
    letter: char,
    colour: u8,
    rgb: [u8; 3],
}

const fn look(
    what: Use,
    name: &'static str,
    key: &'static str,
    letter: char,
    colour: u8,
    rgb: u32,
) -> UseLook {
    let [_, red, green, blue] = rgb.to_be_bytes();
    UseLook {
        what,
        key,
        name,
        letter,
        colour,
        rgb: [red, green, blue],
    }
}

pub const USES: [UseLook; Use::COUNT] = [
    look(Use::Free, "free", "free", '.', 240, 0xe8_e8_e8),
    look(
        Use::Super,
        "superblocks, descriptors",
        "superblocks",
        'S',
        160,
        0xd6_27_28,
    ),
    look(Use::Bitmaps, "bitmaps", "bitmaps", 'B', 201, 0xe3_77_c2),
    look(
        Use::Inodes,
        "inode tables",
        "inode_tables",
        'I',
        208,
        0xff_7f_0e,
    ),
    look(Use::Journal, "journal", "journal", 'J', 98, 0x94_67_bd),
    look(
        Use::Directories,
        "directories",
        "directories",
        'D',
        34,
        0x2c_a0_2c,
    ),
    look(Use::Files, "files", "files", 'F', 32, 0x1f_77_b4),
    look(
        Use::Other,
        "mappings, attributes, rest",
        "other",
        'O',
        137,
        0x8c_56_4b,
    ),
    look(
        Use::Unknown,
        "unknown: damaged group",
        "unknown",
        '?',
        196,
        0x00_00_00,
    ),
];

/// Looks of the largest files, the largest first: letters, and well separated colours.
const FILES: [(char, u8, u32); Owned::MOST] = [
    ('A', 32, 0x1f_77_b4),
    ('B', 208, 0xff_7f_0e),
    ('C', 34, 0x2c_a0_2c),
    ('D', 160, 0xd6_27_28),
    ('E', 98, 0x94_67_bd),
    ('G', 137, 0x8c_56_4b),
    ('H', 201, 0xe3_77_c2),
    ('I', 178, 0xbc_bd_22),
];

/// Number of looks before those of the files, in a picture by file.
const METADATA: usize = 1;
const OTHER_FILES: usize = 2;
const UNKNOWN: usize = 3;
const FIRST_FILE: usize = 4;

impl Palette {
    /// Returns a colour for each use of blocks.
    pub fn by_use(survey: &Survey) -> Self {
        let looks = USES.iter().map(|look| Look {
            name: look.name.into(),
            letter: look.letter,
            colour: look.colour,
            rgb: look.rgb,
            total: survey.groups.total(look.what),
            always: look.what == Use::Free,
        });
        let cells = survey.picture.iter().map(|counts| CellLook {
            look: counts.most() as usize,
            fill: counts.fill(),
        });
        Self {
            looks: looks.collect(),
            cells: cells.collect(),
        }
    }

    /// Returns a colour for each of the largest files, and one each for other files, metadata and unknown blocks.
    pub fn by_file(survey: &Survey, owned: &Owned, names: &[String]) -> Self {
        let total = |what| survey.groups.total(what);
        let metadata = METADATA_USES.iter().map(|what| total(*what)).sum();
        let largest: u64 = owned.totals().iter().sum();
        let fixed = [
            ("free", '.', 240, [0xe8; 3], total(Use::Free)),
            ("metadata", 'M', 245, [0x7f; 3], metadata),
            (
                "other files",
                'F',
                117,
                [0xae, 0xc7, 0xe8],
                total(Use::Files).saturating_sub(largest),
            ),
            (
                "unknown: damaged group",
                '?',
                196,
                [0; 3],
                total(Use::Unknown),
            ),
        ];
        let fixed = fixed.map(|(name, letter, colour, rgb, total)| Look {
            name: name.into(),
            letter,
            colour,
            rgb,
            total,
            always: letter == '.',
        });
        let files = names.iter().zip(FILES).zip(owned.totals());
        let files = files.map(|((name, (letter, colour, rgb)), total)| {
            let [_, red, green, blue] = rgb.to_be_bytes();
            Look {
                name: name.clone().into(),
                letter,
                colour,
                rgb: [red, green, blue],
                total,
                always: false,
            }
        });
        let cells = survey.picture.iter().zip(owned.cells());
        let cells = cells.map(|(counts, files)| CellLook {
            look: most(counts, files),
            fill: counts.fill(),
        });
        Self {
            looks: fixed.into_iter().chain(files).collect(),
            cells: cells.collect(),
        }
    }

    /// Returns the looks in the legend.
    pub fn legend(&self) -> impl Iterator<Item = &Look> {
        let shown = |look: &&Look| look.total > 0 || look.always;
        self.looks.iter().filter(shown)
    }
}

const METADATA_USES: [Use; 6] = [
    Use::Super,
    Use::Bitmaps,
    Use::Inodes,
    Use::Journal,
    Use::Directories,
    Use::Other,
];

/// Returns the look of a cell by file: the look with the most blocks in use.
fn most(counts: &Counts, files: &[u32; Owned::MOST]) -> usize {
    let largest: u64 = files.iter().copied().map(u64::from).sum();
    let metadata = METADATA_USES.iter().map(|what| counts.get(*what)).sum();
    let rest = [
        (METADATA, metadata),
        (OTHER_FILES, counts.get(Use::Files).saturating_sub(largest)),
        (UNKNOWN, counts.get(Use::Unknown)),
    ];
    let files = (FIRST_FILE..).zip(files.iter().copied().map(u64::from));
    let used = rest
        .into_iter()
        .chain(files)
        .filter(|(_, blocks)| *blocks > 0);
    used.max_by_key(|(_, blocks)| *blocks)
        .map_or(0, |(look, _)| look)
}

/// Returns the paths of inodes, or their numbers if no path is found.
pub fn names(volume: &Volume, inodes: &[u32]) -> Vec<String> {
    let mut found: HashMap<u32, String> = HashMap::new();
    // The survey has already reported unreadable directories.
    let walk = volume.root().walk("/").into_iter().flatten();
    for entry in walk.map_while(Result::ok) {
        if inodes.contains(&entry.ino()) {
            let path = show(&bytes(entry.path())).to_string();
            found.entry(entry.ino()).or_insert(path);
            if found.len() == inodes.len() {
                break;
            }
        }
    }
    let name = |ino: &u32| found.remove(ino).unwrap_or_else(|| format!("inode {ino}"));
    inodes.iter().map(name).collect()
}
