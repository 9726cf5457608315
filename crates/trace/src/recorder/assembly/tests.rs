//! Events in, operations out, without a kernel.

use std::path::PathBuf;

use super::*;

/// A time of 1 is 1 us.
struct Scene {
    assembly: Assembly,
    time_us: u64,
}

const PID: u32 = 7;

fn place(name: &str) -> u16 {
    CALLS.iter().position(|(known, _, _)| *known == name).unwrap() as u16
}

fn described(name: &str, flags: OpenFlags) -> Described {
    Described {
        name: PathBuf::from(name).into(),
        kind: FileKind::Regular,
        size_bytes: Some(1 << 20),
        flags,
        is_close_on_exec: false,
        position: Some(0),
        identity: (1, 2),
        made_unix_ns: Some(999_999),
    }
}

impl Scene {
    fn new() -> Scene {
        Scene::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Situation)) -> Scene {
        let mut situation = Situation {
            began_ns: 0,
            began_unix_ns: 1_000_000,
            is_private: false,
            sees_pages: true,
            sees_processors: true,
            has_opens: true,
            thread_name: |_, tid| format!("thread {tid}"),
        };
        change(&mut situation);
        Scene { assembly: Assembly::new(situation), time_us: 0 }
    }

    fn event(&mut self, tid: u32, event: Event) -> &mut Scene {
        self.time_us += 1;
        let time_ns = self.time_us * 1000;
        self.assembly.take(Stamped { time_ns, pid: PID, tid, event });
        self
    }

    fn open(&mut self, descriptor: i32, name: &str, flags: OpenFlags) -> &mut Scene {
        let described = Box::new(described(name, flags));
        let since_ns = (self.time_us + 1) * 1000;
        self.event(PID, Event::Opened { descriptor, described, since_ns })
    }

    fn enter(&mut self, tid: u32, name: &str, arguments: [u64; 6]) -> &mut Scene {
        self.event(tid, Event::Enter { call: place(name), arguments })
    }

    fn exit(&mut self, tid: u32, result: i64) -> &mut Scene {
        self.event(tid, Event::Exit { result })
    }

    fn call(&mut self, name: &str, arguments: [u64; 6], result: i64) -> &mut Scene {
        self.enter(PID, name, arguments).exit(PID, result)
    }

    fn operations(&mut self) -> Vec<Operation> {
        let operation = |record| if let Record::Operation(one) = record { Some(one) } else { None };
        self.assembly.take_records().filter_map(operation).collect()
    }
}

fn offsets(operations: &[Operation]) -> Vec<Option<u64>> {
    operations.iter().map(|operation| operation.offset).collect()
}

#[test]
fn a_file_that_is_removed_and_made_again_is_another_one() {
    let mut scene = Scene::new();
    let mut open = |made_unix_ns| {
        let described =
            Box::new(Described { made_unix_ns, ..described("/j", OpenFlags::default()) });
        scene.event(PID, Event::Opened { descriptor: 3, described, since_ns: 0 });
    };
    for made_unix_ns in [None, Some(999_999), Some(1_000_500), Some(1_000_700), Some(1_000_500)] {
        open(made_unix_ns);
    }
    let made = |record: Record| match record {
        Record::File(file) => Some(file.made_ns),
        _ => None,
    };
    let made: Vec<_> = scene.assembly.take_records().filter_map(made).collect();
    assert_eq!(made, [None, Some(500), Some(700)]);
}

#[test]
fn positions_are_followed() {
    let mut scene = Scene::new();
    scene.open(3, "/f", OpenFlags::default());
    scene.call("read", [3, 0, 100, 0, 0, 0], 100).call("dup", [3, 0, 0, 0, 0, 0], 4);
    scene.call("read", [4, 0, 100, 0, 0, 0], 60).call("lseek", [3, 5, 0, 0, 0, 0], 5);
    scene.call("write", [4, 0, 10, 0, 0, 0], 10).call("pread64", [3, 0, 10, 700, 0, 0], 10);
    scene.call("read", [3, 0, 1, 0, 0, 0], -11).call("read", [3, 0, 1, 0, 0, 0], 1);
    let operations = scene.operations();
    let expected = [0, 100, 5, 700, 15, 15].map(Some);
    assert_eq!(offsets(&operations), expected);
    assert_eq!(operations[4].outcome, Outcome::Failed { errno: 11 });
    assert_eq!((operations[0].begin_ns, operations[0].duration_ns), (2000, 1000));
    assert!(operations.iter().all(|operation| operation.file.is_some()));
}

