// One socket per page says what changed; marked parts fetch themselves again.
//   <section data-live="booking.changed" data-live-url="…?part=…" id="…">
// data-live-every="10" polls a part every 10 seconds.
// A part may narrow to one booking with data-live-booking="BK-12". With data-live-version, and an
// element with data-event for each event, it is not fetched for what it shows already.
// data-live-now: the part is fetched as soon as the page is there, because it takes longer than the page.
// With data-live-now="wide" a phone has the part's link only, because the page is long enough.
// Without data-live-url the page's own address is fetched and the element of the same id is taken
// from it.
// A part is replaced whole, at most once a second, and keeps scroll positions and focus.
const GAP_MS = 1000;
const FIRST_WAIT_MS = 500;
const LAST_WAIT_MS = 15000;
// The portal sends a heartbeat every ten seconds; without one for this long the connection is lost.
const SILENT_MS = 35000;

// The session has ended or access was removed: don't reconnect.
const NOT_YOURS = 4403;

const due = new Map();
// The messages for which each part is due; null for a reason that the part can't have already.
const reasons = new Map();
// The number of the last message of each kind, and the time of the last message.
const last = { own: null, fleet: null };
let heardAt = 0;
let isSilent = false;

// Operators' pages have no socket (`path` is undefined): their parts only poll.
export function startLive(path) {
  if (path) connect(path, FIRST_WAIT_MS, false);
  for (const part of document.querySelectorAll('[data-live-now]')) refreshFor(part, null);
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden) refreshAll();
  });
  setInterval(refreshOld, GAP_MS);
}

function connect(path, wait, isAgain) {
  const scheme = location.protocol === 'https:' ? 'wss' : 'ws';
  const socket = new WebSocket(`${scheme}://${location.host}${path}`);
  let next = wait;
  let watch = 0;
  socket.addEventListener('open', () => {
    next = FIRST_WAIT_MS;
    heardAt = performance.now();
    watch = setInterval(() => {
      if (performance.now() - heardAt > SILENT_MS) {
        isSilent = true;
        socket.close();
      }
    }, GAP_MS);
    // After a silent connection, wait for a message before showing "Live".
    if (!isSilent) mark(true);
    // Refresh to catch up on missed messages.
    if (isAgain) refreshAll();
  });
  socket.addEventListener('message', (event) => heard(JSON.parse(event.data)));
  socket.addEventListener('close', (event) => {
    clearInterval(watch);
    mark(false);
    if (event.code === NOT_YOURS) return end();
    setTimeout(() => connect(path, Math.min(next * 2, LAST_WAIT_MS), true), next);
  });
}

function end() {
  for (const text of document.querySelectorAll('[data-live-text]')) {
    text.textContent = 'Live updates ended. Reload the page.';
  }
}

function heard(message) {
  heardAt = performance.now();
  isSilent = false;
  mark(true);
  if (isMissed(message)) refreshAll();
  else changed(message);
}

// A gap in the numbers means a lost message.
function isMissed(message) {
  const isBeat = message.kind === 'live.beat';
  const own = message.kind === 'booking.changed' ? message.number : message.own;
  const fleet = message.kind === 'fleet.changed' ? message.number : message.fleet;
  let missed = false;
  for (const [name, number] of [['own', own], ['fleet', fleet]]) {
    if (number === undefined) continue;
    const expected = isBeat ? last[name] : last[name] + 1;
    missed ||= last[name] !== null && number !== expected;
    last[name] = number;
  }
  return missed;
}

function mark(isOn) {
  const since = new Date(Date.now() - (performance.now() - heardAt));
  for (const sign of document.querySelectorAll('[data-live-mark]')) {
    const wasOn = sign.classList.contains('on');
    if (isOn && wasOn) continue;
    sign.classList.toggle('on', isOn);
    sign.classList.toggle('off', !isOn);
    const text = sign.querySelector('[data-live-text]');
    if (isOn) text.textContent = 'Live';
    else if (wasOn || !sign.dataset.lost) {
      const clock = new Intl.DateTimeFormat('sv-SE', { timeZone: document.body.dataset.zone, timeStyle: 'short' }).format(since);
      text.textContent = `Live updates lost at ${clock}. Reconnecting.`;
      sign.dataset.lost = clock;
    }
    if (isOn) delete sign.dataset.lost;
  }
}

