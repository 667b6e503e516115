// Keyboard and mouse on the timeline: moves the focus, opens nodes and turns a drawn time into a request.
import { describe, Draft, placeOf } from './timeline-draft.js';
import { gripAt, Move } from './timeline-move.js';

const FIVE = 5 * 60_000;
const QUARTER = 15 * 60_000;
const HOUR = 60 * 60_000;

let view = null;

class View {
  constructor(grid) {
    this.grid = grid;
    this.from = Number(grid.dataset.from);
    this.span = Number(grid.dataset.span);
    this.opened = Number(grid.dataset.now) - Date.now();
    this.step = Number(grid.dataset.step) * 60_000;
    this.zone = grid.dataset.zone;
    this.places = JSON.parse(grid.dataset.places);
  }

  now() { return Date.now() + this.opened; }

  // The next full five minutes; an earlier start means now.
  soonest() { return Math.ceil(this.now() / FIVE) * FIVE; }

  rows() {
    return [...this.grid.querySelectorAll('.tl-row')].filter((row) => !row.hidden);
  }

  // Finds the row by height, since a bar can cover rows below its own.
  rowAt(y) {
    return this.rows().find((row) => {
      const box = row.getBoundingClientRect();
      return box.top <= y && y < box.bottom;
    });
  }

  percent(time) { return ((time - this.from) / this.span) * 100; }

  timeAt(lane, x, snap) {
    const box = lane.getBoundingClientRect();
    const share = Math.min(1, Math.max(0, (x - box.left) / box.width));
    return Math.floor((this.from + share * this.span) / snap) * snap;
  }

  // Bars over a row, including those from rows above.
  barsOver(row) {
    const box = laneOf(row).getBoundingClientRect();
    const inside = (bar) => {
      const r = bar.getBoundingClientRect();
      return r.height && r.top < box.bottom - 3 && r.bottom > box.top + 3;
    };
    return [...this.grid.querySelectorAll('.bar:not(.draft)')].filter(inside).map((bar) => {
      const r = bar.getBoundingClientRect();
      const at = (x) => this.from + ((x - box.left) / box.width) * this.span;
      return { bar, from: at(r.left - 1), to: at(r.right + 1) };
    });
  }
}

const laneOf = (row) => row.querySelector('.lane');
const rowOf = (element) => element.closest('.tl-row');
const isBookable = (row) => !view.grid.hasAttribute('data-fixed') && ['gpu', 'slot', 'node'].some((kind) => row.classList.contains(kind));

// --- focus ---------------------------------------------------------------------------------------

const focus = { key: null, time: null, onHeader: false };

function focusCell(row, time) {
  const last = view.from + view.span - view.step;
  focus.time = Math.min(last, Math.max(view.from, time));
  focus.key = laneOf(row).dataset.key;
  focus.onHeader = false;
  rove(laneOf(row));
  showCursor(row);
  laneOf(row).setAttribute('aria-label', describe(view, row, focus.time));
}

function focusHeader(row) {
  focus.key = laneOf(row).dataset.key;
  focus.onHeader = true;
  view.grid.querySelector('.cursor')?.remove();
  const head = row.querySelector('.tl-lab');
  head.focus();
  head.scrollIntoView({ block: 'nearest' });
}

function rove(lane) {
  for (const other of view.grid.querySelectorAll('.lane[tabindex="0"]')) other.tabIndex = -1;
  lane.tabIndex = 0;
  lane.focus({ preventScroll: true });
}

function showCursor(row, follow = true) {
  view.grid.querySelector('.cursor')?.remove();
  const cursor = document.createElement('div');
  cursor.className = 'cursor';
  cursor.style.left = `${view.percent(focus.time)}%`;
  cursor.style.width = `${(view.step / view.span) * 100}%`;
  laneOf(row).append(cursor);
  if (follow) cursor.scrollIntoView({ block: 'nearest', inline: 'nearest' });
}

const parentOf = (row) => {
  const level = Number(row.getAttribute('aria-level'));
  let at = row.previousElementSibling;
  while (at && Number(at.getAttribute('aria-level')) >= level) at = at.previousElementSibling;
  return at?.classList.contains('tl-row') ? at : null;
};

