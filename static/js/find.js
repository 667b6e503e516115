// Search while typing, by keyboard or mouse: in the field of the top bar, and in the palette (Ctrl-K).
const REST_MS = 120;

/** Makes a form with a combobox and a listbox search; returns what the palette needs of it. */
export function attachFind(form, { alwaysOpen = false } = {}) {
  const field = form.querySelector('[data-find]');
  const list = form.querySelector('[role="listbox"]');
  let resting = 0;
  let asked = null;

  const options = () => [...list.querySelectorAll('[role="option"]')];
  const chosen = () => list.querySelector('[aria-selected="true"]');

  function choose(option) {
    chosen()?.removeAttribute('aria-selected');
    if (option) {
      option.setAttribute('aria-selected', 'true');
      field.setAttribute('aria-activedescendant', option.id);
      option.scrollIntoView({ block: 'nearest' });
    } else field.removeAttribute('aria-activedescendant');
  }

  function show(isOn) {
    list.hidden = !isOn;
    field.setAttribute('aria-expanded', String(isOn));
    if (!isOn) choose(null);
  }

  async function look() {
    const text = field.value.trim();
    asked?.abort();
    if (!text && !alwaysOpen) { show(false); return; }
    asked = new AbortController();
    try {
      const url = `${form.getAttribute('action')}?part=list&q=${encodeURIComponent(text)}`;
      const response = await fetch(url, { signal: asked.signal, redirect: 'error' });
      if (!response.ok || field.value.trim() !== text) return;
      const found = new DOMParser().parseFromString(await response.text(), 'text/html');
      // Two lists on one page may not have the same ids.
      for (const option of found.querySelectorAll('[role="option"]')) option.id = `${list.id}-${option.id}`;
      list.replaceChildren(...found.body.childNodes);
      show((alwaysOpen || document.activeElement === field) && options().length > 0);
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

  field.addEventListener('input', () => {
    clearTimeout(resting);
    resting = setTimeout(look, REST_MS);
  });
  field.addEventListener('keydown', (event) => {
    if (event.key === 'Escape' && !list.hidden && !alwaysOpen) { show(false); event.stopPropagation(); }
    else if (list.hidden) return;
    else if (event.key === 'ArrowDown') step(1);
    else if (event.key === 'ArrowUp') step(-1);
    else if (event.key === 'Enter' && chosen()) location.assign(chosen().href);
    else return;
    event.preventDefault();
  });
  form.addEventListener('submit', (event) => { if (!field.value.trim()) event.preventDefault(); });
  // The field keeps the focus while an option is pressed, or the list would close first.
  list.addEventListener('mousedown', (event) => event.preventDefault());
  if (!alwaysOpen) {
    form.addEventListener('focusout', (event) => { if (!form.contains(event.relatedTarget)) show(false); });
  }
  return { field, look };
}

export function startFind() {
  const form = document.querySelector('[data-find-form]');
  if (form) attachFind(form);
}