#[test]
fn what_a_thread_computes_between_operations_is_told() {
    let mut scene = Scene::new();
    scene.open(3, "/f", OpenFlags::default());
    let read = [3, 0, 1, 0, 0, 0];
    // The read itself waits. Then 2 us with a processor, 1 us without, 1 us with, 1 us preempted, 1 us with.
    scene.enter(PID, "read", read).event(PID, Event::Waited).event(PID, Event::Resumed);
    scene.exit(PID, 1).call("lseek", [3, 0, 1, 0, 0, 0], 1);
    scene.event(PID, Event::Waited).event(PID, Event::Resumed);
    scene.event(PID, Event::Preempted).event(PID, Event::Resumed);
    scene.call("read", read, 1);
    // An end that was lost: nobody knows what the thread did since.
    scene.event(PID, Event::Lost { events: 1 }).call("read", read, 1);
    let computed: Vec<_> = scene.operations().iter().map(|own| own.computed_ns).collect();
    assert_eq!(computed, [None, Some(5000), None]);
    let mut blind = Scene::with(|situation| situation.sees_processors = false);
    blind.open(3, "/f", OpenFlags::default()).call("read", read, 1).call("read", read, 1);
    assert!(blind.operations().iter().all(|own| own.computed_ns.is_none()));
}

#[test]
fn what_is_not_known_is_asked_for_and_never_guessed() {
    let mut scene = Scene::new();
    scene.call("read", [3, 0, 100, 0, 0, 0], 100).call("read", [9, 0, 1, 0, 0, 0], -9);
    let questions = scene.assembly.take_questions();
    assert_eq!(questions.descriptors, HashSet::from([(PID, 3)]), "9 is no descriptor");
    // The answer comes while a read is going on, which may be in its position already.
    scene.enter(PID, "read", [3, 0, 100, 0, 0, 0]).open(3, "/f", OpenFlags::default());
    scene.exit(PID, 100).call("read", [3, 0, 100, 0, 0, 0], 100);
    let append = OpenFlags { is_append: true, ..OpenFlags::default() };
    scene.open(5, "/log", append).call("write", [5, 0, 8, 0, 0, 0], 8);
    let operations = scene.operations();
    assert_eq!(offsets(&operations), [None; 5]);
    let known: Vec<bool> = operations.iter().map(|operation| operation.file.is_some()).collect();
    assert_eq!(known, [false, false, true, true, true]);
    assert_eq!(scene.assembly.finish(0).unknown_files, 2);
}

#[test]
fn after_lost_events_positions_are_unknown_and_descriptors_are_read_again() {
    let mut scene = Scene::new();
    scene.open(3, "/f", OpenFlags::default()).call("read", [3, 0, 100, 0, 0, 0], 100);
    scene.enter(PID, "read", [3, 0, 100, 0, 0, 0]).event(PID, Event::Lost { events: 5 });
    // The end of another read, whose begin was lost.
    scene.exit(PID, 7).call("read", [3, 0, 100, 0, 0, 0], 100);
    assert_eq!(offsets(&scene.operations()), [Some(0), None]);
    assert_eq!(scene.assembly.take_questions().processes, HashSet::from([PID]));
    assert_eq!(scene.assembly.finish(0).lost_events, 5);
}

#[test]
fn a_read_is_from_the_device_if_one_of_its_pages_came_into_the_page_cache() {
    let added = |identity, first, count| Event::PagesAdded { identity, first, count };
    for (event, source) in [
        (None, Source::Cache),
        (Some(added((1, 2), 2, 1)), Source::Device),
        (Some(added((1, 2), 0, 4)), Source::Device),
        // Read ahead, or another file.
        (Some(added((1, 2), 3, 8)), Source::Cache),
        (Some(added((1, 9), 2, 1)), Source::Cache),
        (Some(Event::Waited), Source::Unknown),
    ] {
        let mut scene = Scene::new();
        scene.open(3, "/f", OpenFlags::default());
        let text = format!("{event:?}");
        scene.enter(PID, "pread64", [3, 0, 4096, 8192, 0, 0]);
        if let Some(event) = event {
            scene.event(PID, event);
        }
        scene.exit(PID, 4096);
        assert_eq!(scene.operations()[0].source, source, "{text}");
    }
}

#[test]
fn a_direct_operation_is_from_the_device() {
    let mut scene = Scene::new();
    let flags = OpenFlags { is_direct: true, ..OpenFlags::default() };
    scene.open(3, "/f", flags).call("pread64", [3, 0, 512, 0, 0, 0], 512);
    scene.call("pread64", [3, 0, 512, 1, 0, 0], -22).call("fsync", [3, 0, 0, 0, 0, 0], 0);
    let sources: Vec<Source> = scene.operations().iter().map(|one| one.source).collect();
    assert_eq!(sources, [Source::Device, Source::Unknown, Source::Device]);
}

