//! Operations on sockets: accept, connect, receive, send.
//!
//! Making, binding and configuring a socket waits for nothing and is an ordinary call: see
//! [`net`](crate::net). Sends never raise SIGPIPE, and what is accepted is closed on exec.

use crate::{
    buf::{Buffer, BufferGroup, OwnedBuffer, OwnedBufferMut},
    descriptor::Target,
    net::Address,
    op::{Kind, Manner, Opcode, Operation},
    sys::message::Message,
};

impl Operation {
    /// Accepts one connection, as accept4(2); the completion gives it with
    /// [`into_descriptor`](crate::Completion::into_descriptor).
    /// [`net::peer_address`](crate::net::peer_address) gives the address of the other end.
    ///
    /// On classic calls the listener is set to not block (`O_NONBLOCK`), for nobody else can keep
    /// a thread from waiting in accept4(2) for a connection that has gone.
    ///
    /// Needs Linux 5.5 on the ring.
    pub fn accept(listener: impl Into<Target>) -> Operation {
        Operation::of(Kind::Accept { target: listener.into(), outcome: None })
    }

    /// Accepts connections as they come: a completion for each, of which all but the last say
    /// [`has_more`](crate::Completion::has_more). It ends when it is cancelled, or with an error
    /// of the listener.
    ///
    /// If a single connection fails before it is accepted (`ECONNABORTED` and others of accept(2)), the
    /// operation goes on without a completion for it. At the limit of open descriptors (`EMFILE`, `ENFILE`)
    /// it is parked, and goes on when a [`Descriptor`](crate::Descriptor) of this process closes; where
    /// others are closed, [`Local::rearm_accepts`](crate::Local::rearm_accepts) says so. The limit that
    /// counts on a ring is that of the moment when this is pushed (io_uring/net.c): raise it before.
    ///
    /// Needs Linux 5.19 on the ring; before, the loop accepts one by one.
    pub fn accept_multi(listener: impl Into<Target>) -> Operation {
        Operation::of(Kind::AcceptMulti { target: listener.into(), armed_at: 0 })
    }

    /// Connects a socket, as connect(2). The result is 0. Needs Linux 5.5 on the ring.
    pub fn connect(socket: impl Into<Target>, address: impl Into<Address>) -> Operation {
        let address = address.into();
        let address = address.to_raw().map(Box::new).ok_or(address);
        Operation::of(Kind::Connect { target: socket.into(), address })
    }

    /// Receives into the selected part of `buffer`, as recv(2): the result is the number of
    /// bytes, 0 when the other end sends no more. A cancelled receive took nothing out of the
    /// socket. Needs Linux 5.6 on the ring.
    pub fn recv(socket: impl Into<Target>, buffer: impl OwnedBufferMut) -> Operation {
        Operation::of(Kind::Receive { target: socket.into(), buffer: buffer.into_buffer_mut() })
    }

    /// As [`recv`](Self::recv), into several buffers in turn; at most 1024.
    pub fn recv_vectored(socket: impl Into<Target>, buffers: Vec<Buffer>) -> Operation {
        let buffers = buffers.into_iter().map(OwnedBufferMut::into_buffer_mut).collect();
        let message = Box::new(Message::new(buffers, None));
        Operation::of(Kind::ReceiveMessage { target: socket.into(), message })
    }

    /// Receives as data comes, each time into a buffer of `group`, which is chosen when there is
    /// something to be received: a socket that is silent keeps none.
    ///
    /// Each completion gives what it brought with
    /// [`into_received`](crate::Completion::into_received). All but the last say
    /// [`has_more`](crate::Completion::has_more); the last is a result of 0 (the other end sends
    /// no more), an error, or [`Cancelled`](crate::ErrorKind::Cancelled). When all buffers of the
    /// group are out the operation is parked inside the loop, and goes on when one comes back.
    ///
    /// # A sender that is too fast
    ///
    /// Completions come as fast as the other end sends and buffers return. To stop one sender,
    /// [cancel](Self::cancel) this operation, for instance when what is not yet answered passes a
    /// high mark, and push another when it falls below a low one. What was received before the
    /// cancel comes as completions before the last one, and all after it waits in the socket, so
    /// nothing is lost and the other end is held back by TCP.
    ///
    /// Needs Linux 6.0 on the ring. On Linux 5.19 the loop receives piece by piece. Before that, or if the
    /// kernel does not have the group ([`BufferGroup::refusal`]), the receive waits in an epoll set beside
    /// the ring.
    pub fn recv_multi(socket: impl Into<Target>, group: &BufferGroup) -> Operation {
        let group = group.clone();
        let target = socket.into();
        Operation::of(Kind::ReceiveMulti { target, group, armed_at: 0, has_received: false })
    }