const keys = {
  ArrowUp: (row) => stepRow(row, -1),
  ArrowDown: (row) => stepRow(row, 1),
  ArrowLeft: (row) => {
    if (focus.onHeader) {
      if (row.getAttribute('aria-expanded') === 'true') toggle(row, false);
      else if (parentOf(row)) focusHeader(parentOf(row));
    } else if (focus.time <= view.from) focusHeader(row);
    else focusCell(row, focus.time - view.step);
  },
  ArrowRight: (row) => {
    if (!focus.onHeader) focusCell(row, focus.time + view.step);
    else if (row.getAttribute('aria-expanded') === 'false') toggle(row, true);
    else focusCell(row, view.from);
  },
  Home: (row) => focusCell(row, view.from),
  End: (row) => focusCell(row, view.from + view.span),
  Enter: (row) => {
    if (focus.onHeader) { toggle(row, row.getAttribute('aria-expanded') === 'false'); return; }
    const hit = view.barsOver(row).find((each) => each.from <= focus.time && focus.time < each.to);
    if (hit?.bar.href) location.assign(hit.bar.href);
    else if (!hit) startDraft(row);
  },
  b: (row) => startDraft(row),
  m: (row) => startMove(row),
};

function stepRow(row, by) {
  const rows = view.rows();
  const next = rows[rows.indexOf(row) + by];
  if (!next) return;
  if (focus.onHeader) focusHeader(next);
  else focusCell(next, focus.time);
}

function onKey(event) {
  const row = event.target.closest?.('.tl-row');
  if (!row || !view?.grid.contains(row) || event.metaKey || event.altKey) return;
  if (event.target.closest('.bar') && event.key === 'Enter') return;
  focus.time ??= Math.floor(Math.max(view.now(), view.from) / view.step) * view.step;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (moving) moveKey(event, key);
  else if (event.shiftKey && key.startsWith('Arrow')) {
    if (!draft.isOn) startDraft(row);
    else extendDraft(key);
  } else if (key === 'Escape' && draft.isOn) cancelDraft();
  else if (key === 'Enter' && draft.isOn && !focus.onHeader && !event.repeat) announce(true);
  else if (event.ctrlKey && (key === 'Home' || key === 'End')) {
    const rows = view.rows();
    focusCell(key === 'Home' ? rows[0] : rows.at(-1), focus.time);
  } else if (keys[key] && !event.ctrlKey) keys[key](row);
  else return;
  event.preventDefault();
}

// --- opening and closing -------------------------------------------------------------------------

function toggle(row, open) {
  row.setAttribute('aria-expanded', String(open));
  const level = Number(row.getAttribute('aria-level'));
  let child = row.nextElementSibling;
  while (child && Number(child.getAttribute('aria-level')) > level) {
    const parent = parentOf(child);
    child.hidden = !open || parent.hidden || parent.getAttribute('aria-expanded') === 'false';
    child = child.nextElementSibling;
  }
  fit();
  rememberOpen(row);
  draft.draw(view);
}

// Fits bars over several GPUs to the height of their rows and open slot rows.
function fit() {
  for (const bar of view.grid.querySelectorAll('.tl-row.gpu > .lane > .bar')) {
    const first = rowOf(bar);
    if (first.hidden || (!bar.dataset.gpus && !first.hasAttribute('aria-expanded')) || bar.matches('.sum, .many')) continue;
    let [left, last] = [Number(bar.dataset.gpus || 1), first];
    for (let at = first.nextElementSibling; at; at = at.nextElementSibling) {
      if (at.classList.contains('gpu')) left -= 1;
      if (left < 1 || !at.matches('.gpu, .slot')) break;
      if (!at.hidden) last = at;
    }
    const bottom = last.getBoundingClientRect().bottom - first.getBoundingClientRect().top;
    bar.style.height = `${bottom - 2 - bar.offsetTop}px`;
  }
}

// Keeps open nodes and GPUs with opened ("node/6") or closed ("node/6-") slot rows in the address.
function rememberOpen(row) {
  if (row.classList.contains('gpu')) row.dataset.chosen = '';
  const nodes = [...view.grid.querySelectorAll('.tl-row.node[aria-expanded="true"]')].map((each) => each.dataset.node);
  const gpus = [...view.grid.querySelectorAll('.tl-row.gpu[data-chosen]')].map((each) => `${each.dataset.node}/${each.dataset.gpu}${each.getAttribute('aria-expanded') === 'true' ? '' : '-'}`);
  const open = [...new Set([...nodes, ...gpus])].sort().join(',') || '-';
  const page = new URL(location.href);
  page.searchParams.set('open', open);
  history.replaceState(null, '', page);
  const part = view.grid.closest('[data-live]');
  const url = new URL(part.dataset.liveUrl, location.href);
  url.searchParams.set('open', open);
  part.dataset.liveUrl = url.pathname + url.search;
}

