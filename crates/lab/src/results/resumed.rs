//! Going on with a run that was interrupted: what its results file holds is not measured again.
//!
//! The order of the samples follows from the seed, so what a row has are the first samples of that
//! order, and the run goes on with the next one, in the middle of a block if need be. The one that
//! was interrupted is in no file. What is cheap is done anew: test files, which follow from the seed
//! too, the lab's own time and the counting of system calls. On another machine or kernel there is
//! nothing to go on with.

use std::{fs, path::Path};

use ringwise_measure::{Latency, device::Storage, environment::Environment};
use serde::Deserialize;
use serde_json::{Value, from_value};

use crate::{
    args::Args,
    error::LabError,
    results::{
        report::saved::Saved,
        row::{Row, RowKind, SampleFigures},
        section::Section,
    },
    sampling::heat::Heat,
};

/// What was measured before.
#[derive(Clone, Debug)]
pub struct Resumed {
    saved: Saved,
    rows: Vec<KeptRow>,
}

/// A row as it is taken up again: with all figures of its samples, and not only those of reports.
#[derive(Clone, Debug, Deserialize)]
struct KeptRow {
    section: usize,
    engine: String,
    role: RowKind,
    depth: usize,
    samples: Vec<SampleFigures>,
}

impl Resumed {
    /// Reads a partial results file, and what was typed for it.
    ///
    /// # Errors
    ///
    /// It is no results file, is whole, or is of another version of the program.
    pub fn read(path: &Path) -> Result<(Args, Resumed), LabError> {
        let saved = Saved::read(path)?;
        let refused = |why: &str| LabError::Failed(format!("--resume {}: {why}", path.display()));
        if !saved.partial {
            return Err(refused("the run came to its end: there is nothing left to measure"));
        }
        if saved.version != env!("CARGO_PKG_VERSION") {
            let version = &saved.version;
            return Err(refused(&format!("measured by ringwise {version}, go on with that")));
        }
        let text =
            fs::read_to_string(path).map_err(|error| LabError::on("reading", path, &error))?;
        let damaged = |error: serde_json::Error| refused(&format!("is damaged: {error}"));
        let mut document: Value = serde_json::from_str(&text).map_err(damaged)?;
        let args: Args = from_value(document["flags"].take()).map_err(damaged)?;
        let rows = from_value(document["results"].take()).map_err(damaged)?;
        // Its figures go where they came from.
        Ok((Args { json: Some(path.to_owned()), ..args }, Resumed { saved, rows }))
    }

    /// When the run began first, in seconds since 1970.
    pub fn began_unix_s(&self) -> u64 {
        self.saved.began_unix_s
    }

    /// How long it took so far.
    pub fn lasted_s(&self) -> f64 {
        self.saved.lasted_s
    }

    /// Whether this is the machine that it was measured on.
    ///
    /// # Errors
    ///
    /// What differs.
    pub fn check(&self, environment: &Environment, storage: &Storage) -> Result<(), LabError> {
        let now = |value: Result<Value, serde_json::Error>| value.unwrap_or_default();
        let (environment, storage) =
            (now(serde_json::to_value(environment)), now(serde_json::to_value(storage)));
        let facts = ["kernel", "cpu_model", "cores_allowed"].map(|name| {
            (name, self.saved.environment.get(name).cloned(), environment.get(name).cloned())
        });
        let device = |device: Option<&Value>| device.and_then(|own| own.get("number")).cloned();
        let devices = (device(self.saved.storage.get("device")), device(storage.get("device")));
        let all = facts.into_iter().chain([("device", devices.0, devices.1)]);
        match all.into_iter().find(|(_, before, now)| before != now) {
            None => Ok(()),
            Some((name, before, now)) => Err(LabError::Failed(format!(
                "--resume: {name} is {}, the run began on {}: begin a new one",
                now.unwrap_or_default(),
                before.unwrap_or_default()
            ))),
        }
    }

    /// How many sections it had come to.
    pub fn sections(&self) -> usize {
        self.saved.sections.len()
    }

    /// Gives the rows of a section the samples that they had.
    pub fn restore(&self, section: &mut Section) {
        let Some(index) = self.saved.sections.iter().position(|own| own.title == section.title)
        else {
            return;
        };
        let mut samples = 0;
        for row in &mut section.rows {
            samples += self.restore_row(index, row).unwrap_or(0);
        }
        if samples > 0 {
            section.notes.push(format!("{samples} samples were taken before an interruption"));
        }
    }

