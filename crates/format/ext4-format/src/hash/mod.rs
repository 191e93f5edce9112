//! The directory hash: the position of a name in an indexed directory.
//!
//! Six versions: {legacy, half-MD4, TEA} × {name bytes taken as signed, as unsigned}. Signed and
//! unsigned agree on ASCII; the superblock records which of the two wrote the directories. The
//! readdir cookie, the order in memory and the order of the htree are all this hash.

mod half_md4;

use crate::error::{FormatError, Result};
use crate::fold::{self, Comparison};
use half_md4::{AT_ONCE, Vector};

/// A version of the directory hash, as numbered in `dx_root` and the superblock.
///
/// ```
/// use ext4_format::hash::HashVersion;
/// assert_eq!(HashVersion::from_raw(1, true), Some(HashVersion::HalfMd4Unsigned));
/// assert_eq!(HashVersion::HalfMd4Unsigned.stored(), 1);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum HashVersion {
    /// Multiplicative hash of ext3's first days.
    Legacy = 0,
    /// MD4 cut to half its rounds, the default.
    HalfMd4 = 1,
    /// Tiny Encryption Algorithm in Davies–Meyer mode.
    Tea = 2,
    /// [`Self::Legacy`] over unsigned bytes.
    LegacyUnsigned = 3,
    /// [`Self::HalfMd4`] over unsigned bytes.
    HalfMd4Unsigned = 4,
    /// [`Self::Tea`] over unsigned bytes.
    TeaUnsigned = 5,
}

impl HashVersion {
    /// Converts the stored number. Numbers 0–2 become their unsigned variant if the superblock's flag for unsigned
    /// bytes is set; 3–5 are always unsigned. `None` for SipHash (6, encrypted case-folded directories) and beyond.
    pub const fn from_raw(version: u8, unsigned: bool) -> Option<Self> {
        Some(match (version, unsigned) {
            (0, false) => Self::Legacy,
            (1, false) => Self::HalfMd4,
            (2, false) => Self::Tea,
            (0, true) | (3, _) => Self::LegacyUnsigned,
            (1, true) | (4, _) => Self::HalfMd4Unsigned,
            (2, true) | (5, _) => Self::TeaUnsigned,
            _ => return None,
        })
    }

    /// Returns the number to store in a `dx_root`: 0–2, because the superblock stores the signedness.
    pub const fn stored(self) -> u8 {
        self as u8 % 3
    }

    /// Returns whether bytes of names are hashed as unsigned.
    pub const fn is_unsigned(self) -> bool {
        self as u8 >= 3
    }
}

/// Hashes names with one version and one seed.
///
/// ```
/// use ext4_format::hash::DirHasher;
/// let h = DirHasher::new(1, false, [0; 4]).unwrap();
/// let (major, _minor) = h.hash(b"lost+found");
/// assert_eq!(major & 1, 0); // the low bit marks collisions in the htree
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirHasher {
    version: HashVersion,
    /// Names are folded before they are hashed.
    folds: bool,
    /// How a short name is hashed.
    short: Short,
    init: [u32; 4],
}

/// How names of one piece are hashed: one look tells for nearly all directories and names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Short {
    /// By half-MD4 over signed bytes, at once.
    HalfMd4,
    /// By half-MD4 over unsigned bytes, at once.
    HalfMd4Unsigned,
    /// Like long names.
    Long,
}

impl Short {
    const fn of(version: HashVersion, folds: bool) -> Self {
        match version {
            HashVersion::HalfMd4 if !folds => Self::HalfMd4,
            HashVersion::HalfMd4Unsigned if !folds => Self::HalfMd4Unsigned,
            _ => Self::Long,
        }
    }
}

/// The 32-bit htree cursor for "end of directory": no name may hash to it.
const HTREE_EOF: u32 = 0xffff_fffe;
/// MD4's initial state, the default seed of a volume.
const DEFAULT_SEED: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];

impl DirHasher {
    /// Creates a hasher for the stored `version`; `unsigned` is the superblock's flag and `seed` its hash seed (all
    /// zero: the default seed).
    ///
    /// # Errors
    /// `Incompatible` for a version this crate does not know.
    pub fn new(version: u8, unsigned: bool, seed: [u32; 4]) -> Result<Self> {
        HashVersion::from_raw(version, unsigned)
            .map(|v| Self::with_version(v, seed))
            .ok_or_else(|| FormatError::Incompatible(format!("directory hash version {version}")))
    }