// --- drawing -------------------------------------------------------------------------------------

const draft = new Draft();
let announcing = 0;

function startDraft(row) {
  if (!isBookable(row)) return;
  const length = Math.max(HOUR, view.step);
  const from = Math.max(focus.time, view.soonest());
  draft.set(view, placeOf(view, row, row, from, from + length), from, from + length);
  announce();
}

function extendDraft(key) {
  const by = { ArrowRight: QUARTER, ArrowLeft: -QUARTER }[key];
  if (by) {
    const to = Math.max(draft.from + QUARTER, draft.to + by * Math.max(1, view.step / HOUR));
    draft.set(view, draft.place, draft.from, to);
  } else {
    draft.set(view, draft.place.grown(view, key === 'ArrowDown' ? 1 : -1), draft.from, draft.to);
  }
  announce();
}

function cancelDraft() {
  draft.clear();
  say('Draft removed');
}

// Sends the draft to the panel when it rests; at once when it is done, and the panel then takes
// the focus, so that the next Enter books.
function announce(isDone = false) {
  clearTimeout(announcing);
  announcing = setTimeout(() => {
    if (!draft.isOn) return;
    say(draft.words(view));
    document.dispatchEvent(new CustomEvent('ask:text', { detail: { text: draft.text(view), isDone } }));
  }, isDone ? 0 : 250);
}

function say(words) {
  document.querySelector('[data-say]').textContent = words;
}

// --- moving a booking ----------------------------------------------------------------------------

let moving = null;
// The bar under a pressed button, before it is clear whether it is dragged or clicked.
let held = null;
let wasDragged = false;

function startMove(row) {
  const hit = view.barsOver(row).find((each) => each.from <= focus.time && focus.time < each.to);
  const bar = hit?.bar;
  if (!bar?.dataset.move) { say('No booking of yours that can be moved'); return; }
  moving = new Move(view, bar, gripAt(bar, bar.getBoundingClientRect().x + bar.offsetWidth / 2));
  busy(true);
  say(`Moving ${bar.getAttribute('aria-label')}. Arrows move it, with Shift its end; the price is shown beside it. Enter asks for the change, Escape stops.`);
}

// Arrows move the booking, or its end with Shift, by a quarter of an hour.
function moveKey(event, key) {
  const by = { ArrowRight: QUARTER, ArrowLeft: -QUARTER }[key];
  if (key === 'Escape') stopMove();
  else if (key === 'Enter') finishMove();
  else if (by) {
    if (event.shiftKey || moving.grip === 'end') moving.set(moving.shift, moving.grow + by);
    else moving.set(moving.shift + by, moving.grow);
    say(moving.words());
  }
}

function finishMove() {
  if (moving.isChanged) moving.card.open();
  else stopMove();
}

function stopMove() {
  moving?.remove();
  moving = null;
  busy(false);
}

function busy(is) {
  const part = view.grid.closest('[data-live]');
  if (is) part.dataset.liveBusy = '';
  else delete part.dataset.liveBusy;
}

let drag = null;

function onDown(event) {
  if (event.target.closest?.('.drag-card')) return;
  if (moving) stopMove();
  const bar = event.target.closest?.('.bar[data-move]');
  if (bar && view?.grid.contains(bar) && event.button === 0) {
    const { width } = laneOf(rowOf(bar)).getBoundingClientRect();
    held = { bar, x: event.clientX, grip: gripAt(bar, event.clientX, event.pointerType === 'touch'), width };
    return;
  }
  const lane = event.target.closest?.('.lane');
  if (!lane || !view?.grid.contains(lane) || event.button !== 0) return;
  if (event.target.closest('.bar') || !isBookable(rowOf(lane)) || event.pointerType === 'touch') return;
  event.preventDefault();
  const snap = event.altKey ? FIVE : QUARTER;
  const at = view.timeAt(lane, event.clientX, snap);
  drag = { row: rowOf(lane), at, x: event.clientX, moved: false };
  view.grid.closest('[data-live]').dataset.liveBusy = '';
  focusCell(drag.row, Math.floor(at / view.step) * view.step);
}