#[test]
fn requests_of_a_ring_have_the_offset_that_the_kernel_was_seen_to_use() {
    let mut scene = Scene::new();
    scene.open(3, "/f", OpenFlags::default());
    // A read of two pages by descriptor, one that is not aligned, and a direct one of a registered file.
    for (request, event, result) in [
        (100, Event::PagesWanted { identity: (1, 2), first: 5, last: 6 }, 8192),
        (200, Event::PagesWanted { identity: (1, 2), first: 5, last: 6 }, 4096),
        (300, Event::DirectBegin { identity: (1, 2), offset: 512, bytes: 1024 }, 1024),
    ] {
        scene.event(PID, Event::RingSubmit { request, opcode: 22 });
        if request < 300 {
            scene.event(PID, Event::RingFile { request, descriptor: 3 });
        }
        scene.event(PID, event);
        scene.event(PID, Event::RingComplete { request, result, flags: 0 });
    }
    let operations = scene.operations();
    assert_eq!(offsets(&operations), [Some(5 * 4096), None, Some(512)]);
    assert_eq!(operations[2].asked_bytes, Some(1024));
    assert!(operations[2].is_direct && operations[2].source == Source::Device);
    assert_eq!(operations[2].file, None, "no file of this number is open for direct I/O");
    assert!(operations.iter().all(|one| one.interface == Interface::IoUring));
    assert!(operations[0].file.is_some() && operations[0].source == Source::Cache);
    assert!(scene.assembly.uses_ring());
}

#[test]
fn pages_of_a_read_that_is_tried_again_are_not_those_of_the_last_request() {
    let mut scene = Scene::new();
    scene.open(3, "/f", OpenFlags::default());
    let wanted = |page| Event::PagesWanted { identity: (1, 2), first: page, last: page };
    // Neither read finds its pages at once, and the thread tries the first one again.
    scene.event(PID, Event::RingSubmit { request: 1, opcode: 22 });
    scene.event(PID, Event::PagesAdded { identity: (1, 2), first: 10, count: 1 });
    scene.event(PID, Event::RingSubmit { request: 2, opcode: 22 });
    scene.event(PID, wanted(10));
    for request in [1, 2] {
        scene.event(PID, Event::RingFile { request, descriptor: 3 });
        scene.event(PID, Event::RingComplete { request, result: 4096, flags: 0 });
    }
    // Both find them at once, and complete together.
    for (request, page) in [(3, 20), (4, 30)] {
        scene.event(PID, Event::RingSubmit { request, opcode: 22 });
        scene.event(PID, wanted(page));
    }
    for request in [3, 4] {
        scene.event(PID, Event::RingFile { request, descriptor: 3 });
        scene.event(PID, Event::RingComplete { request, result: 4096, flags: 0 });
    }
    let operations = scene.operations();
    assert_eq!(offsets(&operations), [None, None, Some(20 * 4096), Some(30 * 4096)]);
    let sources: Vec<Source> = operations.iter().map(|operation| operation.source).collect();
    assert_eq!(sources, [Source::Device, Source::Unknown, Source::Cache, Source::Cache]);
}

#[test]
fn a_request_that_completes_more_than_once_is_an_operation_each_time() {
    let mut scene = Scene::new();
    scene.event(PID, Event::RingSubmit { request: 1, opcode: 27 });
    for (result, flags) in [(10, MORE), (20, MORE), (-104, 0), (5, 0)] {
        scene.event(PID, Event::RingComplete { request: 1, result, flags });
    }
    let bytes: Vec<u64> = scene.operations().iter().map(Operation::bytes).collect();
    assert_eq!(bytes, [10, 20, 0], "what comes after the last completion is of another request");
}

const MORE: u32 = 2;

#[test]
fn linux_aio_is_paired_by_address_and_value() {
    let mut scene = Scene::new();
    scene.open(3, "/f", OpenFlags { is_direct: true, ..OpenFlags::default() });
    let name = |address, data| AioName { address, data };
    let request = |address, data, opcode| AioRequest {
        name: name(address, data),
        opcode,
        descriptor: 3,
        bytes: 4096,
        offset: address * 10 + data,
    };
    let submitted = vec![request(1, 0, 0), request(2, 0, 1), request(3, 0, 0)];
    scene.event(PID, Event::AioSubmit(submitted));
    scene.event(PID, Event::AioRefused(vec![name(3, 0)]));
    // The same control block again, before its completion.
    scene.event(PID, Event::AioSubmit(vec![request(1, 7, 1)]));
    let done = vec![(name(2, 0), 4096), (name(1, 7), 4096), (name(1, 0), -5), (name(3, 0), 4096)];
    scene.event(8, Event::AioReap(done));
    let operations = scene.operations();
    let told: Vec<_> = operations.iter().map(|one| (one.kind, one.offset, one.outcome)).collect();
    let expected = [
        (Kind::Write, Some(20), Outcome::Done { bytes: 4096 }),
        (Kind::Write, Some(17), Outcome::Done { bytes: 4096 }),
        (Kind::Read, Some(10), Outcome::Failed { errno: 5 }),
    ];
    assert_eq!(told, expected);
    // One that has the name of another in flight leaves that one without an end.
    scene.event(PID, Event::AioSubmit(vec![request(5, 0, 0), request(5, 0, 0)]));
    scene.event(8, Event::AioReap(vec![(name(5, 0), 4096), (name(5, 0), 4096)]));
    assert_eq!(scene.operations().len(), 1);
    let end = scene.assembly.finish(0);
    assert_eq!((end.in_flight_max, end.unseen_requests), (3, 1));
}

