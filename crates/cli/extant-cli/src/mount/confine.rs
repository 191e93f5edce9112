//! Confines the server of a mount, because the server parses bytes of unknown origin.
//!
//! Confinement has two steps. [`paths`] runs when the image is open, before any byte of the image has been read and
//! before other threads exist. [`paths`] forbids new privileges by exec, and with Landlock all files but the few that
//! serving needs. [`calls`] runs when the setup is complete. [`calls`] allows, with seccomp and for all threads, only
//! the system calls of a list. After [`calls`] the server cannot open, connect to or run anything, even if a parser is
//! exploited. A confined process may not unmount, so [`crate::mount::keeper`] unmounts.
//!
//! If the kernel lacks one of the two, the other still applies.

use anyhow::{Context, Result};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter_all_threads,
};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;

/// The newest version of Landlock that is requested; an older kernel applies the rules that it supports.
const NEWEST: ABI = ABI::V6;

/// Forbids new privileges by exec, and all files but these: files in /proc and /sys that the C library and the server
/// read, channels of /dev/fuse, and the sockets below `sockets`. Names in `lock_dir` can be removed. The rules apply
/// to the calling thread and to the threads that it starts from now on.
///
/// Files in /proc/self can be read as long as the result is held. A rule is about an inode in memory, and the kernel makes a
/// new inode of /proc/self after it has dropped an unused one.
pub fn paths(sockets: &Path, lock_dir: Option<&Path>) -> Result<HeldRules> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let write = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    let own = AccessFs::MakeSock | AccessFs::RemoveFile | read;
    let allowed: [(&Path, BitFlags<AccessFs>); 6] = [
        ("/proc/self".as_ref(), read),
        ("/sys/devices/system".as_ref(), read),
        ("/sys/fs/cgroup".as_ref(), read),
        ("/dev/fuse".as_ref(), write),
        ("/dev/null".as_ref(), write),
        (sockets, own),
    ];
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::Signal)?
        .create()?;
    let lock_dir = lock_dir.map(|dir| (dir, AccessFs::RemoveFile.into()));
    let mut held = Vec::new();
    for (path, access) in allowed.into_iter().chain(lock_dir) {
        // A path that does not exist needs no rule.
        if let Ok(file) = PathFd::new(path) {
            rules = rules.add_rule(PathBeneath::new(&file, access))?;
            held.push(file);
        }
    }
    rules.restrict_self().context("Landlock")?;
    Ok(HeldRules(held))
}

