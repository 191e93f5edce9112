//! Constants of the NBD protocol, for the client in this crate and for the server in `extant-remote`.
#![allow(missing_docs)] // the protocol defines the names

pub const OPT_MAGIC: u64 = 0x4948_4156_454F_5054;
pub const OPT_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
pub const OPT_EXPORT_NAME: u32 = 1;
pub const OPT_ABORT: u32 = 2;
pub const OPT_LIST: u32 = 3;
pub const OPT_STARTTLS: u32 = 5;
pub const OPT_INFO: u32 = 6;
pub const OPT_GO: u32 = 7;
pub const OPT_STRUCTURED_REPLY: u32 = 8;
pub const OPT_SET_META_CONTEXT: u32 = 10;
pub const OPT_EXTENDED_HEADERS: u32 = 11;
pub const REP_ACK: u32 = 1;
pub const REP_SERVER: u32 = 2;
pub const REP_INFO: u32 = 3;
pub const REP_META_CONTEXT: u32 = 4;
pub const REP_ERROR: u32 = 1 << 31;
pub const REP_ERR_UNSUP: u32 = REP_ERROR | 1;
pub const REP_ERR_INVALID: u32 = REP_ERROR | 3;
pub const REP_ERR_TLS_REQD: u32 = REP_ERROR | 5;
pub const REP_ERR_UNKNOWN: u32 = REP_ERROR | 6;
/// Name of the context that tells which ranges are allocated, and which are zeros.
pub const ALLOCATION: &[u8] = b"base:allocation";

pub const REQUEST_MAGIC: u32 = 0x2560_9513;
pub const SIMPLE_REPLY: u32 = 0x6744_6698;
pub const STRUCTURED_REPLY: u32 = 0x668e_33ef;
pub const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
pub const EXTENDED_REPLY: u32 = 0x6e8a_278c;
/// Flag of a reply's last chunk.
pub const LAST_CHUNK: u16 = 1;
pub const CHUNK_NONE: u16 = 0;
pub const CHUNK_OFFSET_DATA: u16 = 1;
pub const CHUNK_OFFSET_HOLE: u16 = 2;
pub const CHUNK_STATUS: u16 = 5;
pub const CHUNK_STATUS_EXTENDED: u16 = 6;
/// Flag of all kinds of chunks that are errors.
pub const CHUNK_ERROR: u16 = 1 << 15;
/// Flags of a range in the context of allocation.
pub const STATE_HOLE: u64 = 1;
pub const STATE_ZERO: u64 = 1 << 1;
pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const DISCONNECT: u16 = 2;
pub const FLUSH: u16 = 3;
pub const TRIM: u16 = 4;
pub const WRITE_ZEROES: u16 = 6;
pub const BLOCK_STATUS: u16 = 7;
/// Flag of a request: the write is durable when the reply is sent.
pub const FUA: u16 = 1;
/// Flag of a request with an extended header: the length is that of the data of the request.
pub const PAYLOAD_LEN: u16 = 1 << 5;

pub const FLAG_HAS_FLAGS: u16 = 1;
pub const FLAG_READ_ONLY: u16 = 1 << 1;
pub const FLAG_FLUSH: u16 = 1 << 2;
pub const FLAG_FUA: u16 = 1 << 3;
pub const FLAG_TRIM: u16 = 1 << 5;
pub const FLAG_ZEROES: u16 = 1 << 6;
pub const FLAG_MULTI_CONN: u16 = 1 << 8;
