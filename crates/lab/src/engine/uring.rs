//! `uring`: the library's [`Local`], one thread and one ring, with each of its options to be
//! switched by itself.

use std::{fmt, sync::Arc, time::Duration};

use ringwise::{
    BackendChoice, Buffer, Builder, Descriptor, Effect, Local, Operation, SetupFlags, Target,
};

use super::{Engine, Named, Tally, beside_the_ring, buffer, rolling, unavailable};
use crate::sampling::{
    job::{Cache, Failure, Job, NOT_HERE, Request, Start, Timing, Window},
    lane::Lane,
};

/// How long the kernel's submission thread spins without work before it sleeps.
const SQPOLL_IDLE: Duration = Duration::from_millis(10);

/// The smallest ring in which an operation of ours fits beside the library's own.
pub const ENTRIES_MIN: usize = 2;

/// What of a ring can be switched on and off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Switch {
    /// Buffers registered with the ring.
    RegisteredBuffers,
    /// Files registered with the ring.
    RegisteredFiles,
    /// `IORING_SETUP_DEFER_TASKRUN`.
    DeferTaskrun,
    /// `IORING_SETUP_COOP_TASKRUN`.
    CoopTaskrun,
    /// `IORING_SETUP_SQPOLL`.
    Sqpoll,
    /// `IORING_SETUP_IOPOLL`.
    Iopoll,
    /// No option of the ring: what is read is not looked at. Only for a comparison with another
    /// program that does not look either.
    Unverified,
}

impl Switch {
    /// All of them.
    pub const ALL: [Switch; 7] = [
        Switch::RegisteredBuffers,
        Switch::RegisteredFiles,
        Switch::DeferTaskrun,
        Switch::CoopTaskrun,
        Switch::Sqpoll,
        Switch::Iopoll,
        Switch::Unverified,
    ];

    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Switch::RegisteredBuffers => "registered-buffers",
            Switch::RegisteredFiles => "registered-files",
            Switch::DeferTaskrun => "defer-taskrun",
            Switch::CoopTaskrun => "coop-taskrun",
            Switch::Sqpoll => "sqpoll",
            Switch::Iopoll => "iopoll",
            Switch::Unverified => "unverified",
        }
    }

    fn is_on_by_default(self) -> bool {
        Switches::DEFAULT.has(self)
    }
}

/// Which switches are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Switches([bool; Switch::ALL.len()]);

impl Default for Switches {
    fn default() -> Switches {
        Switches::DEFAULT
    }
}

impl Switches {
    /// The same with one switch changed.
    #[must_use]
    pub fn with(mut self, switch: Switch, on: bool) -> Switches {
        self.0[switch as usize] = on;
        self
    }

    /// Whether a switch is on.
    pub fn has(self, switch: Switch) -> bool {
        self.0[switch as usize]
    }

    /// Every ring that differs from another one of them, or from the default, in one switch: what
    /// each one gives. COOP_TASKRUN does nothing beside DEFER_TASKRUN, and SQPOLL excludes it, so both
    /// are tried without and compared with the ring without.
    pub fn ablations() -> Vec<Switches> {
        let default = Switches::default();
        let without_defer = default.with(Switch::DeferTaskrun, false);
        let change = |switch| match switch {
            Switch::Unverified => None,
            Switch::CoopTaskrun | Switch::Sqpoll => Some(without_defer.with(switch, true)),
            _ => Some(default.with(switch, !default.has(switch))),
        };
        Switch::ALL.into_iter().filter_map(change).collect()
    }

    /// Whether what is typed turns two things at once: SQPOLL excludes DEFER_TASKRUN
    /// (io_uring_setup(2) refuses both with EINVAL), so that a ring that gets the one loses the other.
    pub fn loses_defer_taskrun(self) -> bool {
        self.has(Switch::Sqpoll) && self.has(Switch::DeferTaskrun)
    }
}

