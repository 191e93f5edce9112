//! Directories whose index is full.

use crate::common::*;
use extant_testing::mounted::*;

/// A directory whose index is full for this engine is full for the kernel: both refuse and accept the same names.
#[test]
fn full_where_the_kernel_says_so() {
    if !able() {
        return;
    }
    let dir = needs::memory_dir();
    let path = image(&dir, &["-t", "ext4", "-b", "1024", "-N", "4096"]);
    let v = open_file(&path);
    v.create_dir("/d").unwrap();
    v.create_new_file("/f").unwrap();
    let name = |n: usize| format!("{n:0>255}");
    let first = (0..60_000)
        .find(|&n| v.hard_link("/f", format!("/d/{}", name(n))).is_err())
        .expect("full");
    let (mut refused, mut taken) = (vec![first], Vec::new());
    for n in 100_000.. {
        let at = format!("/d/{}", name(n));
        match v.hard_link("/f", &at) {
            // A split of a leaf cannot be undone, so only names that went into an unsplit leaf count.
            Ok(()) => {
                let size = v.metadata("/d").unwrap().len();
                v.sync().unwrap();
                if v.metadata("/d").unwrap().len() == size {
                    v.remove_file(&at).unwrap();
                    taken.push(n);
                }
            }
            Err(extant::Error::NoSpace(_)) => refused.push(n),
            Err(e) => panic!("{e}"),
        }
        if refused.len() > 5 && taken.len() > 5 {
            break;
        }
    }
    v.close().unwrap();
    assert_clean_file(&path, "full index");
    let mounted = Mounted::new(&path, "");
    let link = |n: usize| {
        let to = mounted.path().join("d").join(name(n));
        std::fs::hard_link(mounted.path().join("f"), to)
    };
    for n in refused {
        let answer = link(n).map_err(|e| e.raw_os_error());
        assert_eq!(answer, Err(Some(28)), "{n}");
    }
    for n in taken {
        link(n).unwrap_or_else(|e| panic!("{n}: {e}"));
        // Remove each name before the next, as above, because two names may fall into one leaf, which has room for one.
        std::fs::remove_file(mounted.path().join("d").join(name(n))).unwrap();
    }
    mounted.unmount();
    assert_clean_file(&path, "full index, filled by the kernel");
}
