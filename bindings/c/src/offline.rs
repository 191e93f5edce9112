//! Closed images: check, repair, resize and tune.

use crate::border::{Fail, call, known_flags, path, store, text};
use extant_offline::{Image, Writing};
use extant_resize::NewSize;
use extant_tune::TuneOptions;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::sync::atomic::AtomicBool;

const SAFE_ONLY: c_uint = 1;
const DRY_RUN: c_uint = 2;

/// The flag that ends a call; nothing sets it.
static NEVER: AtomicBool = AtomicBool::new(false);

#[repr(C)]
pub struct Finding {
    rule: *const c_char,
    text: *const c_char,
    block: u64,
    inode: u32,
    group: u32,
}

type OnFinding = unsafe extern "C" fn(*mut c_void, *const Finding);

#[repr(C)]
pub struct RepairResult {
    mends: u64,
    declined: u64,
    faults_before: u64,
    faults_after: u64,
}

#[repr(C)]
pub struct ResizeResult {
    old_blocks: u64,
    new_blocks: u64,
    moved_blocks: u64,
    bytes: u64,
    block_size: u32,
}

#[repr(C)]
pub struct TuneArguments {
    features: *const c_char,
    label: *const c_char,
    quota: *const c_char,
    mount_options: *const c_char,
    uuid: *const [u8; 16],
    reserved_percent: *const f64,
    journal_size: u64,
}

/// Returns a string without NUL bytes.
fn c_string(text: impl Into<String>) -> CString {
    CString::new(text.into().replace('\0', "?")).unwrap_or_default()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_check(
    at: *const c_char,
    on_finding: Option<OnFinding>,
    user: *mut c_void,
    faults: *mut u64,
) -> c_int {
    call(|| {
        // SAFETY: a string.
        let image = Image::open(unsafe { path(at)? }, true)?;
        let report = extant_offline::check(&image, &NEVER, &|_| ())?;
        for found in &report.findings {
            let Some(on_finding) = on_finding else { break };
            let (rule, text) = (c_string(found.rule.name()), c_string(found.to_string()));
            let finding = Finding {
                rule: rule.as_ptr(),
                text: text.as_ptr(),
                block: found.place.block.map_or(0, |block| block.0),
                inode: found.place.inode.map_or(0, |inode| inode.0),
                group: found.place.group.map_or(u32::MAX, |group| group.0),
            };
            // SAFETY: as the header asks for.
            unsafe { on_finding(user, &finding) };
        }
        // SAFETY: a place.
        unsafe { store(faults, report.faults) }
    })
}

/// Arguments that all changes have; `known` are the flags that the change takes.
///
/// # Safety
/// `at` is a string, `undo` a string or null.
unsafe fn change<'a>(
    at: *const c_char,
    (flags, known): (c_uint, c_uint),
    undo: *const c_char,
) -> Result<(Image, Writing<'a>), Fail> {
    known_flags(flags, known)?;
    let dry_run = flags & DRY_RUN != 0;
    // SAFETY: by the caller.
    let undo: Option<&Path> = if undo.is_null() {
        None
    } else {
        // SAFETY: by the caller.
        Some(unsafe { path(undo)? })
    };
    // SAFETY: by the caller.
    let image = Image::open(unsafe { path(at)? }, dry_run)?;
    Ok((image, Writing { dry_run, undo }))
}

/// # Safety
/// `place` is null or points to room for a `T`.
unsafe fn store_if<T>(place: *mut T, value: T) -> Result<(), Fail> {
    if place.is_null() {
        Ok(())
    } else {
        // SAFETY: by the caller.
        unsafe { store(place, value) }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_repair(
    at: *const c_char,
    flags: c_uint,
    undo: *const c_char,
    result: *mut RepairResult,
) -> c_int {
    call(|| {
        // SAFETY: strings.
        let (image, writing) = unsafe { change(at, (flags, SAFE_ONLY | DRY_RUN), undo)? };
        let plan =
            extant_offline::repair(&image, flags & SAFE_ONLY != 0, writing, &NEVER, &|_| ())?;
        let done = RepairResult {
            mends: plan.mends.len() as u64,
            declined: plan.declined.len() as u64,
            faults_before: plan.before.faults,
            faults_after: plan.after.faults,
        };
        // SAFETY: a place, or null.
        unsafe { store_if(result, done) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_resize(
    at: *const c_char,
    size: u64,
    flags: c_uint,
    undo: *const c_char,
    result: *mut ResizeResult,
) -> c_int {
    call(|| {
        let size = match size {
            0 => NewSize::Least,
            bytes => NewSize::Bytes(bytes),
        };
        // SAFETY: strings.
        let (image, writing) = unsafe { change(at, (flags, DRY_RUN), undo)? };
        let plan = extant_offline::resize(&image, size, writing, &NEVER)?;
        let done = ResizeResult {
            old_blocks: plan.old_blocks,
            new_blocks: plan.new_blocks,
            moved_blocks: plan.moved,
            bytes: plan.bytes(),
            block_size: plan.block_size,
        };
        // SAFETY: a place, or null.
        unsafe { store_if(result, done) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_tune(
    at: *const c_char,
    arguments: *const TuneArguments,
    flags: c_uint,
    undo: *const c_char,
    changes: *mut u64,
) -> c_int {
    call(|| {
        // SAFETY: the header asks for a structure, and for strings and values or null in it.
        let options = unsafe {
            let given = arguments.as_ref().ok_or(Fail::Null)?;
            let label = if given.label.is_null() {
                None
            } else {
                Some(text(given.label)?.into_bytes())
            };
            TuneOptions {
                features: text(given.features)?,
                label,
                quota: text(given.quota)?,
                mount_options: text(given.mount_options)?,
                uuid: given.uuid.as_ref().copied(),
                reserved_percent: given.reserved_percent.as_ref().copied(),
                journal: given.journal_size > 0,
                journal_mib: Some(given.journal_size >> 20).filter(|&size| size > 0),
                ..TuneOptions::default()
            }
        };
        // SAFETY: strings.
        let (image, writing) = unsafe { change(at, (flags, DRY_RUN), undo)? };
        let plan = extant_offline::tune(&image, options, writing, &NEVER)?;
        // SAFETY: a place, or null.
        unsafe { store_if(changes, plan.changes.len() as u64) }
    })
}
