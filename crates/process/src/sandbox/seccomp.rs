//! System calls that no command needs and every escape wants. Refused with an error, so that programs can go on.

use std::collections::BTreeMap;

use libc::{c_int, c_long};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use super::order::Sockets;

/// The calls of the other 64-bit table of x86 have this bit, and would pass a filter that does not name them.
#[cfg(target_arch = "x86_64")]
const X32: c_long = 0x4000_0000;

/// An old way to see whole packets, of a name that is not to be used any more.
const SOCK_PACKET: c_int = 10;

/// Refuses what commands must not do, for this process and all its children, for good.
pub(super) fn restrict(sockets: Sockets) -> Result<(), seccompiler::Error> {
    for filter in filters(sockets)? {
        seccompiler::apply_filter(&filter)?;
    }
    Ok(())
}

fn filters(sockets: Sockets) -> Result<[BpfProgram; 2], seccompiler::Error> {
    // The flags of clone3 are behind a pointer that a filter cannot follow; programs fall back to clone.
    let unknown = filter(libc::ENOSYS, BTreeMap::from([(libc::SYS_clone3, Vec::new())]))?;
    let mut refused: BTreeMap<i64, Vec<SeccompRule>> =
        NEVER.iter().chain(NEVER_HERE).map(|call| (*call, Vec::new())).collect();
    refused.extend(sometimes(sockets)?);
    #[cfg(target_arch = "x86_64")]
    {
        let others: Vec<_> =
            refused.iter().map(|(call, rules)| (call | X32, rules.clone())).collect();
        refused.extend(others);
    }
    Ok([unknown, filter(libc::EPERM, refused)?])
}

fn filter(
    errno: c_int,
    rules: BTreeMap<i64, Vec<SeccompRule>>,
) -> Result<BpfProgram, seccompiler::Error> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let refuse = SeccompAction::Errno(errno.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch)?;
    Ok(BpfProgram::try_from(filter)?)
}

/// Refused whatever the arguments.
const NEVER: &[c_long] = &[
    // Other processes: their memory, their files, their identity.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // System calls by another way.
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
    // Keys and queues that outlive the command.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
];

#[cfg(target_arch = "x86_64")]
const NEVER_HERE: &[c_long] = &[libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_modify_ldt];

#[cfg(not(target_arch = "x86_64"))]
const NEVER_HERE: &[c_long] = &[];

/// Refused with some arguments: the rules of a call are alternatives, the conditions of a rule hold together.
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
    let spaces = [
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWCGROUP,
    ];
    let clone =
        spaces.iter().map(|space| all(vec![has_bit(0, *space)?])).collect::<Result<_, _>>()?;
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
    let mut rules = vec![
        (libc::SYS_clone, clone),
        (libc::SYS_socket, socket),
        (libc::SYS_socketpair, vec![all(vec![is(0, Ne, libc::AF_UNIX)?])?]),
        (libc::SYS_ioctl, terminal),
        (libc::SYS_mknodat, device(2)?),
        // Of others; 0 is the caller itself.
        (libc::SYS_prlimit64, vec![all(vec![is(0, Ne, 0)?])?]),
        (libc::SYS_setpriority, vec![all(vec![is(1, Ne, 0)?])?]),
    ];
    #[cfg(target_arch = "x86_64")]
    rules.push((libc::SYS_mknod, device(1)?));
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_filters_fit_into_the_kernel() {
        for sockets in [Sockets::None, Sockets::Internet] {
            for filter in filters(sockets).unwrap() {
                assert!(filter.len() <= 4096, "{}", filter.len());
            }
        }
    }
}
