//! Stamps: the content of a cell identifies the write that it came from.

/// Bytes of a cell: the grain at which contents are judged. Sizes and offsets of programs are multiples of it.
pub const CELL: u64 = 64;

/// A stamp, as the model keeps it: the number of the write and the cell it was written to. 0 is a cell of zeros.
pub type Value = u64;

const MAGIC: u32 = 0x5ea1_ed01;

/// The value that write number `write` leaves in cell number `cell`.
pub fn value(write: u32, cell: u64) -> Value {
    u64::from(write) << 32 | (cell & 0xffff_ffff)
}

/// The text that a failed test prints for a value.
pub fn describe(value: Option<Value>) -> String {
    match value {
        None => "bytes that are no stamp".into(),
        Some(0) => "zeros".into(),
        Some(v) if v >> 32 == u64::from(u32::MAX) => "what a free block held".into(),
        Some(v) => format!("write {} of cell {}", v >> 32, v & 0xffff_ffff),
    }
}

fn sixteen(value: Value) -> [u8; 16] {
    let mut bytes = [0; 16];
    if value != 0 {
        bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..12].copy_from_slice(&value.to_le_bytes());
        bytes[12..].copy_from_slice(&(mix(value) as u32).to_le_bytes());
    }
    bytes
}

fn mix(value: u64) -> u64 {
    let z = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The bytes of cells with these values.
pub fn bytes(values: impl IntoIterator<Item = Value>) -> Vec<u8> {
    let cells = values.into_iter();
    cells.flat_map(|v| sixteen(v).repeat(4)).collect()
}

/// The bytes that write number `write` puts into cells `cells`.
pub fn fill(write: u32, cells: std::ops::Range<u64>) -> Vec<u8> {
    bytes(cells.map(|c| value(write, c)))
}

/// Returns the value of a cell, or `None` if the bytes are not a whole stamp.
pub fn parse(cell: &[u8]) -> Option<Value> {
    let first = cell.get(..16)?;
    let whole = cell.chunks(16).all(|part| part == &first[..part.len()]);
    let number = u64::from_le_bytes(first[4..12].try_into().ok()?);
    (whole && first == sixteen(number)).then_some(number)
}
