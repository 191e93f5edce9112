//! Checksums of the parts of an object, or their encryption with a key of the user.
//!
//! With a key, each object has a separate key: HKDF-SHA256 (RFC 5869) of the user's key, for a label that no two objects share. The
//! parts of the object are encrypted by AES-256-GCM (RFC 5116), and the number of the part is the nonce.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Prk, Salt};
use std::io;
use std::path::Path;

/// Bytes of a key.
const KEY: usize = 32;
/// Bytes of an authentication tag.
pub const TAG: usize = 16;

/// Key of an encrypted image of objects.
///
/// ```
/// use blockdev::BlockDevice;
/// use extant_remote::{Address, ImageKey, ObjectsDevice, runtime};
/// let dir = tempfile::tempdir()?;
/// let open = |key| {
///     let mut address = Address::parse(&format!("file+objects://{}?size=8M", dir.path().display()))?;
///     address.key = key;
///     ObjectsDevice::open(address, runtime()?, false)
/// };
/// let image = open(Some(ImageKey::new(&[7; 32])))?;
/// image.write_at(0, b"secret")?;
/// image.release()?;
/// assert!(open(None).is_err());
/// # std::io::Result::Ok(())
/// ```
pub struct ImageKey(Prk);

impl ImageKey {
    /// Reads a key from a file of 32 bytes, or of 64 hexadecimal digits.
    pub fn read(path: &Path) -> io::Result<Self> {
        let bytes = std::fs::read(path)?;
        let digits = bytes.trim_ascii();
        let key = match <[u8; KEY]>::try_from(bytes.as_slice()) {
            Ok(key) => Some(key),
            Err(_) => of_digits(digits),
        };
        let key = key.ok_or_else(|| {
            let text =
                "a key has 32 bytes or 64 hexadecimal digits: openssl rand -hex 32 makes one";
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        Ok(Self::new(&key))
    }

    /// Makes a key of 32 random bytes.
    pub fn new(key: &[u8; KEY]) -> Self {
        Self(Salt::new(HKDF_SHA256, b"extant image of objects").extract(key))
    }
}

fn of_digits(digits: &[u8]) -> Option<[u8; KEY]> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut key = [0; KEY];
    let (pairs, rest) = digits.as_chunks::<2>();
    if pairs.len() != KEY || !rest.is_empty() {
        return None;
    }
    for (byte, [high, low]) in key.iter_mut().zip(pairs) {
        *byte = (digit(*high)? * 16 + digit(*low)?) as u8; // two digits
    }
    Some(key)
}

/// Protection of the parts of one object.
pub struct ObjectCipher(Option<LessSafeKey>);

impl ObjectCipher {
    /// Makes the cipher of an object. No other object may have its label under this key, unless it has the same bytes.
    pub fn new(key: Option<&ImageKey>, label: &[&[u8]]) -> io::Result<Self> {
        let Some(ImageKey(key)) = key else {
            return Ok(Self(None));
        };
        let key = key.expand(label, &AES_256_GCM).map_err(unspecified)?;
        Ok(Self(Some(LessSafeKey::new(UnboundKey::from(key)))))
    }

    /// Encrypts the bytes from `start` on, and appends their tag; without a key, appends their checksum.
    pub fn seal(&self, part: u64, bytes: &mut Vec<u8>, start: usize) -> io::Result<()> {
        let content = bytes.get_mut(start..).unwrap_or_default();
        match &self.0 {
            Some(key) => {
                let tag = key.seal_in_place_separate_tag(nonce(part), Aad::empty(), content);
                bytes.extend(tag.map_err(unspecified)?.as_ref());
            }
            None => {
                let sum = crc32c::crc32c(content);
                bytes.extend(sum.to_le_bytes());
            }
        }
        Ok(())
    }

