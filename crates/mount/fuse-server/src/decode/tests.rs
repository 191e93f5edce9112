use super::*;
use crate::wire::bits;
use crate::{SetTime, Time};
use zerocopy::IntoBytes;

const EXTENDED: Dialect = Dialect { setxattr_ext: true };

fn message(code: u32, body: &[u8]) -> Vec<u8> {
    let header = InHeader {
        len: (size_of::<InHeader>() + body.len()) as u32,
        opcode: code,
        unique: 2,
        nodeid: 1,
        uid: 10,
        gid: 20,
        pid: 30,
        total_extlen: 0,
        padding: 0,
    };
    [header.as_bytes(), body].concat()
}

/// Decodes a message in both forms of delivery: in one piece, and split after `fixed` bytes.
fn both(code: u32, fixed: &[u8], rest: &[u8], check: impl Fn(Operation<'_>)) {
    let message = message(code, &[fixed, rest].concat());
    let (head, body) = header(&message).unwrap();
    check(
        request(&head, Body::Joined(body), EXTENDED)
            .unwrap()
            .operation,
    );
    let mut slot = [0xaa; wire::URING_OPERATION_SIZE];
    slot[..fixed.len()].copy_from_slice(fixed);
    check(
        request(&head, Body::Split { fixed: &slot, rest }, EXTENDED)
            .unwrap()
            .operation,
    );
}

#[test]
fn names_end_at_their_nul() {
    both(opcode::LOOKUP, &[], b"file\0", |operation| {
        assert!(matches!(operation, Operation::Lookup { name: b"file" }));
    });
    both(opcode::SYMLINK, &[], b"link\0target\0", |operation| {
        assert!(matches!(
            operation,
            Operation::Symlink {
                name: b"link",
                target: b"target"
            }
        ));
    });
    let rename = wire::Rename2In {
        newdir: 5,
        flags: 2,
        padding: 0,
    };
    both(
        opcode::RENAME2,
        rename.as_bytes(),
        b"a\0bb\0",
        |operation| {
            assert!(matches!(
                operation,
                Operation::Rename {
                    name: b"a",
                    new_parent: 5,
                    new_name: b"bb",
                    flags: 2
                }
            ));
        },
    );
}

#[test]
fn extensions_behind_a_name_are_passed_over() {
    let create = wire::CreateIn {
        flags: 1,
        mode: 2,
        umask: 3,
        open_flags: 1,
    };
    both(
        opcode::CREATE,
        create.as_bytes(),
        b"f\0more\0\0\0",
        |operation| {
            assert!(matches!(
                operation,
                Operation::Create {
                    name: b"f",
                    mode: 2,
                    umask: 3,
                    flags: 1,
                    kill_suidgid: true
                }
            ));
        },
    );
}

#[test]
fn writes_carry_as_much_as_they_say() {
    let write = wire::WriteIn {
        fh: 3,
        offset: 4096,
        size: 4,
        write_flags: bits::WRITE_CACHE | bits::WRITE_KILL_SUIDGID,
        lock_owner: 0,
        flags: 7,
        padding: 0,
    };
    both(opcode::WRITE, write.as_bytes(), b"dataX", |operation| {
        assert!(matches!(
            operation,
            Operation::Write {
                handle: 3,
                offset: 4096,
                data: b"data",
                cached: true,
                kill_suidgid: true,
                flags: 7
            }
        ));
    });
    let message = message(opcode::WRITE, &[write.as_bytes(), b"dat"].concat());
    let (head, body) = header(&message).unwrap();
    assert_eq!(
        request(&head, Body::Joined(body), EXTENDED).unwrap_err(),
        Malformed
    );
}

#[test]
fn attributes_are_set_only_where_a_bit_says_so() {
    let mut set = wire::SetAttrIn::read_from_bytes(&[0xff; size_of::<wire::SetAttrIn>()]).unwrap();
    set.valid = bits::FATTR_SIZE
        | bits::FATTR_ATIME
        | bits::FATTR_ATIME_NOW
        | bits::FATTR_MTIME
        | bits::FATTR_CTIME;
    set.size = 9;
    set.mtime = (-3i64).cast_unsigned();
    set.mtimensec = 4;
    both(opcode::SETATTR, set.as_bytes(), &[], |operation| {
        let Operation::SetAttr(set) = operation else {
            panic!()
        };
        assert_eq!(set.size, Some(9));
        assert_eq!(
            (set.mode, set.uid, set.gid, set.handle),
            (None, None, None, None)
        );
        assert_eq!(set.atime, Some(SetTime::Now));
        assert_eq!(
            set.mtime,
            Some(SetTime::At(Time {
                seconds: -3,
                nanoseconds: 4
            }))
        );
        assert_eq!(
            set.ctime,
            Some(Time {
                seconds: -1,
                nanoseconds: u32::MAX
            })
        );
        assert!(!set.kill_suidgid);
    });
}

#[test]
fn extended_attributes_in_both_dialects() {
    let short = wire::SetXattrInShort { size: 2, flags: 1 };
    let short_message = message(
        opcode::SETXATTR,
        &[short.as_bytes(), b"user.a\0vv"].concat(),
    );
    let (head, body) = header(&short_message).unwrap();
    let request = request(
        &head,
        Body::Joined(body),
        Dialect {
            setxattr_ext: false,
        },
    )
    .unwrap();
    assert!(matches!(
        request.operation,
        Operation::SetXattr {
            name: b"user.a",
            value: b"vv",
            flags: 1,
            acl_kill_sgid: false
        }
    ));
    let long = wire::SetXattrIn {
        size: 2,
        flags: 0,
        setxattr_flags: 1,
        padding: 0,
    };
    both(
        opcode::SETXATTR,
        long.as_bytes(),
        b"user.a\0vv",
        |operation| {
            assert!(matches!(
                operation,
                Operation::SetXattr {
                    name: b"user.a",
                    value: b"vv",
                    flags: 0,
                    acl_kill_sgid: true
                }
            ));
        },
    );
}

#[test]
fn forgets_come_in_batches_no_longer_than_the_message() {
    let pairs = [
        wire::ForgetOne {
            nodeid: 4,
            nlookup: 1,
        },
        wire::ForgetOne {
            nodeid: 5,
            nlookup: 2,
        },
    ];
    let batch = |count| {
        let head = wire::BatchForgetIn { count, dummy: 0 };
        message(
            opcode::BATCH_FORGET,
            &[head.as_bytes(), pairs.as_bytes()].concat(),
        )
    };
    let message = batch(2);
    let (head, body) = header(&message).unwrap();
    let Operation::BatchForget(forgets) = request(&head, Body::Joined(body), EXTENDED)
        .unwrap()
        .operation
    else {
        panic!()
    };
    assert_eq!(forgets.len(), 2);
    assert_eq!(forgets.collect::<Vec<_>>(), [(4, 1), (5, 2)]);
    for count in [3, u32::MAX] {
        let message = batch(count);
        let (head, body) = header(&message).unwrap();
        assert_eq!(
            request(&head, Body::Joined(body), EXTENDED).unwrap_err(),
            Malformed
        );
    }
}

#[test]
fn the_short_copy_asks_for_no_more_than_it_can_answer() {
    let copy = wire::CopyFileRangeIn {
        fh_in: 1,
        off_in: 2,
        nodeid_out: 3,
        fh_out: 4,
        off_out: 5,
        len: u64::MAX,
        flags: 0,
    };
    for (code, most) in [
        (opcode::COPY_FILE_RANGE, 0xffff_f000),
        (opcode::COPY_FILE_RANGE_64, u64::MAX),
    ] {
        both(code, copy.as_bytes(), &[], |operation| {
            let Operation::CopyFileRange {
                length, to_node: 3, ..
            } = operation
            else {
                panic!()
            };
            assert_eq!(length, most);
        });
    }
}

#[test]
fn a_header_that_lies_is_malformed() {
    let mut bytes = message(opcode::LOOKUP, b"name\0");
    bytes[0] += 1;
    assert_eq!(header(&bytes).unwrap_err(), Malformed);
    bytes[0] = 39;
    assert_eq!(header(&bytes).unwrap_err(), Malformed);
    assert_eq!(header(&bytes[..39]).unwrap_err(), Malformed);
    assert_eq!(header(&[]).unwrap_err(), Malformed);
}

/// Every operation, cut at every length, and with every body of one repeated byte: an error or a request, no panic.
#[test]
fn no_message_is_too_short_or_too_strange() {
    for code in (0..64).chain([4096, u32::MAX]) {
        for fill in [0u8, 1, 0x2f, 0x7f, 0xff] {
            for length in 0..=160 {
                let body = vec![fill; length];
                let message = message(code, &body);
                let (head, joined) = header(&message).unwrap();
                for dialect in [EXTENDED, Dialect::default()] {
                    let _ = request(&head, Body::Joined(joined), dialect).map(use_up);
                    for cut in [0, length / 2, length] {
                        let (fixed, rest) = body.split_at(cut);
                        let _ = request(&head, Body::Split { fixed, rest }, dialect).map(use_up);
                    }
                }
            }
        }
    }
}

fn use_up(request: Request<'_>) -> usize {
    match request.operation {
        Operation::BatchForget(forgets) => forgets.count(),
        _ => 0,
    }
}
