//! Looking inside an image: its structures on the device, each field with its value, each checksum verified.
//!
//! An answer is a stream of [`Record`]s, so that it takes no memory that grows with the image. Damage ends an answer
//! only if it must: otherwise it becomes a record among the others. `request.rs` has the list of requests, and the
//! other files answer them:
//!
//! | file | subject |
//! |---|---|
//! | `groups` | the superblock, descriptors and bitmaps |
//! | `inode` | inodes and their mappings |
//! | `names`, `values` | names in directories, extended attributes, values of attributes in inodes |
//! | `owners` | the inodes of blocks, and the paths of inodes |
//! | `freefrag`, `journal` | free runs; transactions |
//! | `dump`, `fields` | blocks decoded by their type; fields of structures |
//!
//! ```no_run
//! use extant_check::blockdev::{Access, FileDevice};
//! use extant_check::inspect::{Inspector, Request};
//! let device = FileDevice::open("disk.img", Access::ReadOnly)?;
//! let inspector = Inspector::open(&device, true)?;
//! let request = Request::from_line(b"stat /etc/passwd")?;
//! inspector.answer(&request, &mut |record| {
//!     println!("{record:?}");
//!     Ok(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod dump;
mod fields;
mod freefrag;
mod groups;
mod inode;
mod journal;
mod names;
mod owners;
mod record;
mod request;
mod values;

pub use fields::{FieldPlace, Structure, field_place, fields_of};
pub use record::{Layout, Record, Value};
pub use request::Request;

use crate::error::Error;
use crate::options::CheckOptions;
use crate::report::{Finding, FindingPlace, Findings, Rule};
use crate::volume::Volume;
use blockdev::BlockDevice;
use ext4_format::superblock::RawSuperblock;
use ext4_format::{BlockNr, FormatError};
use std::io;

/// Why a request has no answer, or no whole one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// The request cannot be understood.
    #[error("{0}")]
    Request(String),
    /// The image has nothing of that name or number, or it cannot be read.
    #[error("{0}")]
    Missing(String),
    /// The answer could not be written.
    #[error(transparent)]
    Output(#[from] io::Error),
}

/// Receiver of an answer, record by record.
pub type Sink<'s> = dyn FnMut(Record) -> io::Result<()> + 's;

type Answered = Result<(), InspectError>;

/// Maximum of findings in one answer; further damage is only counted.
const MAX_FINDINGS: usize = 1000;

/// An image to inspect.
pub struct Inspector<'d> {
    volume: Volume<'d>,
    opening: Vec<Finding>,
}

impl std::fmt::Debug for Inspector<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let geometry = &self.volume.geo;
        f.debug_struct("Inspector")
            .field("blocks", &geometry.blocks_count)
            .finish_non_exhaustive()
    }
}

impl<'d> Inspector<'d> {
    /// Opens an image. With `replay` an image with a pending journal appears as after the replay, as far as the
    /// journal can be read; nothing is written.
    ///
    /// # Errors
    /// [`Error`] if no superblock gives the places of the other structures.
    pub fn open(device: &'d dyn BlockDevice, replay: bool) -> Result<Self, Error> {
        let findings = Findings::new(MAX_FINDINGS);
        let mut volume = open_volume(device, &findings)?;
        let options = CheckOptions {
            replay,
            ..CheckOptions::default()
        };
        if let Err(e) = crate::journal::check(&mut volume, &options, &findings) {
            // The superblock in the journal is damaged; the one on the device is not.
            findings.add(Rule::Journal, FindingPlace::default(), || e.to_string());
            volume = open_volume(device, &Findings::new(0))?;
        }
        Ok(Self {
            volume,
            opening: findings.finish().0,
        })
    }

    /// Returns the findings of opening the image.
    pub fn findings(&self) -> &[Finding] {
        &self.opening
    }

    /// Answers a request.
    ///
    /// # Errors
    /// [`InspectError`]. Damage that does not end the answer is a record instead of an error.
    pub fn answer(&self, request: &Request, sink: &mut Sink<'_>) -> Answered {
        request.answer(self, sink)
    }

    /// Sends the verdict on a structure's checksum if the volume has `metadata_csum`.
    fn judge(
        &self,
        of: &str,
        verified: Result<(), FormatError>,
        sink: &mut Sink<'_>,
    ) -> io::Result<()> {
        let has_sums = self.volume.geo.features.has_metadata_csum();
        record::judge(of, has_sums.then_some(verified), sink)
    }

    /// Reads a block.
    fn block(&self, block: BlockNr) -> Result<Vec<u8>, InspectError> {
        let missing = |why: &dyn std::fmt::Display| {
            InspectError::Missing(format!("block {block} cannot be read: {why}"))
        };
        if block.0 >= self.volume.geo.blocks_count {
            return Err(missing(&"it is beyond the volume's end"));
        }
        self.volume.read(block).map_err(|e| missing(&e))
    }
}

/// Opens a volume, if need be with a superblock whose checksum is wrong.
fn open_volume<'d>(device: &'d dyn BlockDevice, findings: &Findings) -> Result<Volume<'d>, Error> {
    let error = match Volume::open(device, findings) {
        Err(Error::NoSuperblock(error @ FormatError::Checksum { .. })) => error,
        done => return done,
    };
    let bytes = ext4_image::superblock_bytes(device).map_err(Error::Io)?;
    let sb = RawSuperblock::resealed(&bytes);
    let sb = sb.ok_or_else(|| Error::NoSuperblock(error.clone()))?;
    findings.add_error(Rule::Superblock, FindingPlace::default(), &error);
    Volume::of(device, sb)
}
