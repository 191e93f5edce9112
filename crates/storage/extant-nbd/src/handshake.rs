//! The fixed newstyle handshake.

use std::io::{self, Read, Write};

use crate::numbers::{
    ALLOCATION, OPT_EXTENDED_HEADERS, OPT_GO, OPT_LIST, OPT_MAGIC, OPT_REPLY_MAGIC,
    OPT_SET_META_CONTEXT, OPT_STRUCTURED_REPLY, REP_ACK, REP_ERR_TLS_REQD, REP_ERR_UNKNOWN,
    REP_ERROR, REP_INFO, REP_META_CONTEXT, REP_SERVER,
};
use crate::protocol::{array, number, protocol, shown};

/// A longer reply to an option than this is refused.
const MAX_REPLY: u32 = 64 << 10;
/// More replies to one option than this are refused.
const MAX_REPLIES: u32 = 10_000;
/// Names of other exports that an error shows.
const SHOWN: usize = 20;

/// Properties of an export, from the server.
#[derive(PartialEq, Eq)]
pub(crate) struct Export {
    pub size: u64,
    pub flags: u16,
    pub min_block: u32,
    pub max_payload: u32,
    /// Whether the server tells which ranges are zeros.
    pub has_status: bool,
    /// Whether requests and replies have extended headers, with lengths of 64 bits.
    pub extended: bool,
}

/// Negotiates `name` and returns the export's properties.
pub(crate) fn negotiate(stream: &mut (impl Read + Write), name: &str) -> io::Result<Export> {
    if array(stream)? != *b"NBDMAGIC" || array(stream)? != *b"IHAVEOPT" {
        return Err(protocol(
            "this is not an NBD server of the newstyle handshake",
        ));
    }
    let flags = u16::from_be_bytes(array(stream)?);
    if flags & 1 == 0 {
        return Err(protocol("the server lacks the fixed newstyle handshake"));
    }
    stream.write_all(&u32::from(flags & 3).to_be_bytes())?;
    // Extended headers include structured replies.
    let extended = is_accepted(stream, OPT_EXTENDED_HEADERS)?;
    let structured = extended || is_accepted(stream, OPT_STRUCTURED_REPLY)?;
    let has_status = structured && ask_for_status(stream, name)?;
    let mut data = counted(name.as_bytes())?;
    data.extend(1u16.to_be_bytes()); // one request for information:
    data.extend(3u16.to_be_bytes()); // the limits of block sizes
    option(stream, OPT_GO, &data)?;
    let mut export = Export {
        size: 0,
        flags: 0,
        min_block: 1,
        max_payload: 32 << 20,
        has_status,
        extended,
    };
    let mut described = false;
    for _ in 0..MAX_REPLIES {
        let (kind, data) = reply(stream, OPT_GO)?;
        match kind {
            REP_INFO => match u16::from_be_bytes(number(&data, 0)?) {
                0 => {
                    export.size = u64::from_be_bytes(number(&data, 2)?);
                    export.flags = u16::from_be_bytes(number(&data, 10)?);
                    described = true;
                }
                3 => {
                    export.min_block = u32::from_be_bytes(number(&data, 2)?);
                    export.max_payload = u32::from_be_bytes(number(&data, 10)?);
                }
                _ => {}
            },
            REP_ACK if described => return checked(export),
            REP_ERR_UNKNOWN => return Err(no_such_export(stream, name)),
            kind if kind & REP_ERROR != 0 => return Err(refused(name, kind, &data)),
            _ => return Err(protocol("an unexpected reply to the choice of the export")),
        }
    }
    Err(protocol("too many replies to the choice of the export"))
}

/// Asks for an option without data; returns whether the server accepts it.
fn is_accepted(stream: &mut (impl Read + Write), number: u32) -> io::Result<bool> {
    option(stream, number, &[])?;
    Ok(reply(stream, number)?.0 == REP_ACK)
}

