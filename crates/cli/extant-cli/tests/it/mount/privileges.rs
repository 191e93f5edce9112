//! Set-id bits and capabilities of a program on a mount, after others have written to it.

use super::support::{Mounted, image, over_each, place, script};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The kernel caches the mode of a set-user-id program; when the server clears the bit, the kernel must not use the
/// cached mode.
#[test]
fn a_program_that_others_changed_is_not_set_user_id() {
    over_each(|transport| {
        let place = place();
        script(place.path(), "chmod 755 .");
        let image = image(place.path(), "32M", &[]);
        let mounted = Mounted::new(&image, transport, &["allow_other"]);
        let nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups";
        for (name, change) in [
            ("written", "sh -c 'printf x >>written'"),
            ("allocated", "fallocate -o 200000 -l 4096 allocated"),
            ("punched", "fallocate -p -o 0 -l 1 punched"),
        ] {
            let program = mounted.dir().join(name);
            script(
                mounted.dir(),
                &format!("cp $(command -v id) {name}; chmod 4777 {name}; sync {name}"),
            );
            let user = || {
                // No call reads the program's attributes before it is executed.
                let mut id = Command::new(&program);
                id.arg("-u").uid(65534).gid(65534);
                String::from_utf8(id.output().unwrap().stdout).unwrap()
            };
            assert_eq!(user(), "0\n", "{name}: not set-user-id at first");
            script(mounted.dir(), &format!("{nobody} {change}"));
            if name == "punched" {
                // The file has lost its set-id bits.
                let mode = script(mounted.dir(), "stat -c %a punched");
                assert_eq!(mode, "777\n");
                continue;
            }
            assert_eq!(user(), "65534\n", "{name}");
        }
        mounted.unmount();
    });
}

/// Capabilities that are set on a file while the kernel still holds dirty data for it stay.
#[test]
fn capabilities_outlast_what_is_written_back() {
    over_each(|transport| {
        let place = place();
        let image = image(place.path(), "32M", &[]);
        let mounted = Mounted::new(&image, transport, &[]);
        let found = script(
            mounted.dir(),
            "exec 3>f; echo text >&3; setfattr -n security.capability -v 0x0100000200200000000000000000000000000000 f
             exec 3>&-; sync f; getfattr -n security.capability f | grep -c capability=; cat f",
        );
        assert_eq!(found, "1\ntext\n");
        mounted.unmount();
    });
}