impl Named for Switches {
    /// Registered buffers and files and deferred completion work.
    const DEFAULT: Switches = Switches([true, true, true, false, false, false, false]);

    /// Reads `+sqpoll`, `-registered-files+coop-taskrun`.
    fn parse(mut text: &str) -> Option<Switches> {
        let mut switches = Switches::default();
        while !text.is_empty() {
            let on = match text.as_bytes()[0] {
                b'+' => true,
                b'-' => false,
                _ => return None,
            };
            let rest = &text[1..];
            let switch = Switch::ALL.into_iter().find(|switch| rest.starts_with(switch.name()))?;
            switches = switches.with(switch, on);
            text = &rest[switch.name().len()..];
        }
        Some(switches)
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }

    fn engine(self, _: Timing) -> Box<dyn Engine> {
        Box::new(Uring { switches: self })
    }
}

impl fmt::Display for Switches {
    /// What differs from the default, as it is typed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Switch::ALL
            .into_iter()
            .filter(|switch| self.has(*switch) != switch.is_on_by_default())
            .try_for_each(|switch| {
                write!(f, "{}{}", if self.has(switch) { '+' } else { '-' }, switch.name())
            })
    }
}

/// The engine.
#[derive(Debug, Default)]
pub struct Uring {
    /// Which of the ring's options are on.
    pub switches: Switches,
}

impl Uring {
    fn builder(&self, job: &Job) -> Builder {
        let on = |switch| self.switches.has(switch);
        let sqpoll = on(Switch::Sqpoll);
        Local::builder()
            .backend(BackendChoice::Uring)
            .entries(u32::try_from(job.depth.max(ENTRIES_MIN)).unwrap_or(u32::MAX))
            .registered_files(u32::try_from(job.files.len()).unwrap_or(u32::MAX))
            .defer_taskrun(on(Switch::DeferTaskrun) && !self.switches.loses_defer_taskrun())
            .coop_taskrun(on(Switch::CoopTaskrun))
            .sqpoll(sqpoll.then_some(SQPOLL_IDLE))
            .iopoll(on(Switch::Iopoll))
    }

    /// What of the switches was not granted. The default ring is the library as it comes: what of its
    /// flags an older kernel does not know is said with it and no fault of its name.
    fn lacks(&self, granted: SetupFlags, has_registered_buffers: bool) -> Option<String> {
        let flags = [
            (Switch::CoopTaskrun, "COOP_TASKRUN"),
            (Switch::Sqpoll, "SQPOLL"),
            (Switch::Iopoll, "IOPOLL"),
        ];
        let asked = flags.iter().filter(|(switch, _)| self.switches.has(*switch));
        let missing = asked.filter(|(_, name)| !granted.has(name));
        let mut missing: Vec<String> =
            missing.map(|(_, name)| format!("{name} was not granted")).collect();
        if self.switches.has(Switch::RegisteredBuffers) && !has_registered_buffers {
            missing.push(
                "buffers were not registered: raise the locked-memory limit (ulimit -l)".into(),
            );
        }
        (!missing.is_empty()).then(|| missing.join(", "))
    }

    fn open(&self, job: &Job) -> Result<Ring, Failure> {
        if self.switches.has(Switch::Iopoll) && job.cache != Cache::Bypassed {
            return Err(unavailable("IOPOLL needs direct reads"));
        }
        let mut local = self.builder(job).build().map_err(unavailable)?;
        let files: Vec<Descriptor> = job.open()?.into_iter().map(Descriptor::from).collect();
        if let Effect::Ineffective(reason) = local.setup().sqpoll() {
            return Err(unavailable(format_args!("SQPOLL is not effective: {reason}")));
        }
        if self.switches.has(Switch::Iopoll) {
            match local.probe_iopoll(&files[0]).map_err(unavailable)? {
                Effect::Effective => {}
                effect => {
                    let text = format!("{NOT_HERE}IOPOLL is {effect}");
                    return Err(unavailable(text));
                }
            }
        }
        let granted = local.setup().granted();
        let (buffers, are_registered) = self.buffers(&mut local, job)?;
        let lacks = self.lacks(granted, are_registered);
        let targets = if self.switches.has(Switch::RegisteredFiles) {
            let registered = files.iter().map(|file| local.register_file(file));
            registered
                .map(|file| file.map(Target::from))
                .collect::<Result<_, _>>()
                .map_err(unavailable)?
        } else {
            files.into_iter().map(Target::from).collect()
        };
        Ok(Ring { local, targets, buffers, detail: granted.to_string(), lacks })
    }

