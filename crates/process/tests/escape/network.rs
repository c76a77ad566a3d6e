//! Attempts to use the network. The driver counts the connections that arrive.

use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};

use crate::attempts::{Attempt, World};
use crate::system::{address, address_mut, c_path, call, socket, works};

fn connects(world: &World, host: &str, port: &str) -> bool {
    let port = u16::try_from(world.number(port)).unwrap_or(0);
    port != 0 && TcpStream::connect((host, port)).is_ok()
}

/// An address of the loopback, as the system wants it.
fn loopback(port: i32) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: u16::try_from(port).unwrap_or(0).to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes([127, 0, 0, 1]) },
        sin_zero: [0; 8],
    }
}

fn connects_by_multipath(world: &World) -> bool {
    let fd = socket(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_MPTCP);
    let to = loopback(world.number("tcp"));
    let size = size_of::<libc::sockaddr_in>() as libc::c_long;
    fd >= 0 && works(libc::SYS_connect, &[fd.into(), address(&to), size])
}

/// Sends the first data with the call that connects.
fn connects_fast(world: &World) -> bool {
    let fd = socket(libc::AF_INET, libc::SOCK_STREAM, 0);
    let to = loopback(world.number("tcp"));
    let data = *b"escaped";
    let size = size_of::<libc::sockaddr_in>() as libc::c_long;
    // `sendto` takes the address in its fifth argument and the size of it in a sixth, which `call` does not pass. So the
    // socket is connected first, and the address is null.
    let flags = libc::c_long::from(libc::MSG_FASTOPEN);
    fd >= 0
        && works(libc::SYS_connect, &[fd.into(), address(&to), size])
        && call(libc::SYS_sendto, &[fd.into(), address(&data), 7, flags, 0]) > 0
}

fn sends(world: &World) -> bool {
    let port = u16::try_from(world.number("udp")).unwrap_or(0);
    let Ok(socket) = UdpSocket::bind("127.0.0.1:0") else { return false };
    // Sending may succeed without arriving, so the listener answers.
    let timeout = Some(std::time::Duration::from_millis(300));
    socket.set_read_timeout(timeout).is_ok()
        && socket.send_to(b"escaped", ("127.0.0.1", port)).is_ok()
        && socket.recv(&mut [0; 8]).is_ok()
}

/// Unix sockets cannot be created one by one, but a pair of them may send to others as well.
fn sends_from_pair(world: &World, kind: libc::c_int) -> bool {
    let mut pair: [libc::c_int; 2] = [0; 2];
    let kind = libc::c_long::from(kind);
    if !works(libc::SYS_socketpair, &[libc::AF_UNIX.into(), kind, 0, address_mut(&mut pair)]) {
        return false;
    }
    let mut to: libc::sockaddr_un = libc::sockaddr_un { sun_family: 1, sun_path: [0; 108] };
    for (to, from) in to.sun_path.iter_mut().zip(c_path(&world.outside("datagrams")).as_bytes()) {
        *to = from.cast_signed();
    }
    // Connected again, to the outside, and then used like any socket.
    let size = size_of::<libc::sockaddr_un>() as libc::c_long;
    let data = *b"escaped";
    works(libc::SYS_connect, &[pair[0].into(), address(&to), size])
        && call(libc::SYS_write, &[pair[0].into(), address(&data), 7]) > 0
}

fn abstract_address(world: &World) -> Option<SocketAddr> {
    SocketAddr::from_abstract_name(world.text("abstract")).ok()
}

pub(crate) const ATTEMPTS: &[Attempt] = &[
    ("E29", "connect to the loopback", |w| connects(w, "127.0.0.1", "tcp")),
    ("E30", "connect to the IPv6 loopback", |w| connects(w, "::1", "tcp6")),
    ("E31", "connect with multipath TCP", connects_by_multipath),
    ("E32", "connect with TCP Fast Open", connects_fast),
    ("E33", "send a datagram to the loopback", sends),
    ("E34", "listen for connections", |_| TcpListener::bind("127.0.0.1:0").is_ok()),
    ("E35", "raw ICMP socket", |_| socket(libc::AF_INET, libc::SOCK_RAW, 1) >= 0),
    ("E36", "ping socket", |_| socket(libc::AF_INET, libc::SOCK_DGRAM, 1) >= 0),
    ("E37", "netlink socket", |_| socket(libc::AF_NETLINK, libc::SOCK_RAW, 0) >= 0),
    ("E38", "open a vsock socket", |_| socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0) >= 0),
    ("E39", "packet socket", |_| socket(libc::AF_PACKET, libc::SOCK_RAW, 0) >= 0),
    ("E40", "open a kernel crypto socket (AF_ALG)", |_| {
        socket(libc::AF_ALG, libc::SOCK_SEQPACKET, 0) >= 0
    }),
    ("E41", "connect to an abstract local socket", |w| {
        abstract_address(w).is_some_and(|name| UnixStream::connect_addr(&name).is_ok())
    }),
    ("E42", "connect to a local socket outside", |w| {
        UnixStream::connect(w.outside("socket")).is_ok()
    }),
    ("E61", "open a socket through the x32 system call table", |_| {
        let x32 = 0x4000_0000;
        works(libc::SYS_socket | x32, &[libc::AF_UNIX.into(), libc::SOCK_STREAM.into(), 0])
    }),
    ("E94", "send to a local datagram socket outside", |w| {
        UnixDatagram::unbound()
            .is_ok_and(|socket| socket.send_to(b"escaped", w.outside("datagrams")).is_ok())
    }),
    ("E100", "send from a pair of datagram sockets to a socket outside", |w| {
        sends_from_pair(w, libc::SOCK_DGRAM)
    }),
    ("E101", "send from a pair of raw local sockets to a socket outside", |w| {
        sends_from_pair(w, libc::SOCK_RAW)
    }),
    ("E95", "connect to a hidden local socket", |w| {
        UnixStream::connect(w.secret("socket")).is_ok()
    }),
    ("E96", "reach the network outside this machine", |_| {
        // Nothing is sent: choosing a route is enough to see whether one exists.
        let Ok(socket) = UdpSocket::bind("0.0.0.0:0") else { return false };
        socket.connect("192.0.2.1:9").is_ok()
    }),
];
