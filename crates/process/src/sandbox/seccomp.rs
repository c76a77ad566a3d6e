//! Refuses system calls that no command needs and that an escape would use. They fail with an error, so that programs can continue.

use std::collections::BTreeMap;

use libc::{c_int, c_long};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

use super::helper_spec::Sockets;

/// System calls of the x32 ABI have this bit, and would bypass a filter that does not name them.
#[cfg(target_arch = "x86_64")]
const X32: u32 = 0x4000_0000;

/// The obsolete `SOCK_PACKET`, which sees raw packets.
const SOCK_PACKET: c_int = 10;

/// Installs the filter for this process and all its children, permanently.
pub(super) fn restrict(sockets: Sockets) -> Result<(), seccompiler::Error> {
    seccompiler::apply_filter(&filter(sockets)?)
}

/// The kernel runs the filter for every system call when it is installed, and again for calls that depend on arguments. So calls that
/// are always refused take one instruction each, before the others.
fn filter(sockets: Sockets) -> Result<BpfProgram, seccompiler::Error> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let rules: BTreeMap<i64, Vec<SeccompRule>> = sometimes(sockets)?.into_iter().collect();
    let (allow, refuse) = (SeccompAction::Allow, SeccompAction::Errno(libc::EPERM.unsigned_abs()));
    let mut program = BpfProgram::try_from(SeccompFilter::new(rules, allow, refuse, arch)?)?;
    program.splice(BEHIND_ARCH..BEHIND_ARCH, never());
    Ok(program)
}

/// How many instructions check the processor architecture. They come first.
const BEHIND_ARCH: usize = 3;

/// Returns the part of the filter for calls that are refused whatever their arguments.
fn never() -> Vec<sock_filter> {
    let number_of = |call: &c_long| u32::try_from(*call).unwrap_or_default();
    let mut checks: Vec<(u32, u32)> = Vec::new();
    #[cfg(target_arch = "x86_64")]
    checks.push((libc::BPF_JGE, X32));
    checks.extend(NEVER.iter().chain(NEVER_HERE).map(|call| (libc::BPF_JEQ, number_of(call))));
    let instruction = |code: u32, to: u8, value: u32| sock_filter {
        code: u16::try_from(code).unwrap_or_default(),
        jt: to,
        jf: 0,
        k: value,
    };
    let refuse = |errno: c_int| {
        instruction(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ERRNO | errno.unsigned_abs())
    };
    // Built from the end, where the jump distances are known.
    let mut part = vec![
        refuse(libc::ENOSYS),
        refuse(libc::EPERM),
        instruction(libc::BPF_JMP | libc::BPF_JA, 0, 2),
        // A filter cannot read what these get through a pointer; programs fall back to clone and openat.
        instruction(libc::BPF_JMP | libc::BPF_JEQ, 2, number_of(&libc::SYS_clone3)),
        instruction(libc::BPF_JMP | libc::BPF_JEQ, 3, number_of(&libc::SYS_openat2)),
        // What a later kernel adds is not known to be harmless; programs cope with its absence.
        instruction(libc::BPF_JMP | libc::BPF_JGE, 4, UNKNOWN),
    ];
    for ((operator, value), to) in checks.into_iter().rev().zip(4..) {
        part.push(instruction(libc::BPF_JMP | operator, to, value));
    }
    // The number of the call is at offset 0.
    part.push(instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0));
    part.reverse();
    part
}

/// The first system call that nothing here knows. The numbers of all processors are the same from 424 on.
const UNKNOWN: u32 = 463;

/// Calls that are refused whatever their arguments.
const NEVER: &[c_long] = &[
    // Other processes: their memory, their files, their identity.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Other ways to make system calls.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Namespaces and mounts.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    // The kernel itself.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    // Keys and queues, which outlive the command.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
];

/// The mode bit of programs that run as their owner.
const SET_UID: c_int = libc::S_ISUID as c_int;
/// The flag that creates a file without a name, which can get one later.
const UNNAMED: c_int = libc::O_TMPFILE & !libc::O_DIRECTORY;
/// Newer than the C library's list.
const SYS_FCHMODAT2: c_long = 452;

#[cfg(target_arch = "x86_64")]
const NEVER_HERE: &[c_long] = &[libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_modify_ldt];

#[cfg(not(target_arch = "x86_64"))]
const NEVER_HERE: &[c_long] = &[];

