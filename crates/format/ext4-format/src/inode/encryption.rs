//! Encrypted inodes: the attribute that holds the encryption context, and the target of an encrypted link.
//!
//! A context consists of a version, the modes of contents and names, flags, a key's name, and 16 random bytes of this inode. The
//! part before the random bytes is the policy. Files in an encrypted directory have the policy of the directory.

/// Index and rest of the name of the attribute that holds the context.
pub const ATTRIBUTE: (u8, &[u8]) = (9, b"c");
/// Full name of that attribute.
pub const ATTRIBUTE_NAME: &[u8] = b"encryption.c";
/// Fewest bytes of a name in an encrypted directory.
pub const MIN_NAME_LEN: usize = 16;
/// Random bytes at the end of a context.
const NONCE_LEN: usize = 16;
/// Bytes of the length in front of the target of an encrypted link.
const TARGET_HEAD_LEN: u64 = 2;

/// Returns the policy in a context; `None` if the context is damaged. The length of a context of an unknown version
/// is not checked.
///
/// ```
/// use ext4_format::inode::encryption::policy;
/// let mut context = [0; 28];
/// assert_eq!(policy(&context), None);
/// context[0] = 1;
/// assert_eq!(policy(&context), Some(&context[..12]));
/// assert_eq!(policy(&context[1..]), None);
/// ```
pub fn policy(context: &[u8]) -> Option<&[u8]> {
    let sound = match context.first()? {
        0 => false,
        1 => context.len() == 28,
        2 => context.len() == 40,
        _ => context.len() > NONCE_LEN,
    };
    let policy = context.len().checked_sub(NONCE_LEN)?;
    context.get(..policy).filter(|_| sound)
}

/// Returns the size that a link must have whose encrypted target is stored in these bytes; `None` if no size fits.
///
/// ```
/// use ext4_format::inode::encryption::target_size;
/// assert_eq!(target_size(&[16, 0], 60), Some(18));
/// assert_eq!(target_size(&[0, 0], 60), None);
/// assert_eq!(target_size(&[60, 0], 60), None);
/// ```
pub fn target_size(bytes: &[u8], room: usize) -> Option<u64> {
    let len = u64::from(u16::from_le_bytes(*bytes.first_chunk()?));
    let size = len + TARGET_HEAD_LEN;
    (len > 0 && size < room as u64).then_some(size)
}
