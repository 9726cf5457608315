//! Finds the process that listens on a port of this machine, such as a server that somebody else started for a
//! benchmark.

use std::fs;

use crate::fact::{Fact, Sources};

/// Finds the process that has a listening TCP socket on `port`, from /proc/net/tcp and the descriptors of all
/// processes; proc_pid_net(5), proc_pid_fd(5). Only root can see the descriptors of other users.
pub fn listening_process(sources: &Sources, port: u16) -> Fact<u32> {
    let tables = ["net/tcp", "net/tcp6"].map(|table| sources.proc_text(table));
    let inodes: Vec<String> = tables
        .iter()
        .filter_map(Fact::known)
        .flat_map(|table| table.lines().filter_map(|line| listening_inode(line, port)))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    if inodes.is_empty() {
        return Fact::Unknown(format!("nothing on this machine listens on port {port}"));
    }
    let processes = fs::read_dir(&sources.proc).into_iter().flatten().flatten();
    let holds = |pid: &u32| {
        let descriptors = sources.proc.join(pid.to_string()).join("fd");
        let links = fs::read_dir(descriptors).into_iter().flatten().flatten();
        links
            .filter_map(|link| fs::read_link(link.path()).ok())
            .any(|target| inodes.iter().any(|inode| target.as_os_str() == inode.as_str()))
    };
    let mut numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let unseen = || format!("the process that listens on port {port} cannot be seen");
    Fact::of(numbers.find(holds), unseen)
}

/// Returns the inode of a line if it is a listening socket on the port.
fn listening_inode(line: &str, port: u16) -> Option<&str> {
    const LISTEN: &str = "0A";
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (_, local_port) = fields.get(1)?.rsplit_once(':')?;
    let is_it = fields.get(3) == Some(&LISTEN) && u16::from_str_radix(local_port, 16) == Ok(port);
    if is_it { fields.get(9).copied() } else { None }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn this_process_is_found_while_it_listens() {
        let sources = Sources::default();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(listening_process(&sources, port), Fact::Known(std::process::id()));
        drop(listener);
        let gone = listening_process(&sources, port);
        assert!(gone.reason().unwrap().contains("nothing on this machine listens"), "{gone:?}");
    }

    #[test]
    fn lines_of_the_table() {
        let line =
            "0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 77 1";
        assert_eq!(listening_inode(line, 8080), Some("77"));
        assert_eq!(listening_inode(line, 8081), None);
        assert_eq!(listening_inode(&line.replace(" 0A ", " 01 "), 8080), None);
        assert_eq!(listening_inode("sl local_address rem_address st", 8080), None);
    }
}