/// The flags that make namespaces.
const SPACES: [c_int; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// Calls that are refused with some arguments: the rules of a call are alternatives, the conditions of a rule must all be true.
fn sometimes(sockets: Sockets) -> Result<Vec<(i64, Vec<SeccompRule>)>, seccompiler::Error> {
    use SeccompCmpOp::{Eq, MaskedEq, Ne};
    let is = |argument, operator, value: c_int| {
        let value = u64::from(value.cast_unsigned());
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
    };
    let all = |conditions: Vec<SeccompCondition>| SeccompRule::new(conditions);
    let has_bit = |argument, bit: c_int| {
        let mask = u64::from(bit.cast_unsigned());
        is(argument, MaskedEq(mask), bit)
    };
    let of_type =
        |argument, kind: u32| is(argument, MaskedEq(u64::from(libc::S_IFMT)), kind.cast_signed());
    let clone =
        SPACES.iter().map(|space| all(vec![has_bit(0, *space)?])).collect::<Result<_, _>>()?;
    let socket = match sockets {
        Sockets::None => Vec::new(),
        Sockets::Internet => {
            let kind = |kind| is(1, MaskedEq(0xf), kind);
            vec![
                all(vec![is(0, Ne, libc::AF_INET)?, is(0, Ne, libc::AF_INET6)?])?,
                all(vec![kind(libc::SOCK_RAW)?])?,
                all(vec![kind(SOCK_PACKET)?])?,
            ]
        }
    };
    let terminal = [libc::TIOCSTI, libc::TIOCLINUX]
        .iter()
        .map(|request| {
            let value = u64::from(*request as u32);
            all(vec![SeccompCondition::new(1, SeccompCmpArgLen::Dword, Eq, value)?])
        })
        .collect::<Result<_, _>>()?;
    let device = |argument| {
        Ok::<_, seccompiler::Error>(vec![
            all(vec![of_type(argument, libc::S_IFBLK)?])?,
            all(vec![of_type(argument, libc::S_IFCHR)?])?,
        ])
    };
    // A pair of datagram sockets can send to any socket by its path; connected ones can not.
    let pair = |kind| is(1, MaskedEq(0xf), kind);
    let socketpair = vec![
        all(vec![is(0, Ne, libc::AF_UNIX)?])?,
        all(vec![pair(libc::SOCK_DGRAM)?])?,
        all(vec![pair(libc::SOCK_RAW)?])?,
    ];
    let mut rules = vec![
        (libc::SYS_clone, clone),
        (libc::SYS_socket, socket),
        (libc::SYS_socketpair, socketpair),
        (libc::SYS_ioctl, terminal),
        (libc::SYS_mknodat, device(2)?),
        // For other processes; 0 is the caller itself.
        (libc::SYS_prlimit64, vec![all(vec![is(0, Ne, 0)?])?]),
        (libc::SYS_setpriority, vec![all(vec![is(1, Ne, 0)?])?]),
    ];
    #[cfg(target_arch = "x86_64")]
    rules.push((libc::SYS_mknod, device(1)?));
    for (call, more) in set_uid_rules()? {
        match rules.iter_mut().find(|(known, _)| *known == call) {
            Some((_, rules)) => rules.extend(more),
            None => rules.push((call, more)),
        }
    }
    Ok(rules)
}

/// Calls that would set the bit of programs that run as their owner: one in the workspace would let other users of the machine act
/// as this one.
fn set_uid_rules() -> Result<Vec<(i64, Vec<SeccompRule>)>, seccompiler::Error> {
    let has_bit = |argument, bit: c_int| {
        let bit = u64::from(bit.cast_unsigned());
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(bit), bit)
    };
    let sets = |argument| {
        Ok::<_, seccompiler::Error>(vec![SeccompRule::new(vec![has_bit(argument, SET_UID)?])?])
    };
    // The mode follows the flags, and applies only if these create a file.
    let creates = |flags| {
        let with =
            |flag| SeccompRule::new(vec![has_bit(flags, flag)?, has_bit(flags + 1, SET_UID)?]);
        Ok::<_, seccompiler::Error>(vec![with(libc::O_CREAT)?, with(UNNAMED)?])
    };
    let everywhere = [
        (libc::SYS_fchmod, sets(1)?),
        (libc::SYS_fchmodat, sets(2)?),
        (SYS_FCHMODAT2, sets(2)?),
        (libc::SYS_mknodat, sets(2)?),
        (libc::SYS_openat, creates(2)?),
    ];
    #[cfg(target_arch = "x86_64")]
    let older = [
        (libc::SYS_chmod, sets(1)?),
        (libc::SYS_creat, sets(1)?),
        (libc::SYS_mknod, sets(1)?),
        (libc::SYS_open, creates(1)?),
    ];
    #[cfg(not(target_arch = "x86_64"))]
    let older = [];
    Ok(everywhere.into_iter().chain(older).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_is_short_and_checks_the_architecture_first() {
        for sockets in [Sockets::None, Sockets::Internet] {
            let program = filter(sockets).unwrap();
            assert!(program.len() < 300, "{}", program.len());
            // Loads the architecture, continues if it is this one, and otherwise kills the process.
            assert_eq!((program[0].code, program[0].k), (0x20, 4));
            assert_eq!((program[1].code, program[1].jt), (0x15, 1));
            assert_eq!((program[2].code, program[2].k), (0x06, libc::SECCOMP_RET_KILL_PROCESS));
            assert_eq!((program[3].code, program[3].k), (0x20, 0));
        }
    }

    /// Interprets the filter: returns the result for a call.
    #[test]
    fn refused_calls_fail_and_others_continue() {
        let part = never();
        let end_of = |number: u32| {
            let mut at = 1;
            while let Some(now) = part.get(at) {
                at += 1;
                match now.code {
                    0x06 => return Some(now.k & 0xffff),
                    0x05 => at += usize::try_from(now.k).unwrap(),
                    0x15 if number == now.k => at += usize::from(now.jt),
                    0x35 if number >= now.k => at += usize::from(now.jt),
                    0x15 | 0x35 => at += usize::from(now.jf),
                    other => panic!("{other:#x}"),
                }
            }
            assert_eq!(at, part.len());
            None
        };
        for call in NEVER.iter().chain(NEVER_HERE) {
            assert_eq!(end_of(u32::try_from(*call).unwrap()), Some(1), "{call}");
        }
        for call in [libc::SYS_clone3, libc::SYS_openat2] {
            assert_eq!(end_of(u32::try_from(call).unwrap()), Some(38), "{call}");
        }
        for number in [UNKNOWN, UNKNOWN + 1, 467, 100_000] {
            assert_eq!(end_of(number), Some(38), "{number}");
        }
        for call in [libc::SYS_read, libc::SYS_clone, libc::SYS_socket, libc::SYS_execve] {
            assert_eq!(end_of(u32::try_from(call).unwrap()), None, "{call}");
        }
        #[cfg(target_arch = "x86_64")]
        assert_eq!(end_of(X32 | 1), Some(1));
    }
}
