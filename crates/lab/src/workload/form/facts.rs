//! What the rest of the lab knows of a workload: its name, the words and columns of its tables, and
//! what its readers do today.

use crate::workload::form::columns::Column;

/// What the rest of the lab knows of a workload.
#[derive(Debug)]
pub struct Facts {
    /// The name, as it is typed and in results files.
    pub name: &'static str,
    /// What the depth of a row is called: depth, batch, connections, files.
    pub depth_is: &'static str,
    /// The columns of its tables.
    pub columns: &'static [Column],
    /// What its readers do today, and what they could do instead.
    pub question: &'static Question,
}

/// The question that a reader asks of a workload, in words: "I do this today; what would I gain?"
#[derive(Debug)]
pub struct Question {
    /// What is counted, in the plural: reads.
    pub operations: &'static str,
    /// What a depth of 1 is: "one read at a time".
    pub alone: &'static str,
    /// What another depth is, after its number: "reads in flight".
    pub in_flight: &'static str,
    /// What a program may do today, the most usual first. An engine that is not among them has its
    /// name for words.
    pub starts: &'static [Start],
    /// What it could do instead, that of the subject's row first.
    pub targets: &'static [Target],
}

/// What a program may do today.
#[derive(Debug)]
pub struct Start {
    /// The engine that does the same.
    pub engine: &'static str,
    /// What its author does, after "you": "use spawn_blocking".
    pub you: &'static str,
    /// What that is called: "spawn_blocking".
    pub it: &'static str,
    /// The engine of the target that it would be changed to; empty for the subject's.
    pub to: &'static str,
    /// Whether it does one thing after another. Then its gain is that of many at a time too.
    pub is_single: bool,
}

/// What a program could do instead.
#[derive(Debug)]
pub struct Target {
    /// The engine that does the same.
    pub engine: &'static str,
    /// What it is called in a sentence: "io_uring".
    pub name: &'static str,
    /// What to do, as a sentence: "Use ringwise::fs."
    pub remedy: &'static str,
}

/// A start that is no single one.
pub(crate) const fn start(
    engine: &'static str,
    you: &'static str,
    it: &'static str,
    to: &'static str,
) -> Start {
    Start { engine, you, it, to, is_single: false }
}

impl Question {
    /// The starting point that an engine is.
    pub fn start(&self, engine: &str) -> Option<&'static Start> {
        self.starts.iter().find(|start| start.engine == engine)
    }

    /// The target that an engine is.
    pub fn target(&self, engine: &str) -> Option<&'static Target> {
        self.targets.iter().find(|target| target.engine == engine)
    }

    /// What an engine is called in a sentence.
    pub fn name_of<'a>(&self, engine: &'a str) -> &'a str {
        let target = self.target(engine).map(|target| target.name);
        target.or(self.start(engine).map(|start| start.it)).unwrap_or(engine)
    }

    /// A depth in words: "one read at a time", "32 reads in flight".
    pub fn depth_text(&self, depth: usize) -> String {
        match depth {
            1 => self.alone.to_owned(),
            depth => format!("{depth} {}", self.in_flight),
        }
    }
}
