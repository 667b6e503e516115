// The draft booking drawn on the grid: place, time and request text.
const HOUR = 3_600_000;

// The rows of one node that a draft covers: whole GPUs, or one slice at a legal placement.
class Place {
  constructor(first, gpuClass, count, profile, lane, height, top = 2) {
    Object.assign(this, { first, gpuClass, count, profile, lane, height, top });
  }

  // Adds or removes a GPU at the bottom; a slice's size follows from its slots.
  grown(view, by) {
    const rows = view.rows();
    const at = rows.findIndex((row) => row.querySelector('.lane').dataset.key === this.first);
    if (at < 0) return this;
    const span = this.profile ? Math.round((this.height + 4) / 20) : this.count;
    const last = rows[at + Math.max(1, span + by) - 1] || rows[at];
    return placeOf(view, rows[at], last, this.from, this.to);
  }
}

export function placeOf(view, first, last, from, to) {
  const place = first.classList.contains('slot') ? slicePlace(view, first, last, from, to) : wholePlace(view, first, last);
  place.from = from;
  place.to = to;
  return place;
}

function wholePlace(view, first, last) {
  const all = view.rows().filter((row) => row.dataset.node === first.dataset.node && row.classList.contains('gpu'));
  let [a, b] = [all.indexOf(first), all.indexOf(last)];
  if (a < 0 || b < 0) return new Place(keyOf(first), first.dataset.class, 1, null, keyOf(first), 24);
  if (a > b) [a, b] = [b, a];
  const top = all[a].getBoundingClientRect();
  const bottom = all[b].getBoundingClientRect();
  return new Place(keyOf(first), first.dataset.class, b - a + 1, null, keyOf(all[a]), bottom.bottom - top.top - 4);
}

// Returns the smallest profile with a free legal placement over the touched slots.
function slicePlace(view, first, last, from, to) {
  const gpu = first.dataset.gpu;
  const same = last.classList.contains('slot') && last.dataset.gpu === gpu ? last : first;
  const [low, high] = [Number(first.dataset.slot), Number(same.dataset.slot)].sort((a, b) => a - b);
  const rows = view.rows().filter((row) => row.classList.contains('slot') && row.dataset.gpu === gpu && row.dataset.node === first.dataset.node);
  const taken = new Set(rows.filter((row) => view.barsOver(row).some((bar) => bar.from < to && from < bar.to)).map((row) => Number(row.dataset.slot)));
  const fits = [];
  for (const [profile, places] of Object.entries(view.places[first.dataset.model] || {})) {
    for (const [start, size] of places) {
      const slots = Array.from({ length: size }, (_, i) => start + i);
      if (start <= low && high < start + size && !slots.some((slot) => taken.has(slot))) fits.push({ profile, start, size });
    }
  }
  fits.sort((a, b) => a.size - b.size || b.profile.localeCompare(a.profile, 'en', { numeric: true }));
  const best = fits[0] || { profile: '1g.10gb', start: low, size: 1 };
  const row = rows.find((each) => Number(each.dataset.slot) === best.start) || first;
  const place = new Place(keyOf(first), first.dataset.class, 1, best.profile, keyOf(row), best.size * 20 - 4);
  place.isLegal = fits.length > 0;
  return place;
}

const keyOf = (row) => row.querySelector('.lane').dataset.key;

export class Draft {
  constructor() { this.clear(); }

  get isOn() { return this.place !== null; }

  set(view, place, from, to) {
    Object.assign(this, { place, from, to });
    this.draw(view);
  }

  clear() {
    this.place = null;
    this.element?.remove();
    this.element = null;
  }

  draw(view) {
    this.element?.remove();
    if (!this.isOn || !view) return;
    const lane = view.grid.querySelector(`.lane[data-key="${CSS.escape(this.place.lane)}"]`);
    if (!lane || lane.closest('.tl-row').hidden) return;
    const bar = document.createElement('div');
    bar.className = `bar draft${this.place.height < 40 ? '' : ' tall'}`;
    const left = Math.max(0, view.percent(this.from));
    bar.style.left = `${left}%`;
    bar.style.width = `${Math.min(100, view.percent(this.to)) - left}%`;
    bar.style.top = `${this.place.top}px`;
    bar.style.height = `${this.place.height}px`;
    const text = document.createElement('span');
    text.textContent = `${clock(view, this.from)} – ${clock(view, this.to)}`;
    const by = document.createElement('span');
    by.className = 'by';
    by.textContent = ` ${this.shape()}`;
    text.append(by);
    bar.append(text);
    lane.append(bar);
    this.element = bar;
  }

  shape() {
    const { count, gpuClass, profile } = this.place;
    return profile || `${count} × ${gpuClass}`;
  }

  wanted() {
    const { count, gpuClass, profile } = this.place;
    return profile ? `${profile} ${gpuClass}` : `${count} ${gpuClass}`;
  }

  words(view) {
    return `New booking, ${this.shape()}, ${clock(view, this.from)} to ${clock(view, this.to)}`;
  }

  // The draft as request text in the reader's zone.
  text(view) {
    // A draft at the current time is requested as soon as possible.
    if (this.from <= view.soonest()) return `${this.wanted()} ${minutes(this.to - view.now())} now`;
    const [fromDay, fromClock] = stamp(view, this.from);
    const [toDay, toClock] = stamp(view, this.to);
    const end = fromDay === toDay ? toClock : `${toDay} ${toClock}`;
    return `${this.wanted()} from ${fromDay} ${fromClock} to ${end}`;
  }
}

const minutes = (length) => `${Math.max(15, Math.round(length / 60_000))}m`;

function stamp(view, time) {
  const format = new Intl.DateTimeFormat('sv-SE', {
    timeZone: view.zone, dateStyle: 'short', timeStyle: 'short',
  });
  return format.format(new Date(time)).split(' ');
}

const clock = (view, time) => stamp(view, time)[1];

// The accessible name of a cell: its booking, or how long it is free.
export function describe(view, row, time) {
  const bars = view.barsOver(row);
  const hit = bars.find((each) => each.from <= time && time < each.to);
  if (hit) return hit.bar.getAttribute('aria-label');
  const { node, gpu, slot } = row.dataset;
  const where = [slot && `memory slot ${slot}`, gpu && `GPU ${gpu}`, node].filter(Boolean).join(', ');
  if (row.classList.contains('node')) {
    const cells = row.querySelectorAll('.dens span');
    const cell = cells[Math.floor(((time - view.from) / view.span) * cells.length)];
    return `${where}, ${clock(view, time)}, ${cell?.textContent || 'no'} whole GPUs free`;
  }
  const next = Math.min(view.from + view.span, ...bars.map((each) => each.from).filter((at) => at > time));
  const hours = Math.round(((next - time) / HOUR) * 10) / 10;
  return `free, ${where}, ${clock(view, time)}, for ${hours} h`;
}
