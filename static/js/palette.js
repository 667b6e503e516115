// Ctrl-K and "/" open the search as a dialog, "?" the list of keys.
import { attachFind } from './find.js';

let palette = null;

function dialogOf(label, className) {
  const dialog = document.createElement('dialog');
  dialog.className = className;
  dialog.setAttribute('aria-label', label);
  // A press outside of what it shows closes it.
  dialog.addEventListener('click', (event) => { if (event.target === dialog) dialog.close(); });
  document.body.append(dialog);
  return dialog;
}

/** The form of the top bar once more, with ids of its own. */
function paletteMake(source) {
  const dialog = dialogOf('Find pages, bookings, projects, people and nodes, or book', 'palette');
  const form = source.cloneNode(true);
  form.removeAttribute('data-find-form');
  const field = form.querySelector('[data-find]');
  const list = form.querySelector('[role="listbox"]');
  list.id = 'palette-list';
  field.setAttribute('aria-controls', list.id);
  field.value = '';
  list.replaceChildren();
  // Escape would first only empty the field.
  field.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape') return;
    event.preventDefault();
    // Until the next frame the hidden field would take the next key.
    field.blur();
    dialog.close();
  });
  dialog.append(form);
  return { dialog, ...attachFind(form, { alwaysOpen: true }) };
}

function openPalette() {
  const source = document.querySelector('[data-find-form]');
  if (!source) return false;
  palette ??= paletteMake(source);
  if (!palette.dialog.open) palette.dialog.showModal();
  palette.field.focus();
  palette.field.select();
  palette.look();
  return true;
}

async function openKeys() {
  if (document.querySelector('dialog[open]')) return;
  const response = await fetch('/keys?part=1', { redirect: 'error' });
  if (!response.ok) return;
  const found = new DOMParser().parseFromString(await response.text(), 'text/html');
  const dialog = dialogOf('Keys', 'palette keys');
  const close = document.createElement('button');
  close.type = 'button';
  close.className = 'btn';
  close.textContent = 'Close';
  close.addEventListener('click', () => dialog.close());
  dialog.append(...found.body.childNodes, close);
  dialog.addEventListener('close', () => dialog.remove());
  dialog.showModal();
}

export function startPalette() {
  document.addEventListener('keydown', (event) => {
    const isCommand = (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey;
    if (isCommand && event.key.toLowerCase() === 'k') {
      if (openPalette()) event.preventDefault();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest('input, textarea, select, [contenteditable], dialog')) return;
    if (event.key === '?') {
      event.preventDefault();
      openKeys();
    } else if (event.key === '/') {
      // On pages with a request line the key leads to it: to book takes two keys and a text.
      const ask = document.querySelector('[data-ask]');
      if (!ask && !openPalette()) return;
      event.preventDefault();
      ask?.focus();
      ask?.select();
    }
  });
}
