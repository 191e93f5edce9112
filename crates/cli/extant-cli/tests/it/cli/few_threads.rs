//! Commands under a limit of threads do their work on one thread, or fail with a message.

use crate::cli::support::{Ran, Scratch};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// User without processes.
const USER: &str = "54321";

#[test]
fn commands_work_where_the_system_refuses_threads() {
    needs::tools!("setpriv", "prlimit", "mke2fs");
    if !rustix::process::geteuid().is_root() {
        return needs::ignored("only root can take another user's limits");
    }
    let Some(s) = Scratch::filled() else { return };
    let open =
        |path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    open(s.dir.path().to_path_buf(), 0o777);
    open(s.image.clone(), 0o666);
    let program = s.host("extant");
    std::fs::copy(env!("CARGO_BIN_EXE_extant"), &program).unwrap();
    open(program.clone(), 0o755);
    std::fs::create_dir(s.host("tree")).unwrap();
    for n in 0..300 {
        std::fs::write(s.host(&format!("tree/{n}")), vec![n as u8; 3000]).unwrap();
    }
    let alone = |line: &str| {
        let mut command = Command::new("setpriv");
        command.args([
            "--reuid",
            USER,
            "--regid",
            USER,
            "--clear-groups",
            "prlimit",
            "--nproc=1",
        ]);
        command
            .arg(&program)
            .args(line.split(' '))
            .current_dir(s.dir.path());
        Ran::of(command.output().unwrap())
    };
    for (line, code) in [
        ("mkfs -q new.img --from tree --threads 4", Some(0)),
        ("ls disk.img:/etc", Some(0)),
        ("cp -r disk.img:/etc out", Some(0)),
        ("export new.img exported --threads 4", Some(0)),
        ("map disk.img", Some(0)),
        ("defrag -n new.img", Some(0)),
        ("push disk.img copy.img", Some(0)),
        (
            "mkfs -q -F new.img --from tree --verity --threads 4",
            Some(0),
        ),
        // `check` and the other commands with this code wait for signals on a thread.
        ("check new.img", Some(8)),
        ("repair -n new.img", Some(8)),
        // Archives are read, compressed and written by several threads.
        ("export new.img - --format tar.zst --threads 4", Some(1)),
        ("export new.img - --format tar.gz --threads 4", Some(1)),
        // The log needs a thread.
        ("import disk.img tree", Some(1)),
        ("mount disk.img out", Some(1)),
    ] {
        let ran = alone(line);
        assert_eq!(ran.code, code, "{line}: {}", ran.stderr);
        assert!(!ran.stderr.contains("panicked"), "{line}: {}", ran.stderr);
    }
}