    /// A buffer for each slot, and whether they are registered.
    fn buffers(
        &self,
        local: &mut Local,
        job: &Job,
    ) -> Result<(Vec<Option<Buffer>>, bool), Failure> {
        if !self.switches.has(Switch::RegisteredBuffers) {
            return Ok(((0..job.depth).map(|_| Some(buffer(job).into())).collect(), false));
        }
        let pool = local.register_pool(job.depth, job.block_bytes).map_err(unavailable)?;
        let buffers = (0..job.depth).map(|_| pool.take().map(Buffer::from)).collect();
        Ok((buffers, pool.is_registered()))
    }
}

/// Drives a lane through a queue until it is over.
pub(crate) type Drive<'a> =
    dyn Fn(&mut RingQueue<'_>, &Window, Lane, &Job) -> Result<Tally, Failure> + 'a;

impl Engine for Uring {
    fn run(&self, job: &Arc<Job>, start: Start) -> Result<Tally, Failure> {
        let rolling: &Drive<'_> =
            &|queue, window, lane, job| rolling::drive(queue, window, lane, job);
        self.run_by(job, start, rolling)
    }
}

impl Uring {
    /// Does the job with a lane that is driven so.
    pub(crate) fn run_by(
        &self,
        job: &Arc<Job>,
        start: Start,
        drive: &Drive<'_>,
    ) -> Result<Tally, Failure> {
        let mut ring = self.open(job)?;
        let before = ring.local.stats();
        let window = start.ready()?;
        let lane = Lane::new(job, window, 0, 1);
        let lane = if self.switches.has(Switch::Unverified) { lane.unverified() } else { lane };
        let mut queue = RingQueue { job, ring: &mut ring };
        let tally = drive(&mut queue, &window, lane, job)?;
        let after = ring.local.stats();
        let fallbacks = after.fallback_operations - before.fallback_operations;
        Ok(Tally {
            lacks: ring.lacks.or_else(|| beside_the_ring(fallbacks)),
            submitted: Some(after.submitted - before.submitted),
            system_calls: Some(after.enters - before.enters),
            detail: Some(ring.detail),
            ..tally
        })
    }
}

struct Ring {
    local: Local,
    targets: Vec<Target>,
    /// The slots' buffers; none while the kernel has it.
    buffers: Vec<Option<Buffer>>,
    detail: String,
    lacks: Option<String>,
}

/// A ring with what is read through it.
pub(crate) struct RingQueue<'a> {
    job: &'a Job,
    ring: &'a mut Ring,
}

