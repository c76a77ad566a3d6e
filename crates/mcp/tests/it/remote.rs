//! Servers on the network, here on this machine: streamable HTTP, the older server-sent events, and their faults.