    /// Receives a datagram and the address that it came from, as recvmsg(2): see
    /// [`Completion::address`](crate::Completion::address). What does not fit into the buffer is
    /// lost, as [`Completion::is_truncated`](crate::Completion::is_truncated) tells.
    pub fn recv_from(socket: impl Into<Target>, buffer: impl OwnedBufferMut) -> Operation {
        let message = Box::new(Message::new(vec![buffer.into_buffer_mut()], None));
        Operation::of(Kind::ReceiveMessage { target: socket.into(), message })
    }

    /// Sends as much of the selected part of `buffer` as the socket takes, as send(2); the result
    /// is the number of bytes. It waits until some can be sent. Needs Linux 5.6 on the ring.
    ///
    /// One send at a time for each connection: two of them may go out in any order.
    pub fn send(socket: impl Into<Target>, buffer: impl OwnedBuffer) -> Operation {
        Operation::sending(socket, buffer, Manner::Some)
    }

    /// As [`send`](Self::send), and waits until all of it is taken (`MSG_WAITALL`). A result that
    /// is less says that an error, a cancel or, on a ring before Linux 5.19, a full socket came in
    /// between: send the rest to learn which.
    pub fn send_all(socket: impl Into<Target>, buffer: impl OwnedBuffer) -> Operation {
        Operation::sending(socket, buffer, Manner::Whole)
    }

    /// Sends, and gives no completion if the socket takes all bytes at once, as it usually does for small
    /// answers. It never waits.
    ///
    /// After the [`submit`](crate::Local::submit) that handed it over there are two cases. All of
    /// it was taken: then nothing comes, and the buffer is dropped. Or the socket is full, or an
    /// error came: then its completion is among those that are ready; the result is the number of
    /// bytes that were taken, 0 among them, or the error, and the rest is to be sent by
    /// [`send_all`](Self::send_all). So take the completions of one submit before the next send
    /// to the same connection, and push one of these for each connection at a time.
    ///
    /// It takes a slot of the loop until the submit. [`Local::run`](crate::Local::run) refuses it.
    pub fn send_quiet(socket: impl Into<Target>, buffer: impl OwnedBuffer) -> Operation {
        Operation::sending(socket, buffer, Manner::Quiet)
    }

    /// As [`send_all`](Self::send_all), without a copy where the kernel and the socket can do that
    /// (Linux 6.0, TCP and UDP): worth it for large buffers to another machine, and a loss for
    /// small ones. The completion comes when the other end has the data and the memory is free
    /// again.
    pub fn send_zero_copy(socket: impl Into<Target>, buffer: impl OwnedBuffer) -> Operation {
        Operation::sending(socket, buffer, Manner::ZeroCopy { sent: None })
    }

    fn sending(target: impl Into<Target>, buffer: impl OwnedBuffer, manner: Manner) -> Operation {
        Operation::of(Kind::Send { target: target.into(), buffer: buffer.into_buffer(), manner })
    }

    /// As [`send`](Self::send), of several buffers in turn; at most 1024.
    pub fn send_vectored(socket: impl Into<Target>, buffers: Vec<Buffer>) -> Operation {
        Operation::sending_message(socket, buffers, None, Manner::Some)
    }

    /// As [`send_all`](Self::send_all), of several buffers in turn; at most 1024.
    pub fn send_all_vectored(socket: impl Into<Target>, buffers: Vec<Buffer>) -> Operation {
        Operation::sending_message(socket, buffers, None, Manner::Whole)
    }

    /// Sends a datagram to an address, as sendmsg(2).
    pub fn send_to(
        socket: impl Into<Target>,
        buffer: impl OwnedBuffer,
        address: impl Into<Address>,
    ) -> Operation {
        Operation::sending_message(
            socket,
            vec![buffer.into_buffer()],
            Some(address.into()),
            Manner::Some,
        )
    }

    fn sending_message(
        target: impl Into<Target>,
        buffers: Vec<Buffer>,
        address: Option<Address>,
        manner: Manner,
    ) -> Operation {
        let message = Box::new(Message::new(buffers, address));
        Operation::of(Kind::SendMessage { target: target.into(), message, manner })
    }

    /// Whether it has exactly one completion.
    pub(crate) fn completes_once(&self) -> bool {
        !self.is_watched() || self.opcode() == Opcode::SendZeroCopy
    }

    /// Whether it may have several results, or none.
    pub(crate) fn is_watched(&self) -> bool {
        match self.0.as_deref() {
            Some(Kind::AcceptMulti { .. } | Kind::ReceiveMulti { .. }) => true,
            Some(Kind::Send { manner, .. }) => !matches!(manner, Manner::Some | Manner::Whole),
            _ => false,
        }
    }
}
