// The search of the top bar: results while typing, by keyboard or mouse.
const REST_MS = 120;

const form = document.querySelector('[data-find-form]');
const field = form?.querySelector('[data-find]');
const list = form?.querySelector('[role="listbox"]');
let resting = 0;
let asked = null;

const options = () => [...list.querySelectorAll('[role="option"]')];
const chosen = () => list.querySelector('[aria-selected="true"]');

function show(isOn) {
  list.hidden = !isOn;
  field.setAttribute('aria-expanded', String(isOn));
  if (!isOn) choose(null);
}

function choose(option) {
  chosen()?.removeAttribute('aria-selected');
  if (option) {
    option.setAttribute('aria-selected', 'true');
    field.setAttribute('aria-activedescendant', option.id);
    option.scrollIntoView({ block: 'nearest' });
  } else field.removeAttribute('aria-activedescendant');
}

async function look() {
  const text = field.value.trim();
  asked?.abort();
  if (!text) { show(false); return; }
  asked = new AbortController();
  try {
    const url = `${form.getAttribute('action')}?part=list&q=${encodeURIComponent(text)}`;
    const response = await fetch(url, { signal: asked.signal, redirect: 'error' });
    if (!response.ok || field.value.trim() !== text) return;
    const found = new DOMParser().parseFromString(await response.text(), 'text/html');
    list.replaceChildren(...found.body.childNodes);
    show(document.activeElement === field && options().length > 0);
  } catch {
    // A newer request is running; Enter opens the full page.
  }
}

function step(by) {
  const all = options();
  const at = all.indexOf(chosen());
  // Before the first and after the last option is the field itself: Enter then submits its text.
  choose(all[at < 0 ? (by > 0 ? 0 : all.length - 1) : at + by] ?? null);
}

function onKey(event) {
  if (event.key === 'Escape' && !list.hidden) { show(false); event.stopPropagation(); }
  else if (list.hidden) return;
  else if (event.key === 'ArrowDown') step(1);
  else if (event.key === 'ArrowUp') step(-1);
  else if (event.key === 'Enter' && chosen()) location.assign(chosen().href);
  else return;
  event.preventDefault();
}

export function startFind() {
  if (!field) return;
  field.addEventListener('input', () => {
    clearTimeout(resting);
    resting = setTimeout(look, REST_MS);
  });
  field.addEventListener('keydown', onKey);
  form.addEventListener('submit', (event) => { if (!field.value.trim()) event.preventDefault(); });
  form.addEventListener('focusout', (event) => { if (!form.contains(event.relatedTarget)) show(false); });
  // The field keeps the focus while an option is pressed, or the list would close first.
  list.addEventListener('mousedown', (event) => event.preventDefault());
}
