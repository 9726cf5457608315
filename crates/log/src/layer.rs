//! Events of `tracing` as lines.
//!
//! An event becomes one object: `timestamp` (RFC 3339, UTC), `level`, `target`, `fields` with the event's `message`,
//! and `spans` from the outermost on, each with its `name` and its `fields`. A layer must not stop the program, so
//! lines are dropped and counted when there is no room.

use std::{fmt, time::Duration};

use serde_json::{Map, Value};
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
    span,
};
use tracing_subscriber::{
    fmt::{
        format::Writer,
        time::{FormatTime, SystemTime},
    },
    layer::Context,
    registry::LookupSpan,
};

use crate::{client::Client, recursion::Inside};

/// A layer that sends each event as a line.
///
/// It never waits for the daemon longer than [`Layer::patience`], and by default not at all. What it drops is in
/// [`Stats::dropped_lines`](crate::Stats::dropped_lines), and events that are longer than a line may be are in
/// [`Stats::invalid_lines`](crate::Stats::invalid_lines).
///
/// Events that are recorded while an event is written, or by the client's own threads, are not sent. So a callback
/// for events of the client may use `tracing`.
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
/// use tracing_subscriber::prelude::*;
///
/// let client = ringwise_log::Client::builder("127.0.0.1:9000").name("web-1").start()?;
/// tracing_subscriber::registry().with(ringwise_log::Layer::new(client.clone())).init();
///
/// tracing::info!(user = 17, "logged in");
/// client.close(Duration::from_secs(5))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Layer {
    client: Client,
    patience: Duration,
}

impl Layer {
    /// Sends events by this client.
    pub fn new(client: Client) -> Layer {
        Layer { client, patience: Duration::ZERO }
    }

    /// Waits up to this time for room, before an event is dropped.
    pub fn patience(mut self, patience: Duration) -> Layer {
        self.patience = patience;
        self
    }
}

/// Fields of a span, as they are written.
struct Fields(Map<String, Value>);

impl<S> tracing_subscriber::Layer<S> for Layer
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(
        &self,
        attributes: &span::Attributes<'_>,
        id: &span::Id,
        context: Context<'_, S>,
    ) {
        let mut fields = Map::new();
        attributes.record(&mut Visitor(&mut fields));
        if let Some(span) = context.span(id) {
            span.extensions_mut().replace(Fields(fields));
        }
    }

    fn on_record(&self, id: &span::Id, values: &span::Record<'_>, context: Context<'_, S>) {
        let mut new = Map::new();
        values.record(&mut Visitor(&mut new));
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            fields.0.extend(new);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let Some(_inside) = Inside::enter() else { return };
        let line = Value::Object(object(event, &context)).to_string();
        self.client.send_or_drop(line.as_bytes(), self.patience);
    }
}

fn object<S>(event: &Event<'_>, context: &Context<'_, S>) -> Map<String, Value>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let mut time = String::new();
    // Writing to memory does not fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut time));
    let mut fields = Map::new();
    event.record(&mut Visitor(&mut fields));
    let mut line = Map::new();
    line.insert("timestamp".to_owned(), time.into());
    line.insert("level".to_owned(), event.metadata().level().as_str().into());
    line.insert("target".to_owned(), event.metadata().target().into());
    line.insert("fields".to_owned(), fields.into());
    let scope = context.event_scope(event).into_iter().flat_map(|scope| scope.from_root());
    let spans: Vec<Value> = scope
        .map(|span| {
            let mut of_span = Map::new();
            of_span.insert("name".to_owned(), span.name().into());
            if let Some(fields) = span.extensions().get::<Fields>() {
                of_span.insert("fields".to_owned(), fields.0.clone().into());
            }
            of_span.into()
        })
        .collect();
    line.insert("spans".to_owned(), spans.into());
    line
}

/// Writes fields into an object. JSON has no infinite numbers: they become text.
struct Visitor<'a>(&'a mut Map<String, Value>);

impl Visitor<'_> {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Visitor<'_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        match value.is_finite() {
            true => self.put(field, value),
            false => self.put(field, value.to_string()),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.put(field, value.to_string());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }
}
