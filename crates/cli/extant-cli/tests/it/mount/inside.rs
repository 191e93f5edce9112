//! Volumes with files inside their inodes (`inline_data`), and with values of attributes in inodes (`ea_inode`), mounted.

use super::support::{Kernel, Mounted, image, over_each, place, script};

#[test]
fn inline_data_are_read_through_the_mount() {
    over_each(|transport| {
        let place = place();
        let path = image(place.path(), "32M", &["-O", "inline_data"]);
        let kernel = Kernel::new(&path, "rw");
        script(
            kernel.dir(),
            "for n in 0 1 59 60 61 100 130; do head -c $n /dev/urandom >f$n; ln -s $(printf %0${n}d 1) l$n; done
             for n in 1 3 5 9; do mkdir d$n; for m in $(seq $n); do echo $m >d$n/name$m; done; done; mkdir d1/sub",
        );
        let ask = "find . -path ./lost+found -prune -o -printf '%p %y %s %b %n %l\\n' | sort; md5sum f* d*/name*";
        let expected = script(kernel.dir(), ask);
        drop(kernel);
        let mounted = Mounted::new(&path, transport, &["ro"]);
        assert_eq!(script(mounted.dir(), ask), expected);
        assert_eq!(
            script(
                &mounted.dir().join("d1/sub"),
                "cat ../name1; cd ../..; cat d1/name1"
            ),
            "1\n1\n"
        );
        let refused = "for c in 'touch new' 'rm f60' 'truncate -s 3 f60'; do $c 2>&1 && exit 1; done; echo x 2>/dev/null >>f1 && exit 1; echo done";
        let text = script(mounted.dir(), refused);
        assert!(
            text.contains("Read-only file system") && text.ends_with("done\n"),
            "{text}"
        );
        mounted.unmount();
    });
}

#[test]
fn values_in_inodes_are_read_through_the_mount() {
    over_each(|transport| {
        let place = place();
        let path = image(place.path(), "32M", &["-O", "ea_inode"]);
        let kernel = Kernel::new(&path, "rw");
        script(
            kernel.dir(),
            "for n in 0 10 100 3000 5000 40000; do echo $n >f$n; mkdir d$n
             for f in f$n d$n; do setfattr -n user.v -v \"$(head -c $n /dev/urandom | base64 -w0)\" $f
             setfattr -n user.short -v short $f; done; done",
        );
        let ask = "getfattr -d -m- -e hex -R . | md5sum; cat f*; stat -c '%n %b' f* d*";
        let expected = script(kernel.dir(), ask);
        drop(kernel);
        let mounted = Mounted::new(&path, transport, &["ro"]);
        assert_eq!(script(mounted.dir(), ask), expected);
        let refused = "setfattr -n user.v -v x f10 2>&1 && exit 1; setfattr -x user.v f5000 2>&1 && exit 1; echo done";
        let text = script(mounted.dir(), refused);
        assert!(
            text.contains("Read-only file system") && text.ends_with("done\n"),
            "{text}"
        );
        mounted.unmount();
    });
}
