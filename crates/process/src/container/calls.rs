//! The system calls that a container allows, in the format of OCI runtimes.
//!
//! It is narrower than what the engines allow by themselves: nothing that makes namespaces or mounts, and nothing that sets the bit of
//! programs that run as their owner. A file with that bit in the project would let other users of the machine act as its owner, who
//! is root if the engine is root's. See `sandbox::seccomp`, which refuses the same to commands in the sandbox.

use std::io::Write;
use std::path::{Path, PathBuf};

/// Calls that are allowed whatever their arguments. The runtime refuses all others; it ignores names that it does not know.
const ALLOWED: &str = "
accept accept4 access adjtimex alarm arch_prctl bind brk cachestat capget capset chdir chown clock_getres clock_gettime clock_nanosleep
close close_range connect copy_file_range dup dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd
eventfd2 execve execveat exit exit_group faccessat faccessat2 fadvise64 fallocate fchdir fchown fchownat fcntl fdatasync fgetxattr
flistxattr flock fork fremovexattr fsetxattr fstat fstatfs fsync ftruncate futex futex_requeue futex_wait futex_waitv futex_wake futimesat
get_robust_list get_thread_area getcpu getcwd getdents getdents64 getegid geteuid getgid getgroups getitimer getpeername getpgid getpgrp
getpid getppid getpriority getrandom getresgid getresuid getrlimit getrusage getsid getsockname getsockopt gettid gettimeofday getuid
getxattr inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents io_setup io_submit
ioctl ioprio_get ioprio_set kill landlock_add_rule landlock_create_ruleset landlock_restrict_self lchown lgetxattr link linkat listen
listxattr llistxattr lremovexattr lseek lsetxattr lstat madvise map_shadow_stack membarrier memfd_create memfd_secret mincore mkdir mkdirat
mlock mlock2 mlockall mmap mprotect mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink mremap mseal msgctl msgget
msgrcv msgsnd msync munlock munlockall munmap nanosleep newfstatat pause pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free
pkey_mprotect poll ppoll prctl pread64 preadv preadv2 prlimit64 process_mrelease process_vm_readv process_vm_writev pselect6 ptrace pwrite64
pwritev pwritev2 read readahead readlink readlinkat readv recvfrom recvmmsg recvmsg remap_file_pages removexattr rename renameat renameat2
restart_syscall rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait
rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler
sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield seccomp select semctl semget semop
semtimedop sendfile sendmmsg sendmsg sendto set_robust_list set_thread_area set_tid_address setfsgid setfsuid setgid setgroups setitimer
setpgid setpriority setregid setresgid setresuid setreuid setrlimit setsid setsockopt setuid setxattr shmat shmctl shmdt shmget shutdown
sigaltstack signalfd signalfd4 socketpair splice stat statfs statx symlink symlinkat sync sync_file_range syncfs sysinfo tee tgkill time
timer_create timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime times tkill truncate
umask uname unlink unlinkat utime utimensat utimes vfork vmsplice wait4 waitid write writev";

/// `S_ISUID`.
const SET_UID: u64 = 0o4000;
/// `O_CREAT`, and the flag that creates a file without a name.
const CREATES: u64 = 0o100 | 0o20_000_000;
/// The flags of `clone` that make namespaces.
const SPACES: u64 = 0x7e02_0000;
/// `AF_UNIX`, `AF_INET`, `AF_INET6` and `AF_NETLINK`.
const FAMILIES: [u64; 4] = [1, 2, 10, 16];
/// The ways of running programs that change nothing but addresses and what `uname` reports; the last asks.
const PERSONALITIES: [u64; 5] = [0, 8, 0x2_0000, 0x2_0008, 0xffff_ffff];

/// Writes the rules to a directory of ours, if they are not there yet, and returns the file.
pub(super) fn file_in(directory: &Path) -> std::io::Result<PathBuf> {
    let path = directory.join("container-calls.json");
    let text = rules();
    if std::fs::read_to_string(&path).is_ok_and(|known| known == text) {
        return Ok(path);
    }
    std::fs::create_dir_all(directory)?;
    // Another process may read it at the same time.
    let unfinished = directory.join(format!("container-calls.{}", std::process::id()));
    std::fs::File::create(&unfinished)?.write_all(text.as_bytes())?;
    std::fs::rename(&unfinished, &path)?;
    Ok(path)
}

fn rules() -> String {
    let allow = |names: &[&str], conditions: &str| {
        let names: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
        format!(
            "{{\"names\":[{}],\"action\":\"SCMP_ACT_ALLOW\",\"args\":[{conditions}]}}",
            names.join(",")
        )
    };
    let condition = |index: u32, value: u64, other: u64, operator: &str| {
        format!(
            "{{\"index\":{index},\"value\":{value},\"valueTwo\":{other},\"op\":\"SCMP_CMP_{operator}\"}}"
        )
    };
    let without = |index: u32, bits: u64| condition(index, bits, 0, "MASKED_EQ");
    let is = |value: u64| condition(0, value, 0, "EQ");
    let always: Vec<&str> = ALLOWED.split_whitespace().collect();
    let mut all = vec![
        allow(&always, ""),
        allow(&["chmod", "creat", "fchmod", "mknod"], &without(1, SET_UID)),
        allow(&["fchmodat", "fchmodat2", "mknodat"], &without(2, SET_UID)),
        allow(&["clone"], &without(0, SPACES)),
    ];
    // The mode follows the flags, and applies only if these create a file.
    for (call, flags) in [("open", 1), ("openat", 2)] {
        all.push(allow(&[call], &without(flags, CREATES)));
        all.push(allow(&[call], &without(flags + 1, SET_UID)));
    }
    all.extend(FAMILIES.map(|family| allow(&["socket"], &is(family))));
    all.extend(PERSONALITIES.map(|value| allow(&["personality"], &is(value))));
    // A filter cannot read what these get through a pointer; programs use clone and openat if they do not exist.
    let absent =
        "{\"names\":[\"clone3\",\"openat2\"],\"action\":\"SCMP_ACT_ERRNO\",\"errnoRet\":38}";
    all.push(absent.to_owned());
    format!("{{\"defaultAction\":\"SCMP_ACT_ERRNO\",\"syscalls\":[\n{}\n]}}\n", all.join(",\n"))
}
