'use strict';
// Shows stored lines as text: what was searched for, and the newest as they come. It also brings the figures up to date,
// which a page without scripts does by reloading itself.
const at = id => document.getElementById(id);
const form = at('query'), live = at('live'), found = at('found');
const KEPT_LINES = 500, SHOWN_CHARACTERS = 10000;
const FIGURES_MS = 2000, PAUSE_MS = 5000;

// Asks for lines, and calls `take` with each record of the answer.
async function read(path, names, separator, signal, take) {
  const query = new URLSearchParams();
  for (const name of names) query.append(name, form.elements[name].value);
  const token = at('token')?.value;
  const headers = token ? {Authorization: 'Bearer ' + token} : {};
  const response = await fetch(path + '?' + query, {headers, signal, cache: 'no-store'});
  if (!response.ok) {
    const error = new Error((await response.text()).trim());
    // Asked again, the answer would be the same.
    error.isFinal = response.status < 500;
    throw error;
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    const records = (rest + value).split(separator);
    rest = records.pop();
    take(records);
  }
}

// Makes an item of an object {"time_ms":1,"peer":"...","tenant":"...","line":LINE}. The line is not parsed: its numbers
// may have more digits than a script's. Within the values before it a quote is escaped, so it begins at the first
// `,"line":`.
function item(object) {
  const begin = object.indexOf(',"line":');
  const about = JSON.parse(object.slice(0, begin) + '}');
  let line = object.slice(begin + 8, object.lastIndexOf('}'));
  if (line.length > SHOWN_CHARACTERS) line = line.slice(0, SHOWN_CHARACTERS) + ' …';
  const element = document.createElement('li');
  const time = document.createElement('time');
  time.textContent = time.dateTime = new Date(about.time_ms).toISOString();
  element.append(time, ' ');
  if (about.tenant !== undefined) {
    const tenant = document.createElement('b');
    tenant.textContent = about.tenant;
    element.append(tenant, ' ');
  }
  element.append(line);
  return element;
}

let search;
form.addEventListener('submit', async event => {
  event.preventDefault();
  search?.abort();
  const own = search = new AbortController();
  found.replaceChildren();
  found.hidden = false;
  at('found-state').textContent = 'Searching';
  let end;
  let text;
  try {
    const names = ['match', 'where', 'tenant', 'since', 'until', 'limit'];
    await read('/search', names, '\n', own.signal, records => {
      for (const record of records) {
        if (record.startsWith('{"end":')) end = JSON.parse(record).end;
        else found.append(item(record));
      }
    });
    text = end ? `${end.lines} lines` : 'The answer was cut off';
    if (end?.cut === 'lines') text += ', and there are more: these are the first';
    else if (end?.cut) text += `; not everything was searched (${end.cut})`;
    if (end?.problems.length) text += `; ${end.problems.join('; ')}`;
  } catch (error) {
    text = error.message;
  }
  if (!own.signal.aborted) at('found-state').textContent = text;
});

function show(events) {
  const isAtEnd = live.scrollTop + live.clientHeight >= live.scrollHeight - 4;
  const items = document.createDocumentFragment();
  for (const event of events) {
    const [, kind, data] = /^(?:event: (.*)\n)?data: ([^]*)$/.exec(event) ?? [];
    if (kind === 'failure') throw new Error(data);
    if (kind === 'left-out') {
      const gap = document.createElement('li');
      gap.textContent = `${data} lines left out`;
      items.append(gap);
    } else if (data) {
      items.append(item(data));
    }
  }
  live.append(items);
  while (live.childElementCount > KEPT_LINES) live.firstElementChild.remove();
  if (isAtEnd) live.scrollTop = live.scrollHeight;
}

let following;
async function follow() {
  following?.abort();
  const own = following = new AbortController();
  const names = at('filter').checked ? ['match', 'where', 'tenant'] : [];
  while (!own.signal.aborted) {
    let state;
    if (at('token')?.value === '') {
      state = 'A token is needed';
    } else {
      live.replaceChildren();
      at('live-state').textContent = '';
      try {
        await read('/live', names, '\n\n', own.signal, show);
        state = 'The connection has ended';
      } catch (error) {
        state = error.message;
        if (error.isFinal) own.abort();
      }
    }
    if (following !== own) return;
    at('live-state').textContent = state;
    await new Promise(resolve => setTimeout(resolve, PAUSE_MS));
  }
}

at('pause').addEventListener('click', () => {
  const isPaused = at('pause').ariaPressed === 'true';
  at('pause').ariaPressed = String(!isPaused);
  if (isPaused) {
    follow();
  } else {
    following?.abort();
    following = undefined;
    at('live-state').textContent = 'Paused';
  }
});
function startAgain() {
  if (at('pause').ariaPressed !== 'true') follow();
}
at('filter').addEventListener('change', startAgain);
at('token')?.addEventListener('change', startAgain);
form.addEventListener('change', () => {
  if (at('filter').checked) startAgain();
});

async function refresh() {
  // Who reads a table by keys stays there.
  if (document.hidden || at('figures').contains(document.activeElement)) return;
  try {
    const response = await fetch('/', {cache: 'no-store'});
    if (!response.ok) throw new Error(response.statusText);
    const fresh = new DOMParser().parseFromString(await response.text(), 'text/html');
    const elements = ['status', 'figures'].map(id => fresh.getElementById(id));
    if (!elements.every(element => element)) throw new Error('another page');
    for (const element of elements) at(element.id).replaceWith(element);
    document.body.classList.remove('old');
  } catch {
    document.body.classList.add('old');
  }
}

at('lines').hidden = false;
follow();
setInterval(refresh, FIGURES_MS);