    /// Returns the content of a part, which is decrypted in place.
    pub fn open<'b>(&self, part: u64, bytes: &'b mut [u8]) -> io::Result<&'b [u8]> {
        match &self.0 {
            Some(key) => {
                let opened = key.open_in_place(nonce(part), Aad::empty(), bytes);
                let opened = opened.map_err(|_| damaged("it was changed, or the key is wrong"))?;
                Ok(opened)
            }
            None => verify_sum(bytes),
        }
    }

    /// Appends the checksum of a header, and its tag if there is a key.
    pub fn sign(&self, header: &mut Vec<u8>) -> io::Result<()> {
        let sum = crc32c::crc32c(header);
        header.extend(sum.to_le_bytes());
        if let Some(key) = &self.0 {
            let tag = key.seal_in_place_separate_tag(header_nonce(), Aad::from(&header), &mut []);
            let tag = tag.map_err(unspecified)?;
            header.extend(tag.as_ref());
        }
        Ok(())
    }

    /// Checks the tag of a header, if there is a key. The caller has checked the checksum, which says whether all of the header
    /// was written.
    pub fn verify(&self, header: &[u8], tag: &[u8]) -> io::Result<()> {
        let Some(key) = &self.0 else {
            return Ok(());
        };
        let mut tag = tag.to_vec();
        let opened = key.open_in_place(header_nonce(), Aad::from(header), &mut tag);
        opened.map(drop).map_err(|_| {
            let text = "the key is not the one of this image, or the object was changed";
            io::Error::new(io::ErrorKind::PermissionDenied, text)
        })
    }
}

/// Returns the bytes before a checksum, if it matches them.
pub fn verify_sum(bytes: &[u8]) -> io::Result<&[u8]> {
    match bytes.split_last_chunk() {
        Some((content, sum)) if crc32c::crc32c(content) == u32::from_le_bytes(*sum) => Ok(content),
        _ => Err(damaged("its checksum is wrong")),
    }
}

fn nonce(part: u64) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    for (to, from) in bytes.iter_mut().zip(part.to_le_bytes()) {
        *to = from;
    }
    Nonce::assume_unique_for_key(bytes)
}

/// Returns the nonce of a header, which no part has.
fn header_nonce() -> Nonce {
    Nonce::assume_unique_for_key([u8::MAX; NONCE_LEN])
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Returns the error of a call that fails only for longer parts than there are.
fn unspecified(_: ring::error::Unspecified) -> io::Error {
    io::Error::other("the cipher failed")
}

#[test]
fn a_part_opens_with_its_key_in_its_place_only() {
    let key = ImageKey::new(&[7; KEY]);
    for key in [Some(&key), None] {
        let cipher = ObjectCipher::new(key, &[b"one"]).unwrap();
        let mut bytes = b"head".to_vec();
        bytes.extend([5; 100]);
        cipher.seal(9, &mut bytes, 4).unwrap();
        assert_eq!(bytes.len(), 104 + if key.is_some() { TAG } else { 4 });
        let part = bytes.split_off(4);
        assert_eq!(cipher.open(9, &mut part.clone()).unwrap(), [5; 100]);
        for at in 0..part.len() {
            let mut bad = part.clone();
            bad[at] ^= 1;
            assert!(cipher.open(9, &mut bad).is_err());
        }
        let others = [(Some(ImageKey::new(&[8; KEY])), "one"), (None, "one")];
        for (other, label) in others {
            let other = ObjectCipher::new(other.as_ref(), &[label.as_bytes()]).unwrap();
            let opened = other.open(9, &mut part.clone()).map(<[u8]>::to_vec);
            assert_eq!(opened.is_ok(), key.is_none() && other.0.is_none());
        }
        if key.is_some() {
            assert!(!part.windows(8).any(|bytes| bytes == [5; 8]));
            let other = ObjectCipher::new(key, &[b"two"]).unwrap();
            assert!(other.open(9, &mut part.clone()).is_err());
            assert!(cipher.open(8, &mut part.clone()).is_err());
        }
    }
}

#[test]
fn keys_are_bytes_or_digits() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("key");
    let read = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        ImageKey::read(&path)
    };
    let digits = "0a".repeat(KEY);
    let sealed = |key: ImageKey| {
        let cipher = ObjectCipher::new(Some(&key), &[b""]).unwrap();
        let mut bytes = vec![1];
        cipher.seal(0, &mut bytes, 0).unwrap();
        bytes
    };
    let of_bytes = sealed(read(&[10; KEY]).unwrap());
    assert_eq!(
        sealed(read(format!("{digits}\n").as_bytes()).unwrap()),
        of_bytes
    );
    for wrong in [
        &b""[..],
        &[1; 31],
        &[1; 33],
        &digits.as_bytes()[1..],
        &[b'x'; 64],
    ] {
        assert!(read(wrong).is_err(), "{wrong:?}");
    }
}
