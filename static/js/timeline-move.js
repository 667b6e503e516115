// A booking's bar while it is dragged or moved by keys: the old bar stays, an outline shows the new
// time, and what is added is hatched. A card next to it says what that costs and asks for it.
const EDGE = 8;
const FINGER = 18;
const REST = 250;
const LEAST = 15 * 60_000;

// What of a bar can be moved, `all` or `end`, and its times in milliseconds.
function movable(bar) {
  const [what, from, to] = bar.dataset.move.split(' ');
  return { what, from: from * 1000, to: to * 1000 };
}

// What of a bar is at x: its start, its end, or all of it; a running booking moves its end only.
export function gripAt(bar, x, isTouch = false) {
  if (movable(bar).what === 'end') return 'end';
  const box = bar.getBoundingClientRect();
  const edge = Math.min(isTouch ? FINGER : EDGE, box.width / 4);
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
    this.added = [0, 1].map(() => {
      const part = document.createElement('div');
      part.className = 'bar added';
      part.style.top = bar.style.top;
      part.style.height = bar.style.height;
      return part;
    });
    bar.parentElement.append(...this.added, this.element);
    this.card = new Card(this);
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
    const clock = (time) => new Intl.DateTimeFormat('en-GB', {
      timeZone: this.view.zone, weekday: 'short', hour: '2-digit', minute: '2-digit',
    }).format(new Date(time));
    return `${clock(this.starts)} – ${clock(this.ends)}`;
  }

  draw() {
    const left = Math.max(0, this.view.percent(this.starts));
    this.element.style.left = `${left}%`;
    this.element.style.width = `${Math.max(0.5, Math.min(100, this.view.percent(this.ends)) - left)}%`;
    this.text.textContent = this.words();
    this.hatch(this.added[0], this.starts, Math.min(this.ends, this.from));
    this.hatch(this.added[1], Math.max(this.starts, this.to), this.ends);
    this.card.ask();
  }

  hatch(part, from, to) {
    part.hidden = to <= from;
    const left = Math.max(0, this.view.percent(from));
    part.style.left = `${left}%`;
    part.style.width = `${Math.max(0, Math.min(100, this.view.percent(to)) - left)}%`;
  }

  // The page that shows what the change costs, and makes it.
  address() {
    const page = new URL(`${this.bar.getAttribute('href')}/change`, location.href);
    page.searchParams.set('shift', String(Math.round(this.shift / 1000)));
    page.searchParams.set('grow', String(Math.round(this.grow / 1000)));
    return page.href;
  }

  remove() {
    this.element.remove();
    for (const part of this.added) part.remove();
    this.card.remove();
  }
}

// The card with price, start and strength of a moved bar, asked for when the bar rests.
class Card {
  constructor(move) {
    Object.assign(this, { move, timer: 0, asked: '', scope: '', wantsFocus: false, element: null });
  }

  ask() {
    clearTimeout(this.timer);
    if (this.move.isChanged) this.timer = setTimeout(() => this.load(), REST);
  }

  async load() {
    const page = new URL(this.move.address());
    page.searchParams.set('part', 'drag');
    if (this.scope) page.searchParams.set('scope', this.scope);
    if (page.href === this.asked) { this.settle(); return; }
    this.asked = page.href;
    const answer = await fetch(page, { headers: { Accept: 'text/html' } }).catch(() => null);
    if (this.asked !== page.href) return;
    if (!answer?.ok) { if (this.wantsFocus) location.assign(this.move.address()); return; }
    const found = new DOMParser().parseFromString(await answer.text(), 'text/html').querySelector('.drag-card');
    if (!found || this.asked !== page.href) return;
    this.element?.remove();
    this.element = document.adoptNode(found);
    document.body.append(this.element);
    this.place();
    this.element.querySelector('[name="scope"]')?.addEventListener('change', (event) => {
      this.scope = event.target.value;
      this.load();
    });
    this.settle();
  }

  // Next to the outline, inside the window.
  place() {
    const [bar, card] = [this.move.element.getBoundingClientRect(), this.element.getBoundingClientRect()];
    const left = Math.max(8, Math.min(bar.left, innerWidth - card.width - 8));
    const below = bar.bottom + 8;
    const top = below + card.height < innerHeight ? below : Math.max(8, bar.top - card.height - 8);
    this.element.style.left = `${left}px`;
    this.element.style.top = `${top}px`;
  }

  // Takes the focus once the bar was let go, so that the next Enter asks for the change.
  settle() {
    if (this.wantsFocus) (this.element?.querySelector('.pri') ?? this.element?.querySelector('button'))?.focus();
  }

  open() {
    this.wantsFocus = true;
    clearTimeout(this.timer);
    this.load();
  }

  remove() {
    clearTimeout(this.timer);
    this.asked = '';
    this.element?.remove();
  }
}
