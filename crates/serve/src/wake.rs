//! Why the dispatcher wakes: the closed list of everything that can reach it.

/// A reason to wake.
pub(crate) enum Wake {
    /// The client sent bytes.
    Bytes(Vec<u8>),
    /// The client closed our input, or we were told to stop.
    Stop,
    /// Sessions or the hub sent something, which is in the dispatcher's buffer. These calls of ours were abandoned before.
    Sessions(Vec<u64>),
    /// This call of ours was abandoned.
    Abandoned(u64),
    /// The writer is free again; an error means that the client closed our output.
    Written(std::io::Result<Vec<u8>>),
    /// Text that was delayed may be sent now, or the client has read nothing for too long: how far the writer is.
    Time(u64),
}