    /// Returns a hasher for a known version.
    pub const fn with_version(version: HashVersion, seed: [u32; 4]) -> Self {
        let given = seed[0] | seed[1] | seed[2] | seed[3] != 0;
        Self {
            version,
            folds: false,
            short: Short::of(version, false),
            init: if given { seed } else { DEFAULT_SEED },
        }
    }

    /// Returns the hasher of a directory with this comparison: if it folds case, the [key](Comparison::key) of a name
    /// is hashed.
    ///
    /// ```
    /// use ext4_format::{fold::Comparison, hash::DirHasher};
    /// let exact = DirHasher::new(1, false, [0; 4]).unwrap();
    /// let folded = exact.comparing(Comparison::Folded);
    /// assert_eq!(folded.hash(b"Makefile"), exact.hash(b"makefile"));
    /// ```
    #[must_use]
    pub const fn comparing(self, compared: Comparison) -> Self {
        let folds = compared.folds();
        Self {
            folds,
            short: Short::of(self.version, folds),
            ..self
        }
    }

    /// Returns the hasher with another version of the hash.
    #[must_use]
    pub const fn at_version(self, version: HashVersion) -> Self {
        Self {
            version,
            short: Short::of(version, self.folds),
            ..self
        }
    }

    /// Returns the version in use.
    pub const fn version(&self) -> HashVersion {
        self.version
    }

    /// Returns the (major, minor) hash of a name. The htree is ordered by major; minor only refines the cookie.
    #[inline]
    pub fn hash(&self, name: &[u8]) -> (u32, u32) {
        match (self.short, name.len()) {
            (Short::HalfMd4, 1..=32) => self.half_md4_once::<false>(name),
            (Short::HalfMd4Unsigned, 1..=32) => self.half_md4_once::<true>(name),
            _ => self.hash_any(name),
        }
    }

    /// Hashes the names of many things, and gives each thing its (major, minor) hash. Eight short names take about as
    /// long as two.
    ///
    /// ```
    /// use ext4_format::hash::DirHasher;
    /// let h = DirHasher::new(1, false, [0; 4]).unwrap();
    /// let mut names = [("a", 0), ("b", 0), ("c", 0)];
    /// h.hash_each(&mut names, |(name, _)| name.as_bytes(), |(_, hash), (major, _)| *hash = major);
    /// assert_eq!(names[2].1, h.hash(b"c").0);
    /// ```
    pub fn hash_each<'n, T>(
        &self,
        things: &mut [T],
        name: impl Fn(&T) -> &'n [u8],
        mut put: impl FnMut(&mut T, (u32, u32)),
    ) {
        let (eights, rest) = things.as_chunks_mut::<AT_ONCE>();
        for eight in eights {
            let names = eight.each_ref().map(&name);
            let short = names.iter().all(|name| matches!(name.len(), 1..=32));
            let hashes = match self.short {
                Short::HalfMd4 if short => self.half_md4_many::<false>(&names),
                Short::HalfMd4Unsigned if short => self.half_md4_many::<true>(&names),
                _ => names.map(|name| self.hash(name)),
            };
            for (thing, hash) in eight.iter_mut().zip(hashes) {
                put(thing, hash);
            }
        }
        for thing in rest {
            let hash = self.hash(name(thing));
            put(thing, hash);
        }
    }

    #[inline(never)]
    fn half_md4_many<const U: bool>(&self, names: &[&[u8]; AT_ONCE]) -> [(u32, u32); AT_ONCE] {
        let mut input = [Vector::of(0); 8];
        for (n, name) in names.iter().enumerate() {
            for (word, of_name) in input.iter_mut().zip(words::<8, U>(name)) {
                word.0[n] = of_name;
            }
        }
        let mut state = self.init.map(Vector::of);
        half_md4::compress(&mut state, &input);
        std::array::from_fn(|n| Self::place(state[1].0[n], state[2].0[n]))
    }

    /// Returns the half-MD4 of a name of one piece, which is the usual case.
    #[inline(never)]
    fn half_md4_once<const U: bool>(&self, name: &[u8]) -> (u32, u32) {
        let mut state = self.init;
        half_md4::compress(&mut state, &words::<8, U>(name));
        Self::place(state[1], state[2])
    }

    #[cold]
    #[inline(never)]
    fn hash_folded(&self, name: &[u8]) -> (u32, u32) {
        self.comparing(Comparison::Exact).hash(&fold::key(name))
    }

    #[inline(never)]
    fn hash_any(&self, name: &[u8]) -> (u32, u32) {
        if self.folds {
            return self.hash_folded(name);
        }
        let (major, minor) = match self.version {
            HashVersion::Legacy => (legacy::<false>(name), 0),
            HashVersion::LegacyUnsigned => (legacy::<true>(name), 0),
            HashVersion::HalfMd4 => self.half_md4::<false>(name),
            HashVersion::HalfMd4Unsigned => self.half_md4::<true>(name),
            HashVersion::Tea => self.tea::<false>(name),
            HashVersion::TeaUnsigned => self.tea::<true>(name),
        };
        Self::place(major, minor)
    }

    /// Clears the bit that marks collisions, and moves the hash of the directory's end to the largest valid one.
    #[inline(always)]
    fn place(major: u32, minor: u32) -> (u32, u32) {
        match major & !1 {
            HTREE_EOF => (HTREE_EOF - 2, minor),
            major => (major, minor),
        }
    }

    fn half_md4<const U: bool>(&self, name: &[u8]) -> (u32, u32) {
        let mut state = self.init;
        let mut rest = name;
        while !rest.is_empty() {
            half_md4::compress(&mut state, &words::<8, U>(rest));
            rest = rest.get(32..).unwrap_or(&[]);
        }
        (state[1], state[2])
    }

    fn tea<const U: bool>(&self, name: &[u8]) -> (u32, u32) {
        let mut state = [self.init[0], self.init[1]];
        let mut rest = name;
        while !rest.is_empty() {
            tea_round(&mut state, &words::<4, U>(rest));
            rest = rest.get(16..).unwrap_or(&[]);
        }
        (state[0], state[1])
    }
}