/// The files and directories that [`paths`] allows, open so that the kernel keeps their inodes.
pub struct HeldRules(#[expect(dead_code, reason = "held, not used")] Vec<PathFd>);

/// Returns whether the kernel has Landlock and has it enabled. A separate thread tries, because that thread stays
/// confined.
pub fn has_landlock() -> bool {
    let tried = std::thread::Builder::new().spawn(|| {
        let rules = Ruleset::default().handle_access(AccessFs::Execute)?;
        rules.create()?.restrict_self()
    });
    let status = tried.ok().and_then(|tried| tried.join().ok());
    status.is_some_and(|s| s.is_ok_and(|s| s.ruleset != RulesetStatus::NotEnforced))
}

/// System calls that have the same name on every architecture with seccomp.
const CALLS: &[libc::c_long] = &[
    // Data of the image, of channels, of control clients.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_lseek,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_fallocate,
    libc::SYS_ftruncate,
    libc::SYS_copy_file_range,
    libc::SYS_fadvise64,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_fstatfs,
    libc::SYS_flock,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_close,
    libc::SYS_close_range,
    // Clients of the control socket: connections are accepted, but none are opened.
    libc::SYS_accept4,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_shutdown,
    libc::SYS_socketpair,
    libc::SYS_ppoll,
    // Waits for child processes that were started before: the `extant-remote` that read the image's properties, and the keeper.
    libc::SYS_wait4,
    // Memory.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_membarrier,
    // Threads and time.
    libc::SYS_clone3,
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_getcpu,
    libc::SYS_getrandom,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_getrusage,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Further calls of serving over io_uring, because each new thread makes its own ring. A filter of calls cannot see
/// the operations of a ring; Landlock covers them.
const RING_CALLS: &[libc::c_long] = &[
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// Calls that only this processor has.
#[cfg(target_arch = "x86_64")]
const OLD_CALLS: &[libc::c_long] = &[
    libc::SYS_poll,
    libc::SYS_ustat,
    libc::SYS_time,
    libc::SYS_getrlimit,
    libc::SYS_epoll_wait,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_CALLS: &[libc::c_long] = &[];

/// Allowed ioctls: discarding blocks of a device, and reading the width of a terminal.
const IOCTLS: [u64; 3] = [BLKDISCARD, TIOCGWINSZ, TCGETS];
const BLKDISCARD: u64 = 0x1277;
const TIOCGWINSZ: u64 = 0x5413;
const TCGETS: u64 = 0x5401;

/// Commands of fcntl that make a file signal a process; libc names only the third such command.
const F_SETSIG: libc::c_int = 10;
const F_SETOWN_EX: libc::c_int = 15;

/// Returns a condition on a 64-bit argument of a call.
fn argument(index: u8, op: SeccompCmpOp, value: u64) -> Result<SeccompRule> {
    argument_of(SeccompCmpArgLen::Qword, index, op, value)
}

/// Returns a condition on an argument of a call, of which the kernel compares `len` bits.
fn argument_of(
    len: SeccompCmpArgLen,
    index: u8,
    op: SeccompCmpOp,
    value: u64,
) -> Result<SeccompRule> {
    let condition = SeccompCondition::new(index, len, op, value)?;
    Ok(SeccompRule::new(vec![condition])?)
}

/// Builds the list of allowed calls.
fn filter(needs: &Needs<'_>) -> Result<SeccompFilter> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    let rings = if needs.rings { RING_CALLS } else { &[] };
    for &call in CALLS.iter().chain(OLD_CALLS).chain(rings) {
        rules.insert(call, Vec::new());
    }
    // Executable memory is never allowed.
    let exec = libc::PROT_EXEC as u64;
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        let not_run = argument(2, SeccompCmpOp::MaskedEq(exec), 0)?;
        rules.insert(call, vec![not_run]);
    }
    // Threads, but no processes.
    let thread = libc::CLONE_THREAD as u64;
    let threads = argument(0, SeccompCmpOp::MaskedEq(thread), thread)?;
    rules.insert(libc::SYS_clone, vec![threads]);
    // Signals to threads of this process only, because Landlock confines signals only since Linux 6.12.
    let own = argument_of(
        SeccompCmpArgLen::Dword,
        0,
        SeccompCmpOp::Eq,
        std::process::id().into(),
    )?;
    rules.insert(libc::SYS_tgkill, vec![own]);
    // A file that signals readiness must not signal another process either.
    let no_signal = [libc::F_SETOWN, F_SETSIG, F_SETOWN_EX].map(|command| {
        SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, command as u64)
    });
    let no_signal = no_signal.into_iter().collect::<Result<_, _>>()?;
    rules.insert(libc::SYS_fcntl, vec![SeccompRule::new(no_signal)?]);
    // The calling thread may bind only itself to CPUs.
    let itself = argument_of(SeccompCmpArgLen::Dword, 0, SeccompCmpOp::Eq, 0)?;
    rules.insert(libc::SYS_sched_setaffinity, vec![itself]);
    let ioctls = IOCTLS.map(|number| argument(1, SeccompCmpOp::Eq, number));
    rules.insert(libc::SYS_ioctl, ioctls.into_iter().collect::<Result<_>>()?);
    let names = [libc::PR_SET_NAME as u64, libc::PR_SET_VMA as u64];
    let names = names.map(|option| argument(0, SeccompCmpOp::Eq, option));
    rules.insert(libc::SYS_prctl, names.into_iter().collect::<Result<_>>()?);
    // Limits can be read but not set.
    let read = argument(2, SeccompCmpOp::Eq, 0)?;
    rules.insert(libc::SYS_prlimit64, vec![read]);
    let there = |own: &BorrowedFd<'_>| {
        let fd = u64::try_from(own.as_raw_fd()).context("a descriptor")?;
        argument_of(SeccompCmpArgLen::Dword, 0, SeccompCmpOp::Eq, fd)
    };
    let there: Vec<_> = needs.own.iter().map(there).collect::<Result<_>>()?;
    if !there.is_empty() {
        rules.insert(libc::SYS_unlinkat, there);
    }
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    let arch = std::env::consts::ARCH.try_into()?;
    Ok(SeccompFilter::new(
        rules,
        refused,
        SeccompAction::Allow,
        arch,
    )?)
}

/// Builds the filter that makes clone3 fail, because a filter cannot see its flags. The C library then starts threads
/// with clone.
fn without_clone3() -> Result<SeccompFilter> {
    let rules = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let unknown = SeccompAction::Errno(libc::ENOSYS as u32);
    let arch = std::env::consts::ARCH.try_into()?;
    Ok(SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        unknown,
        arch,
    )?)
}