    /// How many samples a row had. None where it is not in the file.
    fn restore_row(&self, section: usize, row: &mut Row) -> Option<usize> {
        // What an engine is for may change; the control is another row of the same engine.
        let is_control = row.kind == RowKind::Control;
        let is_it = |own: &KeptRow| {
            (own.section, own.role == RowKind::Control, own.depth)
                == (section, is_control, row.depth)
                && own.engine == row.engine
        };
        let at = self.rows.iter().position(is_it)?;
        let (kept, saved) = (&self.rows[at], &self.saved.results[at]);
        let heats: Option<Vec<Heat>> = saved.heats();
        let latency = match &saved.histogram {
            Some(text) => Latency::from_base64(text)?,
            None => Latency::default(),
        };
        let measured = &mut row.measured;
        measured.samples.clone_from(&kept.samples);
        // What a row is judged by later is a sum over its samples.
        measured.elapsed_ns = kept.samples.iter().map(|sample| sample.elapsed_ns).sum();
        measured.latency = latency;
        measured.slices = saved.slices.clone().unwrap_or_default();
        measured.heats = heats?;
        measured.detail.clone_from(&saved.detail);
        measured.void = measured.void.take().or_else(|| saved.void.clone());
        Some(kept.samples.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{saved_text, section};

    fn resumed(change: impl FnOnce(&mut Value)) -> Result<(Args, Resumed), String> {
        let mut value: Value = serde_json::from_str(&saved_text()).unwrap();
        value["partial"] = true.into();
        change(&mut value);
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), value.to_string()).unwrap();
        Resumed::read(file.path()).map_err(|error| error.to_string())
    }

    #[test]
    fn rows_have_again_what_they_had() {
        let (args, resumed) = resumed(|value| {
            let samples = value["results"][4]["samples"].as_array_mut().unwrap();
            samples.truncate(3);
            // A server whose process is not seen has none.
            samples[0]["cpu_ns_per_op"] = Value::Null;
            value["results"][3]["samples"][1]["client_bound"] = true.into();
        })
        .unwrap();
        assert_eq!(args.seed.as_deref(), Some("7"));
        let before = section();
        let mut after = section();
        after.rows.iter_mut().for_each(|row| row.measured = Default::default());
        resumed.restore(&mut after);
        assert_eq!(after.rows[0].measured.samples, before.rows[0].measured.samples);
        assert_eq!(after.rows[3].measured.client_bound(), 1, "the load's limit is not forgotten");
        for (after, before) in after.rows.iter().zip(&before.rows).filter(|(row, _)| row.depth == 1)
        {
            assert_eq!(after.measured.elapsed_ns, before.measured.elapsed_ns);
        }
        assert_eq!(after.rows[4].measured.elapsed_ns, before.rows[4].measured.elapsed_ns / 2);
        let (own, other) = (&after.rows[3].measured, &before.rows[3].measured);
        assert_eq!(own.latency.bins(), other.latency.bins());
        assert_eq!((own.heats.len(), own.slices.len()), (2, 10));
        assert_eq!(after.rows[1].measured.void, before.rows[1].measured.void);
        assert_eq!(after.rows[4].measured.samples.len(), 3, "the control's, not the subject's");
        assert!(after.rows[4].measured.samples[0].cpu_ns_per_op.is_nan());
        assert!(
            after.notes.last().unwrap().ends_with("33 samples were taken before an interruption")
        );
    }

    #[test]
    fn what_cannot_go_on_is_refused() {
        for (found, part) in [
            (resumed(|value| value["partial"] = false.into()), "came to its end"),
            (resumed(|value| value["version"] = "0.0.1".into()), "ringwise 0.0.1, go on with that"),
            (resumed(|value| value["flags"]["dpeth"] = 1.into()), "unknown field `dpeth`"),
            (resumed(|value| value["results"][0]["role"] = "x".into()), "is damaged"),
        ] {
            let reason = found.unwrap_err();
            assert!(reason.contains(part) && !reason.contains('\n'), "{reason}");
        }
    }

    #[test]
    fn another_machine_is_refused() {
        let (_, resumed) = resumed(|_| {}).unwrap();
        let nowhere = ringwise_measure::Sources::below("/nonexistent");
        let storage = Storage::of(&nowhere, Path::new("/"));
        resumed.check(&Environment::read(&nowhere), &storage).unwrap();
        let here = Environment::read(&Default::default());
        let error = resumed.check(&here, &storage).unwrap_err().to_string();
        assert!(error.starts_with("--resume: kernel is "), "{error}");
    }
}