impl rolling::Queue for RingQueue<'_> {
    #[inline]
    fn push(&mut self, slot: usize, request: Request) -> Result<(), Failure> {
        let buffer = self.ring.buffers[slot].take().expect("an idle slot has its buffer");
        let target = self.ring.targets[request.file].clone();
        let operation = Operation::read_at(target, buffer, request.offset);
        self.ring.local.push(operation, slot as u64).map_err(unavailable)?;
        Ok(())
    }

    #[inline]
    fn submit(&mut self) -> Result<(), Failure> {
        self.ring.local.submit().map_err(|error| Failure::Io(error.to_string()))?;
        Ok(())
    }

    #[inline]
    fn submit_and_wait(&mut self, want: usize) -> Result<(), Failure> {
        self.ring.local.submit_and_wait(want).map_err(|error| Failure::Io(error.to_string()))?;
        Ok(())
    }

    #[inline]
    fn reap(&mut self, take: &mut rolling::Take<'_>) -> Result<(), Failure> {
        let Some(completion) = self.ring.local.next_completion() else { return Ok(()) };
        let slot = completion.tag() as usize;
        let read = completion.result().map_err(|error| {
            let file = &self.job.files[0].path;
            let path = if self.job.files.len() == 1 { file } else { file.parent().unwrap_or(file) };
            Failure::Io(format!("{}: {error}", path.display()))
        })?;
        let buffer = completion.into_buffer().expect("a read gives its buffer back");
        let taken = take(slot, &buffer.as_slice()[..read]);
        self.ring.buffers[slot] = Some(buffer);
        taken
    }
}

impl rolling::TimedQueue for RingQueue<'_> {
    fn submit_and_wait_for(&mut self, timeout: Duration) -> Result<(), Failure> {
        let waited = self.ring.local.submit_and_wait_timeout(1, timeout);
        waited.map_err(|error| Failure::Io(error.to_string()))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for (text, again) in [
            ("", ""),
            ("+sqpoll", "+sqpoll"),
            ("-registered-buffers", "-registered-buffers"),
            ("-defer-taskrun+coop-taskrun", "-defer-taskrun+coop-taskrun"),
            ("+iopoll-registered-files", "-registered-files+iopoll"),
            ("+registered-files", ""),
        ] {
            assert_eq!(Switches::parse(text).unwrap().to_string(), again, "{text}");
        }
        for text in ["sqpoll", "+", "-sqpolls", "+sq", "+sqpoll,", "++sqpoll", "\u{b5}"] {
            assert_eq!(Switches::parse(text), None, "{text}");
        }
    }

    #[test]
    fn what_was_not_granted_is_named_by_its_switch() {
        let none = SetupFlags::default();
        let lacks = |name: &str, has_buffers| {
            Uring { switches: Switches::parse(name).unwrap() }.lacks(none, has_buffers)
        };
        assert_eq!(lacks("", true), None, "the library as this kernel lets it be");
        assert_eq!(lacks("-registered-buffers", false), None);
        assert_eq!(lacks("+sqpoll", true).unwrap(), "SQPOLL was not granted");
        let both = lacks("-defer-taskrun+coop-taskrun", false).unwrap();
        assert!(both.starts_with("COOP_TASKRUN was not granted, buffers were not "), "{both}");
    }

    #[test]
    fn ablations_change_one_thing_each() {
        let names: Vec<String> = Switches::ablations().iter().map(Switches::to_string).collect();
        assert_eq!(
            names,
            [
                "-registered-buffers",
                "-registered-files",
                "-defer-taskrun",
                "-defer-taskrun+coop-taskrun",
                "-defer-taskrun+sqpoll",
                "+iopoll"
            ]
        );
    }

    #[test]
    fn a_ring_with_a_submission_thread_is_its_baseline_but_for_that_thread() {
        let job = crate::testing::job();
        let granted = |name: &str| {
            let engine = Uring { switches: Switches::parse(name).unwrap() };
            let local = engine.builder(&job).build().ok()?;
            Some(local.setup().granted().iter().collect::<Vec<_>>())
        };
        let ablations = Switches::ablations();
        let with = ablations.iter().find(|own| own.has(Switch::Sqpoll)).unwrap().to_string();
        let without = with.replace("+sqpoll", "");
        let (Some(with), Some(without)) = (granted(&with), granted(&without)) else {
            return println!("skipped: no io_uring here");
        };
        if !with.contains(&"SQPOLL") {
            return println!("skipped: no submission thread here");
        }
        let rest: Vec<_> = with.into_iter().filter(|flag| *flag != "SQPOLL").collect();
        assert_eq!(rest, without);
    }
}
