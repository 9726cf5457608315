//! A peer that has vanished, on the real kernel: what comes for it is dropped before TCP sees it,
//! so that nothing is acknowledged and nobody is told, as of a machine without power.

use std::{net::TcpStream, os::fd::AsRawFd};

/// Lets nothing reach a socket any more: a filter that keeps no byte of any segment (socket(7),
/// `SO_ATTACH_FILTER`; net/ipv4/tcp_ipv4.c, tcp_filter). It needs no privilege.
pub fn deafen(peer: &TcpStream) {
    // BPF_RET | BPF_K.
    let mut nothing = [libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 }];
    let program = libc::sock_fprog { len: 1, filter: nothing.as_mut_ptr() };
    // SAFETY: the program and the one instruction that it points to outlive the call, which copies
    // them.
    let result = unsafe {
        libc::setsockopt(
            peer.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of_val(&program) as libc::socklen_t,
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}