/// Returns a name byte as the word it contributes.
#[inline(always)]
const fn widen<const U: bool>(byte: u8) -> u32 {
    if U {
        byte as u32
    } else {
        byte as i8 as i32 as u32
    }
}

fn legacy<const U: bool>(name: &[u8]) -> u32 {
    let (mut last, mut before) = (0x12a3_fe2d_u32, 0x37ab_e8f9_u32);
    for &byte in name {
        let mixed = last ^ widen::<U>(byte).wrapping_mul(7_152_373);
        let mut h = before.wrapping_add(mixed);
        if h & 0x8000_0000 != 0 {
            h = h.wrapping_sub(0x7fff_ffff);
        }
        (before, last) = (last, h);
    }
    last << 1
}

/// Returns the first `N` words of the rest of a name, big-endian, padded with its length.
#[inline(always)]
fn words<const N: usize, const U: bool>(rest: &[u8]) -> [u32; N] {
    // The length is that of the whole rest, not of this piece; a name has at most 255 bytes.
    let len = rest.len() as u32;
    let pad = len.wrapping_mul(0x0101_0101);
    let piece = &rest[..rest.len().min(4 * N)];
    let mut out = [pad; N];
    // Without a sign bit the sum is plain big-endian, and the padding applies to each byte.
    let (fours, tail) = piece.as_chunks::<4>();
    let mut signs = 0;
    for (word, four) in out.iter_mut().zip(fours) {
        *word = u32::from_be_bytes(*four);
        signs |= *word;
    }
    if !tail.is_empty()
        && let Some(word) = out.get_mut(fours.len())
    {
        let bits = 8 * tail.len() as u32;
        let bytes = match piece.last_chunk::<4>() {
            Some(four) => u32::from_be_bytes(*four) & ((1 << bits) - 1),
            None => tail.iter().fold(0, |w, &byte| w << 8 | u32::from(byte)),
        };
        *word = pad << bits | bytes;
        signs |= bytes;
    }
    if !U && signs & 0x8080_8080 != 0 {
        sum_signed(&mut out, pad, piece);
    }
    out
}

/// Computes the words of bytes of which some have a sign.
#[cold]
#[inline(never)]
fn sum_signed(out: &mut [u32], pad: u32, piece: &[u8]) {
    for (word, chunk) in out.iter_mut().zip(piece.chunks(4)) {
        *word = chunk
            .iter()
            .fold(pad, |w, &b| (w << 8).wrapping_add(widen::<false>(b)));
    }
}

