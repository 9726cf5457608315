//! The printed rules let through all that the library does with a ring, and no more of
//! io_uring_register(2). A child installs them as a filter.

use std::collections::BTreeMap;
use std::process::Command;

use ringwise::{
    Backend, BackendChoice, BufferGroup, Builder, Descriptor, Guard, Local, Opcode, Operation,
};
use ringwise_doctor::{Args, Color, Program, run};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};

/// `IORING_REGISTER_PBUF_RING`.
const BUFFER_RING: u64 = 22;

/// The operations of io_uring_register(2) that the profile of a program allows.
fn allowed(program: Program) -> Vec<u64> {
    let args = Args { path: ".".into(), json: false, seccomp_profile: Some(program) };
    let mut printed = Vec::new();
    let _ = run(&args, &mut printed, Color::Never);
    let profile: serde_json::Value = serde_json::from_slice(&printed).unwrap();
    let rules = profile["syscalls"].as_array().unwrap().iter();
    let of_register = rules.filter(|rule| rule["names"][0] == "io_uring_register");
    of_register.map(|rule| rule["args"][0]["value"].as_u64().unwrap()).collect()
}

/// Answers `EPERM` to io_uring_register(2) unless its operation is one of these.
fn allow_only(operations: &[u64]) {
    let differs = |value: &u64| {
        SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, *value).unwrap()
    };
    let none_of_them = SeccompRule::new(operations.iter().map(differs).collect()).unwrap();
    let rules = BTreeMap::from([(libc::SYS_io_uring_register, vec![none_of_them])]);
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch).unwrap();
    apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
}

fn in_child(test: &str, body: impl FnOnce()) {
    const MARK: &str = "RINGWISE_TEST_CHILD";
    if std::env::var_os(MARK).is_some() {
        return body();
    }
    let this = std::env::current_exe().unwrap();
    let child = Command::new(this).args(["--exact", test]).env(MARK, "1").output().unwrap();
    let told = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && told.contains("1 passed"), "{told}");
}

/// A ring; nothing, and said so, where there is none or its kernel has no groups of buffers.
fn ring() -> Option<Builder> {
    let builder = Local::builder().backend(BackendChoice::Uring);
    let reason = match builder.clone().build() {
        Ok(mut local) => match BufferGroup::new(&mut local, 4, 64).unwrap().refusal() {
            None => return Some(builder),
            Some(refusal) => refusal.to_owned(),
        },
        Err(error) => error.to_string(),
    };
    assert!(std::env::var_os("CI").is_none(), "skipped in CI: {reason}");
    println!("skipped: {reason}");
    None
}

#[test]
fn the_library_does_all_it_can_under_the_printed_rules() {
    in_child("the_library_does_all_it_can_under_the_printed_rules", || {
        let Some(builder) = ring() else { return };
        let unfiltered = builder.clone().build().unwrap();
        allow_only(&allowed(Program::Any));

        let file = Descriptor::from(std::fs::File::open("/proc/self/exe").unwrap());
        let mut local = builder.clone().build().unwrap();
        let is_registered = [&unfiltered, &local].map(|local| local.setup().is_ring_registered());
        assert_eq!(is_registered[0], is_registered[1]);
        for opcode in Opcode::ALL {
            assert_eq!(local.supports(opcode), unfiltered.supports(opcode), "{opcode}");
        }
        let name = local.register_file(&file).unwrap();
        let pool = local.register_pool(1, 4096).unwrap();
        assert!(pool.is_registered(), "{:?}", pool.registration());
        let group = BufferGroup::new(&mut local, 4, 64).unwrap();
        assert_eq!(group.refusal(), None);
        let read = local.run(Operation::read_at(name, pool.take().unwrap(), 0)).unwrap();
        assert!(read.result().unwrap() > 0);
        drop(read);
        local.unregister_file(name).unwrap();

        let sealed = builder.restrict([Opcode::Read]).data_only(true).seal(true).files([file]);
        let sealed = sealed.build().unwrap();
        assert_eq!(sealed.setup().backend(), Backend::Uring);
        assert_eq!(sealed.setup().guard(), Guard::Kernel);
    });
}

/// The test above would notice a rule that is missing.
#[test]
fn a_missing_rule_shows() {
    in_child("a_missing_rule_shows", || {
        let Some(builder) = ring() else { return };
        let mut fewer = allowed(Program::Any);
        fewer.retain(|operation| *operation != BUFFER_RING);
        allow_only(&fewer);
        let mut local = builder.build().unwrap();
        let group = BufferGroup::new(&mut local, 4, 64).unwrap();
        assert!(group.refusal().unwrap().contains("Operation not permitted"));
    });
}

/// A sealed ring loses nothing under its own rules. Another ring runs without registered buffers.
#[test]
fn a_sealed_ring_needs_fewer_rules() {
    in_child("a_sealed_ring_needs_fewer_rules", || {
        let Some(builder) = ring() else { return };
        let file = Descriptor::from(std::fs::File::open("/proc/self/exe").unwrap());
        let sealed = builder.clone().data_only(true).seal(true).files([file]);
        let unfiltered = sealed.clone().build().unwrap();
        allow_only(&allowed(Program::Sealed));

        let mut local = sealed.clone().build().unwrap();
        for program_ring in [&unfiltered, &local] {
            assert_eq!(program_ring.setup().guard(), Guard::Kernel);
            assert!(program_ring.setup().is_sealed());
        }
        assert_eq!(local.setup().granted(), unfiltered.setup().granted());
        assert_eq!(local.setup().is_ring_registered(), unfiltered.setup().is_ring_registered());
        for opcode in Opcode::ALL {
            assert_eq!(local.supports(opcode), unfiltered.supports(opcode), "{opcode}");
        }
        let name = local.setup().files()[0];
        let read = local.run(Operation::read_at(name, vec![0; 4], 0)).unwrap();
        assert_eq!(read.into_buffer().unwrap().as_slice(), b"\x7fELF");
        drop(local);
        // A closed ring gives its entry in the thread's table back: there are 16.
        for _ in 0..32 {
            let again = sealed.clone().build().unwrap();
            assert_eq!(again.setup().is_ring_registered(), unfiltered.setup().is_ring_registered());
        }

        let mut open = builder.build().unwrap();
        assert!(!open.register_pool(1, 4096).unwrap().is_registered());
        let group = BufferGroup::new(&mut open, 4, 64).unwrap();
        assert!(group.refusal().unwrap().contains("Operation not permitted"));
    });
}
