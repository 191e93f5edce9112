//! Structured replies, and the map of zeros that they carry.

use crate::it::fake::{self, Request};
use blockdev::BlockDevice;
use std::os::unix::net::UnixStream;

const SIZE: u64 = 1 << 20;
const NONE: u16 = 0;
const DATA: u16 = 1;
const HOLE: u16 = 2;
const STATUS: u16 = 5;
const ERROR: u16 = 1 << 15 | 1;

/// Returns the payload of a chunk: a big-endian place, and bytes.
fn at(offset: u64, bytes: &[u8]) -> Vec<u8> {
    let mut payload = offset.to_be_bytes().to_vec();
    payload.extend(bytes);
    payload
}

/// Reads 8 KiB at 4096 from a server that answers by `answer`.
fn read(
    name: &str,
    answer: impl FnOnce(&mut UnixStream, &Request) + Send + 'static,
) -> std::io::Result<Vec<u8>> {
    let device = fake::connect(name, |mut stream| {
        fake::greet(&mut stream, SIZE, true);
        let request = fake::request(&mut stream).unwrap();
        answer(&mut stream, &request);
        while fake::request(&mut stream).is_ok_and(|r| r.command != 2) {}
    })?;
    let mut bytes = vec![9; 8192];
    device.read_at(4096, &mut bytes).map(|()| bytes)
}

#[test]
fn a_read_is_put_together_from_its_chunks() {
    let bytes = read("chunks", |stream, request| {
        fake::chunk(stream, request, false, DATA, &at(8192, &[2; 2048]));
        fake::chunk(stream, request, false, HOLE, &at(10_240, &[0, 0, 8, 0]));
        fake::chunk(stream, request, false, DATA, &at(4096, &[1; 4096]));
        fake::chunk(stream, request, true, NONE, &[]);
    });
    let bytes = bytes.unwrap();
    assert!(bytes[..4096] == [1; 4096] && bytes[4096..6144] == [2; 2048]);
    assert!(bytes[6144..] == [0; 2048]);
}

#[test]
fn chunks_that_lie_are_errors() {
    type Answer = fn(&mut UnixStream, &Request);
    let wrong: [(&str, &str, Answer); 7] = [
        ("before", "outside", |s, r| {
            fake::chunk(s, r, true, DATA, &at(0, &[1; 4096]));
        }),
        ("behind", "outside", |s, r| {
            fake::chunk(s, r, true, DATA, &at(8192, &[1; 4097]));
        }),
        ("hole", "outside", |s, r| {
            fake::chunk(s, r, true, HOLE, &at(4096, &[255; 4]));
        }),
        ("twice", "outside", |s, r| {
            fake::chunk(s, r, false, DATA, &at(4096, &[1; 8192]));
            fake::chunk(s, r, true, DATA, &at(4096, &[1; 1]));
        }),
        ("little", "4096 of 8192 bytes", |s, r| {
            fake::chunk(s, r, true, DATA, &at(4096, &[1; 4096]));
        }),
        ("kind", "kind 5", |s, r| {
            fake::chunk(s, r, true, STATUS, &[0; 12]);
        }),
        ("short", "outside", |s, r| {
            fake::chunk(s, r, true, DATA, &[0; 8]);
        }),
    ];
    for (name, words, answer) in wrong {
        let error = read(name, answer).unwrap_err().to_string();
        assert!(error.contains(words), "{name}: {error}");
    }
}

/// The error has the server's words, and the connection stays usable.
#[test]
fn an_error_chunk_fails_its_request_only() {
    let device = fake::connect("error-chunk", |mut stream| {
        fake::greet(&mut stream, SIZE, true);
        let request = fake::request(&mut stream).unwrap();
        let error = b"\0\0\0\x05\0\x0cbad \x07surface";
        fake::chunk(&mut stream, &request, true, ERROR, error);
        let request = fake::request(&mut stream).unwrap();
        let data = at(request.offset, &[3; 512]);
        fake::chunk(&mut stream, &request, true, DATA, &data);
        while fake::request(&mut stream).is_ok_and(|r| r.command != 2) {}
    });
    let device = device.unwrap();
    let mut bytes = [0; 512];
    let error = device.read_at(0, &mut bytes).unwrap_err().to_string();
    assert!(error.ends_with("bad surface"), "{error}");
    device.read_at(0, &mut bytes).unwrap();
    assert_eq!(bytes, [3; 512]);
}

#[test]
fn ranges_of_a_status_must_advance() {
    let answers: [&[u8]; 2] = [&[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0], &[]];
    for (nr, answer) in answers.into_iter().enumerate() {
        let device = fake::connect(&format!("status-{nr}"), move |mut stream| {
            fake::greet(&mut stream, SIZE, true);
            let request = fake::request(&mut stream).unwrap();
            let kind = if answer.is_empty() { NONE } else { STATUS };
            fake::chunk(&mut stream, &request, true, kind, answer);
            while fake::request(&mut stream).is_ok_and(|r| r.command != 2) {}
        });
        assert!(device.unwrap().next_data(0).is_err(), "{nr}");
    }
}
