//! ACLs in a spelling like getfacl's: `u::rwx,u:1000:r--,m::r-x`.

use super::names::done;
use super::sys::Result;
use super::world::{Args, World};
use rustix::fs::XattrFlags;

/// Version of the attribute's layout, which has eight bytes for each entry: tag, permissions, user or group.
const VERSION: u32 = 2;
const NOBODY: u32 = u32::MAX;

/// Tags of entries with and without a name.
const TAGS: &[(&str, u16, u16)] = &[
    ("u", 0x02, 0x01),
    ("g", 0x08, 0x04),
    ("m", 0x10, 0x10),
    ("o", 0x20, 0x20),
];

pub fn call(_: &mut World, verb: &str, args: &Args<'_>) -> Result<Option<String>> {
    let path = args.get(0).unwrap_or_default();
    let attribute = match args.get(1) {
        Some(b"access") => "system.posix_acl_access",
        _ => "system.posix_acl_default",
    };
    Ok(Some(match verb {
        "setacl" => {
            let bytes = encode(args.text(2));
            done(rustix::fs::setxattr(
                path,
                attribute,
                &bytes,
                XattrFlags::empty(),
            ))
        }
        "rmacl" => done(rustix::fs::removexattr(path, attribute)),
        "getacl" => {
            let mut buf = [0; 1000];
            let len = rustix::fs::getxattr(path, attribute, &mut buf)?;
            Ok(decode(&buf[..len]))
        }
        _ => return Ok(None),
    }?))
}

fn encode(text: &str) -> Vec<u8> {
    let mut entries: Vec<_> = text.split(',').map(encode_entry).collect();
    entries.sort_unstable();
    let mut out = VERSION.to_le_bytes().to_vec();
    for (tag, id, permissions) in entries {
        out.extend(tag.to_le_bytes());
        out.extend(permissions.to_le_bytes());
        out.extend(id.to_le_bytes());
    }
    out
}

fn encode_entry(text: &str) -> (u16, u32, u16) {
    let fields: Vec<_> = text.split(':').collect();
    let [kind, who, permissions] = fields[..] else {
        panic!("an entry of an ACL: {text}");
    };
    let (_, named, plain) = TAGS.iter().find(|(k, ..)| *k == kind).unwrap();
    let bits = permissions.bytes().rev().enumerate();
    let bits = bits
        .filter(|(_, c)| *c != b'-')
        .fold(0, |all, (n, _)| all | 1 << n);
    match who {
        "" => (*plain, NOBODY, bits),
        id => (*named, id.parse().unwrap(), bits),
    }
}

fn decode(bytes: &[u8]) -> String {
    let entries = bytes[4..].chunks(8).map(|entry| {
        let number = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
        let (tag, permissions) = (number(0), number(2));
        let id = u32::from_le_bytes(entry[4..8].try_into().unwrap());
        let kind = TAGS.iter().find(|(_, a, b)| [*a, *b].contains(&tag));
        let who = if id == NOBODY {
            String::new()
        } else {
            id.to_string()
        };
        let bits = [(4, 'r'), (2, 'w'), (1, 'x')];
        let bits = bits.map(|(bit, letter)| if permissions & bit != 0 { letter } else { '-' });
        let kind = kind.map_or("?", |(kind, ..)| kind);
        format!("{kind}:{who}:{}", bits.iter().collect::<String>())
    });
    entries.collect::<Vec<_>>().join(",")
}
