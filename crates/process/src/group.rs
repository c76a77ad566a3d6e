//! The process group of a program: signals reach the program and everything it started.

/// The process group that a program leads.
#[cfg(unix)]
#[derive(Debug)]
pub(crate) struct Group(pub(crate) rustix::process::Pid);

#[cfg(unix)]
impl Group {
    pub(crate) fn of(child: &tokio::process::Child) -> Option<Group> {
        let number = i32::try_from(child.id()?).ok()?;
        rustix::process::Pid::from_raw(number).map(Group)
    }

    pub(crate) fn terminate(&self) {
        self.signal(rustix::process::Signal::TERM);
    }

    pub(crate) fn kill(&self) {
        self.signal(rustix::process::Signal::KILL);
    }

    fn signal(&self, signal: rustix::process::Signal) {
        // It fails only if the group is already empty.
        rustix::process::kill_process_group(self.0, signal).ok();
    }
}

/// For systems without process groups: the program itself is killed, its children are not.
#[cfg(not(unix))]
#[derive(Debug)]
pub(crate) struct Group;

#[cfg(not(unix))]
impl Group {
    pub(crate) fn of(_child: &tokio::process::Child) -> Option<Group> {
        None
    }

    pub(crate) fn terminate(&self) {}

    pub(crate) fn kill(&self) {}
}
