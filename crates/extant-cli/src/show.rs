//! Names, times, modes and sizes as people read them.

use extant::{FileType, Timestamp};

/// A path for people: control characters and bytes that are not UTF-8 are escaped, so that no name can
/// write to the terminal.
pub fn show(path: &[u8]) -> String {
    let mut out = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() {
                out.extend(c.escape_default())
            } else {
                out.push(c)
            }
        }
        for b in chunk.invalid() {
            out.push_str(&format!("\\x{b:02x}"));
        }
    }
    out
}

/// Year, month and day of a count of days since 1970 (proleptic Gregorian).
fn civil(days: i64) -> (i64, u32, u32) {
    // Years begin in March here, so that a leap day is the last of its year.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (year_of_era + era * 400 + carry, month as u32, day as u32)
}

/// `2026-01-31 12:34:56`, in UTC.
pub fn time(t: Timestamp) -> String {
    let (y, m, d) = civil(t.secs.div_euclid(86_400));
    let s = t.secs.rem_euclid(86_400);
    format!(
        "{y:04}-{m:02}-{d:02} {:02}:{:02}:{:02}",
        s / 3600,
        s / 60 % 60,
        s % 60
    )
}

/// The same with nanoseconds.
pub fn time_ns(t: Timestamp) -> String {
    format!("{}.{:09} UTC", time(t), t.nanos)
}

/// The letter of a type, as `ls -l` shows it.
pub fn type_letter(kind: FileType) -> char {
    match kind {
        FileType::Regular => '-',
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::CharDevice => 'c',
        FileType::BlockDevice => 'b',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
    }
}

/// The name of a type.
pub fn type_name(kind: FileType) -> &'static str {
    match kind {
        FileType::Regular => "regular file",
        FileType::Directory => "directory",
        FileType::Symlink => "symbolic link",
        FileType::CharDevice => "character device",
        FileType::BlockDevice => "block device",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
    }
}

/// `drwxr-xr-x`.
pub fn mode(kind: FileType, mode: u32) -> String {
    let mut out = String::from(type_letter(kind));
    for (shift, special, set, unset) in [
        (6, 0o4000, 's', 'S'),
        (3, 0o2000, 's', 'S'),
        (0, 0o1000, 't', 'T'),
    ] {
        let bits = mode >> shift;
        out.push(if bits & 4 != 0 { 'r' } else { '-' });
        out.push(if bits & 2 != 0 { 'w' } else { '-' });
        out.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => set,
            (true, false) => unset,
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    out
}

/// Bytes in powers of 1024, rounded up as `df -h` does: `4.0K`, `17M`.
pub fn human(bytes: u64) -> String {
    if bytes < 1024 {
        return bytes.to_string();
    }
    let mut value = bytes as f64;
    let mut unit = ' ';
    for next in ['K', 'M', 'G', 'T', 'P', 'E'] {
        if value < 1023.5 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if value < 9.95 {
        format!("{:.1}{unit}", (value * 10.0).ceil() / 10.0)
    } else {
        format!("{:.0}{unit}", value.ceil())
    }
}

/// A rate in short: `1.25 M`, `87.3 k`, `950`.
pub fn rate(per_second: f64) -> String {
    match per_second {
        r if r >= 1e6 => format!("{:.2} M", r / 1e6),
        r if r >= 1e3 => format!("{:.1} k", r / 1e3),
        r => format!("{r:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let at = |secs| time(Timestamp { secs, nanos: 0 });
        assert_eq!(at(0), "1970-01-01 00:00:00");
        assert_eq!(at(951_782_400), "2000-02-29 00:00:00");
        assert_eq!(at(-1), "1969-12-31 23:59:59");
        assert_eq!(at(Timestamp::MAX_SECS), "2446-05-10 22:38:55");
    }

    #[test]
    fn sizes_modes_names() {
        assert_eq!(human(1023), "1023");
        assert_eq!(human(4096), "4.0K");
        assert_eq!(human(1 << 40), "1.0T");
        assert_eq!(mode(FileType::Directory, 0o041_777), "drwxrwxrwt");
        assert_eq!(mode(FileType::Regular, 0o104_644), "-rwSr--r--");
        assert_eq!(show(b"a\x1b[2J\xffb"), "a\\u{1b}[2J\\xffb");
    }
}