/// Asks for the context of allocation; returns whether the server has it.
fn ask_for_status(stream: &mut (impl Read + Write), name: &str) -> io::Result<bool> {
    let mut data = counted(name.as_bytes())?;
    data.extend(1u32.to_be_bytes()); // one query
    data.extend(counted(ALLOCATION)?);
    option(stream, OPT_SET_META_CONTEXT, &data)?;
    let mut has_status = false;
    for _ in 0..MAX_REPLIES {
        let (kind, data) = reply(stream, OPT_SET_META_CONTEXT)?;
        match kind {
            REP_META_CONTEXT => has_status |= data.get(4..) == Some(ALLOCATION),
            REP_ACK => return Ok(has_status),
            // The next option reports an export that does not exist.
            kind if kind & REP_ERROR != 0 => return Ok(false),
            _ => break,
        }
    }
    Err(protocol("an unexpected reply to the choice of a context"))
}

/// Returns bytes behind their number.
fn counted(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let length = u32::try_from(bytes.len()).map_err(|_| protocol("a name is too long"))?;
    let mut counted = length.to_be_bytes().to_vec();
    counted.extend(bytes);
    Ok(counted)
}

fn checked(export: Export) -> io::Result<Export> {
    let min = export.min_block;
    if export.size > i64::MAX as u64 {
        return Err(protocol(format_args!(
            "the export has {} bytes, more than any file",
            export.size
        )));
    }
    if !min.is_power_of_two() || min > 64 << 10 || export.max_payload < min.max(4096) {
        return Err(protocol("the limits of block sizes are not valid"));
    }
    Ok(export)
}

fn refused(name: &str, kind: u32, data: &[u8]) -> io::Error {
    if kind == REP_ERR_TLS_REQD {
        let why = "the server wants TLS: use nbds://HOST/EXPORT";
        return io::Error::new(io::ErrorKind::PermissionDenied, why);
    }
    let why = shown(data);
    let colon = if why.is_empty() { "" } else { ": " };
    io::Error::other(format!(
        "export '{name}': the server refuses it (error {}){colon}{why}",
        kind & !REP_ERROR
    ))
}

fn no_such_export(stream: &mut (impl Read + Write), name: &str) -> io::Error {
    let there = match list(stream) {
        Ok(names) if !names.is_empty() => format!("the server has '{}'", names.join("', '")),
        _ => "the server does not list its exports".to_owned(),
    };
    io::Error::new(
        io::ErrorKind::NotFound,
        format!("export '{name}' does not exist: {there}"),
    )
}

fn list(stream: &mut (impl Read + Write)) -> io::Result<Vec<String>> {
    option(stream, OPT_LIST, &[])?;
    let mut names = Vec::new();
    for _ in 0..MAX_REPLIES {
        let (kind, data) = reply(stream, OPT_LIST)?;
        match kind {
            REP_SERVER if names.len() < SHOWN => {
                let length = u32::from_be_bytes(number(&data, 0)?) as usize;
                let name = data.get(4..).and_then(|d| d.get(..length));
                let name = name.ok_or_else(|| protocol("an entry of the list is too short"))?;
                names.push(
                    String::from_utf8_lossy(name)
                        .escape_debug()
                        .take(200)
                        .collect(),
                );
            }
            REP_SERVER => {}
            REP_ACK => return Ok(names),
            _ => break,
        }
    }
    Err(protocol("the list of exports is not valid"))
}

fn option(stream: &mut impl Write, option: u32, data: &[u8]) -> io::Result<()> {
    let mut bytes = OPT_MAGIC.to_be_bytes().to_vec();
    bytes.extend(option.to_be_bytes());
    let length = u32::try_from(data.len()).map_err(|_| protocol("an option is too long"))?;
    bytes.extend(length.to_be_bytes());
    bytes.extend(data);
    stream.write_all(&bytes)
}

fn reply(stream: &mut impl Read, option: u32) -> io::Result<(u32, Vec<u8>)> {
    if u64::from_be_bytes(array(stream)?) != OPT_REPLY_MAGIC
        || u32::from_be_bytes(array(stream)?) != option
    {
        return Err(protocol("a reply of the handshake is not valid"));
    }
    let kind = u32::from_be_bytes(array(stream)?);
    let length = u32::from_be_bytes(array(stream)?);
    if length > MAX_REPLY {
        return Err(protocol(format_args!(
            "a reply of {length} bytes in the handshake"
        )));
    }
    let mut data = vec![0; length as usize];
    stream.read_exact(&mut data)?;
    Ok((kind, data))
}