function changed(message) {
  for (const part of document.querySelectorAll('[data-live]')) {
    const kinds = part.dataset.live.split(' ');
    const only = part.dataset.liveBooking;
    if (kinds.includes(message.kind) && (!only || !message.booking || only === message.booking)) {
      refreshFor(part, message);
    }
  }
}

// A part that was fetched after a change has it already. The portal reads the version first.
function isShown(part, message) {
  return Boolean(message?.event) && message.version <= Number(part.dataset.liveVersion)
    && part.querySelector(`[data-event="${message.event}"]`) !== null;
}

export function refreshAll() {
  for (const part of document.querySelectorAll('[data-live]')) refreshFor(part, null);
}

function refreshFor(part, reason) {
  if (part.dataset.liveNow === 'wide' && !matchMedia('(min-width: 761px)').matches) return;
  reasons.set(part.id, [...(reasons.get(part.id) ?? []), reason]);
  refreshSoon(part);
}

function refreshOld() {
  if (document.hidden) return;
  for (const part of document.querySelectorAll('[data-live-every]')) {
    const age = performance.now() - Number(part.dataset.liveAt || 0);
    if (age < part.dataset.liveEvery * 1000) continue;
    // Counts from now, so that an unresponsive server is not polled every second.
    part.dataset.liveAt = String(performance.now());
    refreshFor(part, null);
  }
}

function refreshSoon(part) {
  if (!part.id || due.has(part.id)) return;
  const last = Number(part.dataset.liveAt || 0);
  const wait = Math.max(0, last + GAP_MS - performance.now());
  due.set(part.id, setTimeout(() => refresh(part.id), wait));
}

async function refresh(id) {
  const old = document.getElementById(id);
  // A part in use (during a drag, or while somebody types in it) is refreshed later.
  if (!old || old.dataset.liveBusy !== undefined || isTypedIn(old)) {
    due.delete(id);
    if (old) refreshLater(old);
    return;
  }
  const asked = reasons.get(id) ?? [];
  reasons.delete(id);
  if (asked.every((reason) => isShown(old, reason))) {
    due.delete(id);
    return;
  }
  try {
    const url = old.dataset.liveUrl || location.pathname + location.search;
    const response = await fetch(url, { headers: { 'X-Fragment': '1' }, redirect: 'error' });
    if (response.ok) replace(id, await response.text());
  } catch {
    // The socket's state already shows that the server does not respond.
  } finally {
    due.delete(id);
    // What was heard meanwhile may be missing in the answer.
    const part = document.getElementById(id);
    if (part && reasons.has(id)) refreshSoon(part);
  }
}

function isTypedIn(part) {
  return [...part.querySelectorAll('[data-typing]')].some((field) => field.value !== '');
}

function refreshLater(part) {
  due.set(part.id, setTimeout(() => refresh(part.id), GAP_MS));
}

function replace(id, html) {
  const old = document.getElementById(id);
  const fresh = new DOMParser().parseFromString(html, 'text/html').getElementById(id);
  if (!old || !fresh || old.dataset.liveBusy !== undefined) return;
  const kept = keep(old);
  fresh.dataset.liveAt = String(performance.now());
  old.replaceWith(fresh);
  restore(fresh, kept);
  fresh.dispatchEvent(new CustomEvent('live:replaced', { bubbles: true }));
}

function keep(part) {
  const scrolls = [part, ...part.querySelectorAll('[data-keep-scroll]')].map((element) => [
    element.dataset.keepScroll ?? '', element.scrollLeft, element.scrollTop,
  ]);
  const open = [...part.querySelectorAll('details[id]')].map((each) => [each.id, each.open]);
  const all = [...part.querySelectorAll('.all-rows > :checked')].map((each) => each.id);
  const active = part.contains(document.activeElement) ? document.activeElement : null;
  return { scrolls, open, all, focus: active && (active.dataset.key || active.id) };
}

function restore(part, { scrolls, open, all, focus }) {
  for (const [name, left, top] of scrolls) {
    const element = name ? part.querySelector(`[data-keep-scroll="${CSS.escape(name)}"]`) : part;
    if (element) { element.scrollLeft = left; element.scrollTop = top; }
  }
  for (const [id, isOpen] of open) {
    const details = document.getElementById(id);
    if (details) details.open = isOpen;
  }
  for (const id of all) {
    const tick = document.getElementById(id);
    if (tick) tick.checked = true;
  }
  if (!focus) return;
  const same = part.querySelector(`[data-key="${CSS.escape(focus)}"]`) || document.getElementById(focus);
  if (same) same.focus({ preventScroll: true });
}