/// Adds sixteen cycles of TEA with the name as key to the state.
#[inline(always)]
fn tea_round(state: &mut [u32; 2], key: &[u32; 4]) {
    const DELTA: u32 = 0x9e37_79b9;
    let mix = |v: u32, sum: u32, k0: u32, k1: u32| {
        (v << 4).wrapping_add(k0) ^ v.wrapping_add(sum) ^ (v >> 5).wrapping_add(k1)
    };
    let [mut y, mut z] = *state;
    let mut sum = 0_u32;
    for _ in 0..16 {
        sum = sum.wrapping_add(DELTA);
        y = y.wrapping_add(mix(z, sum, key[0], key[1]));
        z = z.wrapping_add(mix(y, sum, key[2], key[3]));
    }
    state[0] = state[0].wrapping_add(y);
    state[1] = state[1].wrapping_add(z);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::process::Command;

    const SEED_UUID: &str = "6fbd4e8a-1c3d-4a59-9c1e-0123456789ab";

    fn seed() -> [u32; 4] {
        let hex: String = SEED_UUID.chars().filter(|c| *c != '-').collect();
        std::array::from_fn(|i| {
            u32::from_str_radix(&hex[i * 8..i * 8 + 8], 16)
                .unwrap()
                .swap_bytes()
        })
    }

    /// Returns the hash by debugfs: `debugfs dx_hash` prints "Hash of NAME is 0x… (minor 0x…)".
    fn oracle(version: u8, seeded: bool, name: &[u8]) -> Option<(u32, u32)> {
        let mut request = format!("dx_hash -h {version} ").into_bytes();
        if seeded {
            request.extend(format!("-s {SEED_UUID} ").into_bytes());
        }
        request.extend(name);
        let out = Command::new("debugfs")
            .arg("-R")
            .arg(OsStr::from_bytes(&request))
            .output();
        let out = match out {
            Ok(out) => out.stdout,
            Err(e) if std::env::var_os("CI").is_some() => panic!("debugfs is needed: {e}"),
            Err(_) => return None,
        };
        let tail = &out[out.windows(5).rposition(|w| w == b" is 0").unwrap()..];
        let text = String::from_utf8_lossy(tail);
        let mut hex = text.split("0x").skip(1).map(|s| {
            let end = s.find(|c: char| !c.is_ascii_hexdigit()).unwrap();
            u32::from_str_radix(&s[..end], 16).unwrap()
        });
        Some((hex.next().unwrap(), hex.next().unwrap()))
    }

    #[test]
    fn agrees_with_debugfs() {
        let long: Vec<u8> = (0..255_u32).map(|i| b'a' + (i * 7 % 26) as u8).collect();
        let high: Vec<u8> = (0..70_u32).map(|i| 0x80 + (i * 37 % 120) as u8).collect();
        let mut names: Vec<&[u8]> = vec![b"a", b"abc", b"abcd", b"lost+found", "grün-ß".as_bytes()];
        names.extend([
            &long[..15],
            &long[..16],
            &long[..17],
            &long[..31],
            &long[..32],
            &long[..33],
        ]);
        names.extend([
            &long[..],
            &high[..1],
            &high[..3],
            &high[..4],
            &high[..33],
            &high[..],
        ]);
        for version in 0..=5 {
            for seeded in [false, true] {
                let h =
                    DirHasher::new(version, false, if seeded { seed() } else { [0; 4] }).unwrap();
                for name in &names {
                    let Some(expected) = oracle(version, seeded, name) else {
                        return;
                    };
                    assert_eq!(
                        h.hash(name),
                        expected,
                        "version {version} seeded {seeded} {name:?}"
                    );
                }
            }
        }
    }

    /// Names of all lengths, some of them with signs, in any number.
    #[test]
    fn many_names_hash_as_each_does() {
        let name = |n: usize| -> Vec<u8> {
            (0..n % 41)
                .map(|i| ((n * 31 + i * 7) % 251) as u8 | 1)
                .collect()
        };
        let short = |n: usize| format!("file.{}", n * n).into_bytes();
        for version in 0..=5 {
            let h = DirHasher::new(version, false, seed()).unwrap();
            for count in (0..50).chain([400]) {
                for name in [&name as &dyn Fn(usize) -> Vec<u8>, &short] {
                    let names: Vec<_> = (0..count).map(name).collect();
                    let mut all: Vec<_> = names.iter().map(|name| (&name[..], None)).collect();
                    h.hash_each(
                        &mut all,
                        |thing| thing.0,
                        |thing, hash| thing.1 = Some(hash),
                    );
                    for (name, hash) in all {
                        assert_eq!(hash, Some(h.hash(name)), "{version} {name:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn empty_names_and_unknown_versions() {
        for v in 0..=5 {
            let _ = DirHasher::new(v, false, [0; 4]).unwrap().hash(b"");
        }
        assert!(matches!(
            DirHasher::new(6, false, [0; 4]),
            Err(FormatError::Incompatible(_))
        ));
    }
}
