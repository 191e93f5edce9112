//! The parts of an answer.

use crate::report::{Findings, in_short};
use ext4_format::FormatError;
use std::io;

/// A value of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Value {
    /// Nothing: a hole, a number that is not known.
    Nothing,
    /// Yes or no.
    Is(bool),
    /// A number that people read in decimal.
    Number(u64),
    /// A number that people read in hexadecimal: flags, checksums, hashes.
    Hex(u64),
    /// A mode, which people read in octal.
    Octal(u64),
    /// Seconds since 1970.
    Time(i64),
    /// Words of this crate.
    Text(String),
    /// Bytes of the image that are a name or a label, in any encoding.
    Name(Vec<u8>),
    /// Other bytes of the image.
    Bytes(Vec<u8>),
}

impl Value {
    /// Creates a value from text.
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// Creates a value from a number, or an empty one.
    pub(super) fn number(number: Option<impl Into<u64>>) -> Self {
        number.map_or(Self::Nothing, |n| Self::Number(n.into()))
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

/// How people read a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Layout {
    /// Alone: a line for each field.
    Lines,
    /// A row of a table of records of the same kind.
    Row,
}

/// A part of an answer: fields with their values.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record {
    /// The kind, for programs: records of one kind have the same fields.
    pub kind: &'static str,
    /// How people read it.
    pub layout: Layout,
    /// The fields, in their order.
    pub fields: Vec<(&'static str, Value)>,
}

impl Record {
    pub(super) fn row(kind: &'static str, fields: Vec<(&'static str, Value)>) -> Self {
        Self {
            kind,
            layout: Layout::Row,
            fields,
        }
    }

    pub(super) fn lines(kind: &'static str, fields: Vec<(&'static str, Value)>) -> Self {
        Self {
            kind,
            layout: Layout::Lines,
            fields,
        }
    }

    /// Creates a record for a request without anything to show.
    pub(super) fn note(text: &str) -> Self {
        Self::lines("note", vec![("note", Value::text(text))])
    }

    /// Creates a record for damage.
    pub(super) fn problem(text: impl Into<String>) -> Self {
        Self::lines("problem", vec![("problem", Value::text(text))])
    }

    /// Creates a record of a verified checksum; of damage, if the structure lacks a place for one. `None` for a
    /// structure without checksums.
    pub(super) fn checksum(of: &str, verified: Option<Result<(), FormatError>>) -> Option<Self> {
        let verdict = match verified? {
            Ok(()) => Value::text("right"),
            Err(e) => Value::text(format!("wrong: {}", in_short(&e))),
        };
        let fields = vec![("of", Value::text(of)), ("checksum", verdict)];
        Some(Self::lines("checksum", fields))
    }
}

/// Sends the damage that a walk met.
pub(super) fn send_findings(findings: Findings, sink: &mut super::Sink<'_>) -> io::Result<()> {
    let (all, faults, notes) = findings.finish();
    let more = (faults + notes).saturating_sub(all.len() as u64);
    for finding in all {
        sink(Record::problem(finding.to_string()))?;
    }
    if more > 0 {
        sink(Record::problem(format!("and {more} more")))?;
    }
    Ok(())
}

/// Sends the judgement of a checksum, if there is one.
pub(super) fn judge(
    of: &str,
    verified: Option<Result<(), FormatError>>,
    sink: &mut super::Sink<'_>,
) -> io::Result<()> {
    match Record::checksum(of, verified) {
        Some(record) => sink(record),
        None => Ok(()),
    }
}
