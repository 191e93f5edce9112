//! Comparison of superblocks and group descriptors, field by field, like `extant inspect` shows them.

use super::{Change, Difference, Sink, note};
use crate::commands::inspect::text;
use anyhow::{Result, anyhow};
use extant_check::inspect::{Inspector, Record, Request};
use extant_cli_core::image::images;
use std::path::Path;

/// Requests, and the name of a record of each.
const REQUESTS: [(&str, &str); 2] = [("superblock", "superblock"), ("groups", "group")];

pub(super) fn compare(a: &Path, b: &Path, sink: &mut Sink) -> Result<()> {
    let (device_a, device_b) = (images::device(a)?, images::device(b)?);
    let inspector = |device| Inspector::open(device, !images::journals_are_left());
    let (inspector_a, inspector_b) = (inspector(&device_a)?, inspector(&device_b)?);
    for (request, what) in REQUESTS {
        let request = Request::from_line(request.as_bytes())?;
        let records = |inspector: &Inspector<'_>| -> Result<Vec<Record>> {
            let mut records = Vec::new();
            let answered = inspector.answer(&request, &mut |record| {
                records.push(record);
                Ok(())
            });
            answered.map_err(|e| anyhow!("{e}"))?;
            Ok(records)
        };
        let (of_a, of_b) = (records(&inspector_a)?, records(&inspector_b)?);
        compare_records(what, &of_a, &of_b, sink)?;
    }
    Ok(())
}

/// Compares the records of one request, one by one. Each field of a superblock is a record.
fn compare_records(what: &str, a: &[Record], b: &[Record], sink: &mut Sink) -> Result<()> {
    for i in 0..a.len().max(b.len()) {
        let place = |record: &Record| {
            let named = record
                .fields
                .iter()
                .find(|(name, _)| matches!(*name, "field" | "group" | "of"));
            match named {
                Some((_, value)) => format!("{what} {}", text(value)),
                None => what.to_owned(),
            }
        };
        match (a.get(i), b.get(i)) {
            (Some(only), None) => sink.add(Difference::only(place(only), Change::Removed))?,
            (None, Some(only)) => sink.add(Difference::only(place(only), Change::Added))?,
            (Some(a), Some(b)) => {
                let mut fields = Vec::new();
                for ((name, in_a), (_, in_b)) in a.fields.iter().zip(&b.fields) {
                    note(&mut fields, name, text(in_a), text(in_b), String::clone);
                }
                if let Some(difference) = Difference::changed(place(a), fields) {
                    sink.add(difference)?;
                }
            }
            (None, None) => {}
        }
    }
    Ok(())
}