#[test]
fn what_has_no_room_is_counted_as_not_seen() {
    let mut scene = Scene::new();
    for request in 0..=REQUESTS_MAX as u64 {
        scene.event(PID, Event::RingSubmit { request, opcode: 22 });
        let name = AioName { address: request, data: 0 };
        let request = AioRequest { name, opcode: 0, descriptor: 3, bytes: 1, offset: 0 };
        scene.event(PID, Event::AioSubmit(vec![request]));
    }
    let end = scene.assembly.finish(0);
    assert_eq!((end.unseen_requests, end.in_flight_max), (2, 2 * REQUESTS_MAX as u64));
}

#[test]
fn what_does_not_finish_is_told() {
    let mut scene = Scene::new();
    scene.open(3, "/f", OpenFlags::default());
    scene.enter(8, "read", [3, 0, 1, 0, 0, 0]).event(8, Event::Ended);
    scene.enter(9, "recvfrom", [5, 0, 1, 0, 0, 0]);
    scene.event(9, Event::RingSubmit { request: 1, opcode: 22 });
    let end = scene.assembly.finish(50_000);
    let operations = scene.operations();
    assert_eq!(operations.len(), 3);
    assert!(operations.iter().all(|operation| operation.outcome == Outcome::Unfinished));
    assert_eq!((operations[1].begin_ns, operations[1].duration_ns), (4000, 46_000));
    assert_eq!((end.in_flight_max, end.in_flight_median), (2, 1));
}

#[test]
fn names_are_hashed_on_demand_with_another_key_each_time() {
    let hash = || {
        let mut scene = Scene::with(|situation| situation.is_private = true);
        scene.open(3, "/f", OpenFlags::default()).open(4, "/f", OpenFlags::default());
        let files: Vec<_> = scene.assembly.take_records().collect();
        match &files[..] {
            [Record::File(file)] => file.name.clone(),
            other => panic!("{other:?}"),
        }
    };
    assert_ne!(hash(), hash());
}

#[test]
fn a_new_process_has_the_descriptors_of_its_parent_until_it_runs_another_program() {
    let mut scene = Scene::with(|situation| situation.has_opens = false);
    scene.open(3, "/f", OpenFlags::default()).call("read", [3, 0, 100, 0, 0, 0], 100);
    let child = |scene: &mut Scene, event| {
        scene.time_us += 1;
        let time_ns = scene.time_us * 1000;
        scene.assembly.take(Stamped { time_ns, pid: 20, tid: 20, event });
    };
    let read = || Event::Enter { call: place("read"), arguments: [3, 0, 10, 0, 0, 0] };
    child(&mut scene, Event::Forked { parent: PID });
    child(&mut scene, read());
    child(&mut scene, Event::Exit { result: 10 });
    scene.call("read", [3, 0, 100, 0, 0, 0], 100);
    child(&mut scene, Event::Executed);
    child(&mut scene, read());
    child(&mut scene, Event::Exit { result: 10 });
    let operations = scene.operations();
    assert_eq!(offsets(&operations), [Some(0), Some(100), Some(110), None]);
    assert_eq!(operations[3].file, None);
    assert!(scene.assembly.take_questions().processes.contains(&20));
}

#[test]
fn a_process_of_another_architecture_is_not_recorded() {
    let mut scene = Scene::new();
    let table = |is_foreign| Event::Table {
        table: vec![(3, described("/f", OpenFlags::default()))],
        since_ns: 0,
        is_foreign,
    };
    scene.event(PID, table(true)).call("read", [3, 0, 100, 0, 0, 0], 100);
    assert_eq!(scene.operations(), []);
    scene.event(PID, table(false)).call("read", [3, 0, 100, 0, 0, 0], 100);
    assert_eq!(offsets(&scene.operations()), [Some(0)]);
}