/// Differences between the needs of servers.
pub struct Needs<'a> {
    /// Directories in which the server removes a name when it ends.
    pub own: Vec<BorrowedFd<'a>>,
    /// The server uses io_uring.
    pub rings: bool,
}

/// Allows only the system calls that serving needs, for all threads of this process.
pub fn calls(needs: &Needs<'_>) -> Result<()> {
    // The second filter allows no further filter. The strictest filter wins, so the second filter may allow clone3.
    for filter in [without_clone3()?, filter(needs)?] {
        let program: BpfProgram = filter.try_into()?;
        apply_filter_all_threads(&program)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    /// Memory pressure makes the kernel drop inodes that nobody holds.
    #[test]
    fn proc_stays_readable_when_the_kernel_drops_inodes() {
        needs::that!(
            rustix::process::geteuid().is_root(),
            "dropping inodes takes root"
        );
        let sockets = tempfile::tempdir().unwrap();
        let is_confined = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            // The rules stay with the thread until it ends.
            let confined = scope.spawn(|| {
                let held = paths(sockets.path(), None).unwrap();
                is_confined.wait();
                is_confined.wait();
                let read = std::fs::read("/proc/self/mountinfo");
                drop(held);
                read
            });
            is_confined.wait();
            std::fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
            is_confined.wait();
            confined.join().unwrap().unwrap();
        });
    }

    /// Evaluates a filter for a call: interprets the part of BPF that seccompiler emits, over `struct seccomp_data`.
    fn answer(program: &BpfProgram, call: libc::c_long, args: [u64; 6]) -> u32 {
        const LOAD: u16 = 0x20;
        const AND: u16 = 0x54;
        const JUMP: u16 = 0x05;
        const EQUAL: u16 = 0x15;
        const GREATER: u16 = 0x25;
        const GREATER_OR_EQUAL: u16 = 0x35;
        const RETURN: u16 = 0x06;
        let mut data = Vec::new();
        data.extend((call as u32).to_ne_bytes());
        data.extend(architecture().to_ne_bytes());
        data.extend(0_u64.to_ne_bytes());
        data.extend(args.iter().flat_map(|arg| arg.to_ne_bytes()));
        let (mut at, mut a) = (0, 0_u32);
        loop {
            let step = &program[at];
            at += 1;
            let jump = |yes: bool| usize::from(if yes { step.jt } else { step.jf });
            match step.code {
                LOAD => {
                    let place = step.k as usize;
                    a = u32::from_ne_bytes(data[place..place + 4].try_into().unwrap());
                }
                AND => a &= step.k,
                JUMP => at += step.k as usize,
                EQUAL => at += jump(a == step.k),
                GREATER => at += jump(a > step.k),
                GREATER_OR_EQUAL => at += jump(a >= step.k),
                RETURN => return step.k,
                other => panic!("instruction {other:#x}"),
            }
        }
    }

    /// Returns `AUDIT_ARCH_*` of this processor.
    fn architecture() -> u32 {
        if cfg!(target_arch = "x86_64") {
            0xc000_003e
        } else {
            0xc000_00b7
        }
    }

    const ALLOWED: u32 = 0x7fff_0000;
    const REFUSED: u32 = 0x0005_0000 | libc::EPERM as u32;

    #[test]
    fn calls_that_reach_beyond_the_process_are_refused() {
        let directory = std::fs::File::open("/").unwrap();
        let needs = Needs {
            own: vec![directory.as_fd()],
            rings: false,
        };
        let program: BpfProgram = filter(&needs).unwrap().try_into().unwrap();
        let own = u64::from(std::process::id());
        let fd = directory.as_raw_fd() as u64;
        let table: &[(libc::c_long, [u64; 3], u32)] = &[
            (libc::SYS_read, [0, 0, 0], ALLOWED),
            (libc::SYS_execve, [0, 0, 0], REFUSED),
            (libc::SYS_openat, [0, 0, 0], REFUSED),
            (libc::SYS_socket, [0, 0, 0], REFUSED),
            (libc::SYS_connect, [0, 0, 0], REFUSED),
            (libc::SYS_ptrace, [0, 0, 0], REFUSED),
            (libc::SYS_kill, [own, 0, 0], REFUSED),
            (libc::SYS_rt_sigqueueinfo, [own, 0, 0], REFUSED),
            (libc::SYS_pidfd_send_signal, [0, 9, 0], REFUSED),
            // Signals.
            (libc::SYS_tgkill, [own, own, 9], ALLOWED),
            (libc::SYS_tgkill, [own + 1, own + 1, 9], REFUSED),
            (libc::SYS_tgkill, [1 << 32 | (own + 1), own, 9], REFUSED),
            (libc::SYS_fcntl, [3, libc::F_SETFL as u64, 0], ALLOWED),
            (libc::SYS_fcntl, [3, libc::F_SETOWN as u64, 1], REFUSED),
            (libc::SYS_fcntl, [3, F_SETOWN_EX as u64, 1], REFUSED),
            (libc::SYS_fcntl, [3, 1 << 32 | F_SETSIG as u64, 9], REFUSED),
            // Other threads and processes.
            (libc::SYS_wait4, [u64::MAX, 0, 0], ALLOWED),
            (libc::SYS_clone, [libc::CLONE_THREAD as u64, 0, 0], ALLOWED),
            (libc::SYS_clone, [libc::SIGCHLD as u64, 0, 0], REFUSED),
            (libc::SYS_sched_setaffinity, [0, 8, 0], ALLOWED),
            (libc::SYS_sched_setaffinity, [own, 8, 0], REFUSED),
            (libc::SYS_prlimit64, [own, 7, 0], ALLOWED),
            (libc::SYS_prlimit64, [own, 7, 4096], REFUSED),
            // Memory that can be run, other devices, other names.
            (libc::SYS_mmap, [0, 4096, libc::PROT_READ as u64], ALLOWED),
            (libc::SYS_mmap, [0, 4096, libc::PROT_EXEC as u64], REFUSED),
            (
                libc::SYS_mprotect,
                [0, 4096, libc::PROT_EXEC as u64],
                REFUSED,
            ),
            (libc::SYS_ioctl, [3, BLKDISCARD, 0], ALLOWED),
            (libc::SYS_ioctl, [3, 0x4004_9409, 0], REFUSED),
            (libc::SYS_unlinkat, [fd, 0, 0], ALLOWED),
            (libc::SYS_unlinkat, [libc::AT_FDCWD as u64, 0, 0], REFUSED),
            (libc::SYS_io_uring_setup, [8, 0, 0], REFUSED),
        ];
        for &(call, [a, b, c], expected) in table {
            let answer = answer(&program, call, [a, b, c, 0, 0, 0]);
            assert_eq!(answer, expected, "call {call} with {a:#x}, {b:#x}, {c:#x}");
        }
    }
}
