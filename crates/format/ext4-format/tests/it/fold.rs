//! Hashes of names in directories that fold case, compared with those of debugfs, which has the kernel's tables.

use ext4_format::fold::Comparison;
use ext4_format::hash::DirHasher;
use std::io::Write;
use std::process::{Command, Stdio};

/// Returns debugfs' hash of each name; names without a hash are left out.
fn judge(names: &[Vec<u8>]) -> Vec<(Vec<u8>, (u32, u32))> {
    let mut commands = Vec::new();
    for name in names {
        commands.extend(b"dx_hash -c -e utf8-12.1 -h half_md4 ");
        commands.extend(name);
        commands.push(b'\n');
    }
    let mut child = Command::new("debugfs")
        .args(["-f", "/dev/stdin"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(&commands));
    let out = child.wait_with_output().unwrap().stdout;
    writer.join().unwrap().unwrap();
    let lines = out.split(|&b| b == b'\n');
    let hashes = lines.filter_map(|line| {
        let rest = line.strip_prefix(b"Hash of ")?;
        let end = rest.windows(6).rposition(|w| w == b" is 0x")?;
        let (name, said) = rest.split_at(end);
        let said = str::from_utf8(said).unwrap().replace(['(', ')'], "");
        let mut hex = said.split("0x").skip(1).map(|s| {
            let digits = s.split(' ').next().unwrap();
            u32::from_str_radix(digits, 16).unwrap()
        });
        Some((name.to_vec(), (hex.next().unwrap(), hex.next().unwrap())))
    });
    hashes.collect()
}

fn agree(names: &[Vec<u8>]) {
    let exact = DirHasher::new(1, false, [0; 4]).unwrap();
    let hasher = exact.comparing(Comparison::Folded);
    let judged = judge(names);
    assert_eq!(judged.len(), names.len(), "debugfs has all of them");
    for (name, said) in &judged {
        let shown = String::from_utf8_lossy(name);
        let shown = shown.escape_unicode();
        assert_eq!(hasher.hash(name), *said, "{shown}");
    }
}

#[test]
fn every_code_point_is_folded_as_e2fsprogs_does() {
    needs::tools!("debugfs");
    // Code points that Unicode may still assign, and a sample of the private ones.
    let planes = (0x80..0x3_2400).chain(0xe_0000..0xe_1000);
    let others = (0x3_2400..0x11_0000).step_by(0xfd);
    let names = planes.chain(others).filter_map(char::from_u32);
    // The marks behind the character are reordered, also with a character that is a mark itself.
    let names: Vec<_> = names
        .map(|c| format!("A{c}\u{301}\u{316}").into_bytes())
        .collect();
    agree(&names);
}

#[test]
fn mixed_names_are_folded_as_e2fsprogs_does() {
    needs::tools!("debugfs");
    const FROM: &[(u32, u32)] = &[
        (0x41, 0x5a),         // Latin
        (0x61, 0x7a),         // Latin
        (0xc0, 0x24f),        // Latin
        (0x300, 0x36f),       // marks
        (0x370, 0x3ff),       // Greek
        (0x400, 0x52f),       // Cyrillic
        (0x531, 0x587),       // Armenian
        (0x591, 0x5ea),       // Hebrew
        (0x610, 0x65f),       // Arabic
        (0x900, 0x9ff),       // Devanagari, Bengali
        (0xe31, 0xe4e),       // Thai
        (0xf71, 0xf84),       // Tibetan
        (0x10a0, 0x10ff),     // Georgian
        (0x1100, 0x11ff),     // parts of Hangul
        (0x13a0, 0x13ff),     // Cherokee
        (0x1ab0, 0x1abf),     // marks
        (0x1e00, 0x1fff),     // Latin, Greek
        (0x200b, 0x200f),     // ignored
        (0x2126, 0x2132),     // Kelvin, Angstrom
        (0x2160, 0x2188),     // Roman numbers
        (0x3099, 0x30ff),     // Kana
        (0xac00, 0xd7a3),     // Hangul
        (0xfb00, 0xfb4f),     // ligatures
        (0xfe00, 0xfe2f),     // ignored, marks
        (0x1_0400, 0x1_0427), // Deseret
        (0x1_d15e, 0x1_d1ad), // music
        (0x1_e900, 0x1_e94a), // Adlam
        (0x1_f600, 0x1_f64f), // faces
        (0x2_f800, 0x2_fa1d), // Han
        (0xe_0100, 0xe_01ef), // ignored
    ];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: u32| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as u32 % below
    };
    let mut names = Vec::new();
    for _ in 0..20_000 {
        let mut name = String::new();
        let most = 1 + random(255) as usize;
        let scripts: Vec<_> = (0..3).map(|_| FROM[random(30) as usize]).collect();
        for _ in 0..=random(60) {
            let (first, last) = scripts[random(3) as usize];
            let c = char::from_u32(first + random(last - first + 1)).unwrap();
            if name.len() + c.len_utf8() <= most {
                name.push(c);
            }
        }
        if !name.is_empty() {
            names.push(name.into_bytes());
        }
    }
    // Names whose folded form has three times their length, or is empty.
    names.push("\u{390}".repeat(127).into_bytes());
    names.push("\u{1d160}".repeat(63).into_bytes());
    names.push("\u{200b}".repeat(85).into_bytes());
    agree(&names);
}

#[test]
fn what_is_not_utf8_stands_for_itself() {
    needs::tools!("debugfs");
    let hasher = DirHasher::new(1, false, [0; 4]).unwrap();
    let names: [&[u8]; 6] = [
        b"A\xff",
        b"A\xc0\x80",
        b"A\xed\xa0\x80",
        b"A\xf4\x90\x80\x80",
        b"A\xe2\x82",
        b"\xc3A\xc3\x84",
    ];
    assert_eq!(judge(&names.map(<[u8]>::to_vec)), [], "no folded form");
    for name in names {
        assert_eq!(
            hasher.comparing(Comparison::Folded).hash(name),
            hasher.hash(name)
        );
    }
}