function onMove(event) {
  if (held) { moveBar(event); return; }
  if (!drag) return;
  const snap = event.altKey ? FIVE : QUARTER;
  drag.moved ||= Math.abs(event.clientX - drag.x) > 4;
  if (!drag.moved) return;
  const time = view.timeAt(laneOf(drag.row), event.clientX, snap);
  const from = Math.max(view.soonest(), Math.min(drag.at, time));
  const to = Math.max(from + snap, drag.at + snap, time + snap > drag.at ? time + snap : 0);
  const over = view.rowAt(event.clientY);
  const last = over && over.dataset.node === drag.row.dataset.node ? over : drag.row;
  draft.set(view, placeOf(view, drag.row, last, from, to), from, to);
}

function moveBar(event) {
  const x = event.clientX - held.x;
  if (!moving && Math.abs(x) <= 4) return;
  if (!moving) { moving = new Move(view, held.bar, held.grip); busy(true); }
  const snap = event.altKey ? FIVE : QUARTER;
  moving.drag(Math.round(((x / held.width) * view.span) / snap) * snap);
}

function onUp(event) {
  if (held) {
    held = null;
    wasDragged = moving !== null;
    if (event.type === 'pointercancel') stopMove();
    else if (moving) { say(moving.words()); finishMove(); }
    return;
  }
  if (!drag) return;
  const { row, at, moved } = drag;
  drag = null;
  delete view.grid.closest('[data-live]').dataset.liveBusy;
  if (event.type === 'pointercancel') return;
  if (!moved) clicked(row, at);
  announce();
}

// A click starts a draft of one hour; a second click later in the row sets its end.
function clicked(row, at) {
  const same = draft.isOn && draft.place.first === laneOf(row).dataset.key;
  if (same && at >= draft.to) draft.set(view, draft.place, draft.from, at + QUARTER);
  else { focus.time = at; startDraft(row); }
}

function onClick(event) {
  if (event.target.closest?.('.drag-card [data-close]')) stopMove();
  // The click that ends a drag does not follow the bar's link.
  if (wasDragged && event.target.closest?.('.bar')) event.preventDefault();
  wasDragged = false;
  const tog = event.target.closest?.('[data-toggle]');
  if (tog && view?.grid.contains(tog)) {
    event.preventDefault();
    const row = rowOf(tog);
    toggle(row, row.getAttribute('aria-expanded') === 'false');
    return;
  }
  // Touch scrolls instead of dragging; a tap is a click.
  const lane = event.target.closest?.('.lane');
  if (event.pointerType === 'touch' && lane && !event.target.closest('.bar') && isBookable(rowOf(lane))) {
    clicked(rowOf(lane), view.timeAt(lane, event.clientX, QUARTER));
    announce();
  }
}

function start() {
  const grid = document.querySelector('[data-treegrid]');
  view = grid ? new View(grid) : null;
  if (!view) return;
  draft.draw(view);
  const rows = view.rows();
  const known = rows.find((row) => laneOf(row).dataset.key === focus.key);
  const first = known || rows.find((row) => row.classList.contains('gpu')) || rows[0];
  if (!first) return;
  laneOf(first).tabIndex = 0;
  // Restores the focus in the new grid without scrolling.
  if (known && document.activeElement === laneOf(known)) showCursor(known, false);
}

document.addEventListener('keydown', onKey);
document.addEventListener('keydown', (event) => {
  if (moving && event.key === 'Escape' && event.target.closest?.('.drag-card')) stopMove();
});
document.addEventListener('pointerover', (event) => {
  const bar = event.target.closest?.('.bar[aria-label]');
  if (bar && !bar.title) bar.title = bar.getAttribute('aria-label');
});
document.addEventListener('pointerdown', onDown);
document.addEventListener('pointermove', onMove);
document.addEventListener('pointerup', onUp);
document.addEventListener('pointercancel', onUp);
document.addEventListener('click', onClick);
// The browser would drag the bar's link.
document.addEventListener('dragstart', (event) => {
  if (event.target.closest?.('.bar[data-move]')) event.preventDefault();
});
document.addEventListener('focusin', (event) => {
  const lane = event.target.closest?.('.lane');
  if (!lane || event.target !== lane || !view?.grid.contains(lane) || focus.key === lane.dataset.key) return;
  focusCell(rowOf(lane), focus.time ?? Math.floor(Math.max(view.now(), view.from) / view.step) * view.step);
});
document.addEventListener('live:replaced', start);
document.addEventListener('booking:made', () => draft.clear());
start();
