//! Resource limits and privileges of a command.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

use super::profile::Limits;

/// Sets the limits of this process and all its children.
pub(super) fn restrict(limits: &Limits) -> Result<(), String> {
    let wanted = [
        (Resource::Core, 0, "core dumps"),
        // Not the address space: many programs reserve far more than they use.
        (Resource::Data, limits.memory, "memory"),
        (Resource::Nproc, limits.processes, "processes"),
        (Resource::Fsize, limits.file_size, "file size"),
        (Resource::Nofile, limits.open_files, "open files"),
    ];
    for (resource, most, name) in wanted {
        let most = getrlimit(resource).maximum.map_or(most, |now| now.min(most));
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })
            .map_err(|err| format!("the limit of {name} cannot be set: {err}"))?;
    }
    prefer_for_oom_kill();
    Ok(())
}

/// Makes the command the first to be killed when memory runs out. A failure is harmless.
pub(super) fn prefer_for_oom_kill() {
    std::fs::write("/proc/self/oom_score_adj", "500").ok();
}

/// Drops every privilege, and the ability to gain one.
pub(super) fn drop_privileges() -> Result<(), String> {
    let failed = |what: &str, err| format!("{what} cannot be dropped: {err}");
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        // Fails after the last capability, and for users without privileges.
        if remove_capability_from_bounding_set(capability).is_err() {
            break;
        }
    }
    clear_ambient_capability_set().map_err(|err| failed("ambient capabilities", err))?;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, sets).map_err(|err| failed("capabilities", err))?;
    set_no_new_privs(true).map_err(|err| failed("new privileges", err))
}
