//! Times as people write and read them: in the zone of TZ, or else that of the system, as in coreutils. Times for
//! programs are in UTC.

use anyhow::{Result, bail};
use extant::Timestamp;
use jiff::tz::{Offset, TimeZone};
use jiff::{Zoned, civil};
use serde::{Serialize, Serializer};
use std::fmt;
use std::sync::LazyLock;

static ZONE: LazyLock<TimeZone> = LazyLock::new(TimeZone::system);

fn zoned(t: Timestamp, zone: &TimeZone) -> Zoned {
    // The times of an inode (1901 to 2446) are well within the range of this calendar.
    let nanos = i32::try_from(t.nanos()).unwrap_or(0);
    let known = jiff::Timestamp::new(t.secs(), nanos).unwrap_or_default();
    known.to_zoned(zone.clone())
}

/// Formats like `2026-01-31 12:34:56`.
pub fn local(t: Timestamp) -> String {
    local_in(t, &ZONE)
}

fn local_in(t: Timestamp, zone: &TimeZone) -> String {
    zoned(t, zone).strftime("%F %T").to_string()
}

/// Formats like `Sat Jan 31 12:34:56 2026`, as in ctime(3).
pub fn as_ctime(t: Timestamp) -> String {
    zoned(t, &ZONE).strftime("%a %b %e %H:%M:%S %Y").to_string()
}

/// Formats like `31-Jan-2026 12:34`, as in listings of debugfs.
pub fn day_and_minute(t: Timestamp) -> String {
    zoned(t, &ZONE).strftime("%e-%b-%Y %H:%M").to_string()
}

/// Formats like `2026-01-31 12:34:56.000000789 +0100`.
pub fn local_ns(t: Timestamp) -> String {
    local_ns_in(t, &ZONE)
}

fn local_ns_in(t: Timestamp, zone: &TimeZone) -> String {
    zoned(t, zone).strftime("%F %T.%9f %z").to_string()
}

/// Formats like `2026-01-31T11:34:56.000000789Z`, for programs.
pub fn utc(t: Timestamp) -> String {
    let text = zoned(t, &TimeZone::fixed(Offset::UTC)).strftime("%FT%T.%9fZ");
    text.to_string()
}

/// An optional moment: for people in their zone, for programs in UTC, or null.
#[derive(Clone, Copy, Debug)]
pub struct Moment(pub Option<Timestamp>);

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.map_or_else(|| "never".into(), local))
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.map(utc).serialize(serializer)
    }
}

/// Parses seconds since 1970, with or without a leading `@`; or a date, with or without a time and a zone.
pub fn parse(text: &str) -> Result<Timestamp> {
    parse_in(text, &ZONE)
}

fn parse_in(text: &str, zone: &TimeZone) -> Result<Timestamp> {
    let seconds = text.strip_prefix('@').unwrap_or(text);
    if let Ok(secs) = seconds.parse::<i64>() {
        return checked(secs, 0);
    }
    let time = match text.parse::<jiff::Timestamp>() {
        Ok(time) => time,
        Err(_) => match text.parse::<civil::DateTime>() {
            Ok(date) => date.to_zoned(zone.clone())?.timestamp(),
            Err(_) => bail!(
                "{text} is not a time: write seconds since 1970, or 2026-01-31, \
                 '2026-01-31 12:34:56' or 2026-01-31T12:34:56Z"
            ),
        },
    };
    // Nanoseconds count forwards from the second below.
    let nanos = time.as_nanosecond();
    let secs = i64::try_from(nanos.div_euclid(1_000_000_000))?;
    checked(secs, u32::try_from(nanos.rem_euclid(1_000_000_000))?)
}

fn checked(secs: i64, nanos: u32) -> Result<Timestamp> {
    let time = Timestamp::new(secs, nanos);
    if time.secs() != secs {
        bail!(
            "an inode holds times from {} to {}",
            utc(Timestamp::new(i64::MIN, 0)),
            utc(Timestamp::new(i64::MAX, 0))
        );
    }
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(text: &str) -> TimeZone {
        TimeZone::posix(text).unwrap()
    }

    #[test]
    fn shown() {
        let india = zone("IST-5:30");
        let at = |secs| local_in(Timestamp::new(secs, 0), &india);
        assert_eq!(at(0), "1970-01-01 05:30:00");
        assert_eq!(at(951_782_400), "2000-02-29 05:30:00");
        assert_eq!(at(-1), "1970-01-01 05:29:59");
        let t = |secs, nanos| Timestamp::new(secs, nanos);
        assert_eq!(
            local_ns_in(t(0, 5), &india),
            "1970-01-01 05:30:00.000000005 +0530"
        );
        assert_eq!(utc(t(-1, 500_000_000)), "1969-12-31T23:59:59.500000000Z");
        assert_eq!(
            utc(t(Timestamp::MAX_SECS, 0)),
            "2446-05-10T22:38:55.000000000Z"
        );
    }

    #[test]
    fn read() {
        let india = zone("IST-5:30");
        let secs = |text: &str| {
            let t = parse_in(text, &india).unwrap();
            (t.secs(), t.nanos())
        };
        assert_eq!(secs("1700000000"), (1_700_000_000, 0));
        assert_eq!(secs("@-5"), (-5, 0));
        assert_eq!(secs("1970-01-01T00:00:01Z"), (1, 0));
        assert_eq!(secs("1970-01-01 00:00:01.25-01:00"), (3601, 250_000_000));
        assert_eq!(secs("1970-01-01 05:30:02"), (2, 0));
        assert_eq!(secs("1970-01-02"), (86_400 - 19_800, 0));
        assert_eq!(secs("1969-12-31T23:59:59.75Z"), (-1, 750_000_000));
        for bad in ["", "yesterday", "2026-13-01", "12:00", "3000-01-01", "@1.5"] {
            assert!(parse_in(bad, &india).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_shown_can_be_read() {
        let india = zone("IST-5:30");
        for t in [(0, 0), (1_700_000_000, 123_456_789), (-100, 1)] {
            let t = Timestamp::new(t.0, t.1);
            let shown = local_ns_in(t, &india).replacen(" +", "+", 1);
            assert_eq!(parse_in(&shown, &india).unwrap(), t, "{shown}");
            assert_eq!(parse_in(&utc(t), &india).unwrap(), t);
        }
    }
}
