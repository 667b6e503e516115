// A booking's bar while it is dragged or moved by keys: the old bar stays, and an outline shows the
// new time. The page of the change, with price and start, opens at the end.
const EDGE = 8;
const LEAST = 15 * 60_000;

// What of a bar can be moved, `all` or `end`, and its times in milliseconds.
function movable(bar) {
  const [what, from, to] = bar.dataset.move.split(' ');
  return { what, from: from * 1000, to: to * 1000 };
}

// What of a bar is at x: its start, its end, or all of it; a running booking moves its end only.
export function gripAt(bar, x) {
  if (movable(bar).what === 'end') return 'end';
  const box = bar.getBoundingClientRect();
  const edge = Math.min(EDGE, box.width / 4);
  if (x > box.right - edge) return 'end';
  return x < box.left + edge ? 'start' : 'all';
}

export class Move {
  constructor(view, bar, grip) {
    Object.assign(this, { view, bar, grip, shift: 0, grow: 0 });
    Object.assign(this, movable(bar));
    this.element = document.createElement('div');
    this.element.className = 'bar draft moved';
    this.element.style.top = bar.style.top;
    this.element.style.height = bar.style.height;
    this.text = document.createElement('span');
    this.element.append(this.text);
    bar.parentElement.append(this.element);
    this.draw();
  }

  // Moves what is gripped by milliseconds.
  drag(by) {
    if (this.grip === 'all') this.set(by, 0);
    else if (this.grip === 'start') this.set(by, -by);
    else this.set(0, by);
  }

  // A later start by `shift` and a longer time by `grow`, as far as that is possible: nothing starts
  // in the past, ends before now, or is shorter than 15 minutes.
  set(shift, grow) {
    const earliest = this.view.soonest();
    const latest = this.grip === 'start' ? this.to - LEAST - this.from : Infinity;
    this.shift = this.what === 'end' ? 0
      : Math.min(latest, Math.max(shift, Math.min(0, earliest - this.from)));
    const least = Math.max(this.starts + LEAST, earliest) - this.to - this.shift;
    this.grow = Math.max(this.grip === 'start' ? -this.shift : grow, least);
    this.draw();
  }

  get starts() { return this.from + this.shift; }

  get ends() { return this.to + this.shift + this.grow; }

  get isChanged() { return this.shift !== 0 || this.grow !== 0; }

  words() {
    const clock = (time) => new Intl.DateTimeFormat('sv-SE', {
      timeZone: this.view.zone, weekday: 'short', hour: '2-digit', minute: '2-digit',
    }).format(new Date(time));
    return `${clock(this.starts)} – ${clock(this.ends)}`;
  }

  draw() {
    const left = Math.max(0, this.view.percent(this.starts));
    this.element.style.left = `${left}%`;
    this.element.style.width = `${Math.max(0.5, Math.min(100, this.view.percent(this.ends)) - left)}%`;
    this.text.textContent = this.words();
  }

  // The page that shows what the change costs, and makes it.
  address() {
    const page = new URL(`${this.bar.getAttribute('href')}/change`, location.href);
    page.searchParams.set('shift', String(Math.round(this.shift / 1000)));
    page.searchParams.set('grow', String(Math.round(this.grow / 1000)));
    return page.href;
  }

  remove() { this.element.remove(); }
}
