// The booking panel: requests options while typing, shows them, and books in place.
const REST_MS = 350;
// Status codes of a panel. Any other response is a different page.
const ANSWERS = [200, 403, 409, 422, 429];

// Fields that are no part of the request keep their text when the options change.
const KEPT = ['f-name', 'f-labels', 'f-ref'];

const panel = document.querySelector('[data-panel]');
// Ignores Enter for this long after an option appeared.
const UNSEEN_MS = 250;
let timer = 0;
let asked = null;
let unseen = 0;
let work = '';

const field = () => panel.querySelector('[data-ask]');
const part = () => panel.querySelector('[data-panel-part]');

const nameField = () => document.getElementById('f-name');
const bookButton = () => panel.querySelector('[data-book]');

// The workload that a name says, as the server reads it: `Protein fold 12` is `protein-fold`.
function workOfName() {
  const slug = (nameField()?.value ?? '').toLowerCase().replace(/[^a-z0-9_]+/g, '-').replace(/^-+|-+$/g, '');
  const found = slug.replace(/(-v?[0-9]+)+$/, '');
  const known = [...panel.querySelectorAll('#f-work option')].map((each) => each.value);
  return known.includes(found) ? found : '';
}

// The options stay and can be booked while those of a workload that a name says are on their way.
function named() {
  if (panel.querySelector('#f-work')?.value || workOfName() === work) return;
  clearTimeout(timer);
  timer = setTimeout(() => ask('choice'), REST_MS);
}

// `by` names what was edited, `fields` or `choice`; without it only the text counts.
function values(by) {
  const found = new URLSearchParams({ q: field().value, name: nameField()?.value ?? '' });
  for (const each of panel.querySelectorAll('[data-choice]')) found.set(each.name, each.value);
  if (by) found.set('by', by);
  if (by === 'fields') {
    for (const each of panel.querySelectorAll('[data-field]')) found.set(each.name, each.value);
  }
  return found;
}

async function ask(by = '') {
  clearTimeout(timer);
  asked?.abort();
  asked = new AbortController();
  const { signal } = asked;
  work = workOfName();
  panel.setAttribute('aria-busy', 'true');
  try {
    const response = await fetch(`${panel.dataset.url}?${values(by)}`, {
      headers: { 'X-Fragment': '1' }, signal, redirect: 'error',
    });
    if (signal.aborted) return;
    if (isBusy(response)) {
      showError(await response.text());
      timer = setTimeout(() => ask(by), 1000 * Number(response.headers.get('Retry-After')));
      return;
    }
    if (!ANSWERS.includes(response.status)) { showError(); return; }
    show(await response.text(), by !== '');
    announceOptions();
  } catch (error) {
    if (error.name !== 'AbortError') showError();
  } finally {
    if (!signal.aborted) panel.removeAttribute('aria-busy');
  }
}

// The cookie lets the server draw the page as it was left.
function fold(isFolded) {
  const button = panel.querySelector('[data-panel-fold]');
  if (!button) return;
  panel.closest('.work').classList.toggle('folded', isFolded);
  button.setAttribute('aria-expanded', String(!isFolded));
  document.cookie = `panel=${isFolded ? 'folded' : 'open'};path=/;max-age=${365 * 24 * 3600};samesite=lax`;
}

// A refusal of the server itself, which is no panel: too much is asked at once, or changes wait.
function isBusy(response) {
  return [429, 503].includes(response.status)
    && response.headers.get('Content-Type').startsWith('text/plain');
}

// Keeps the current options and shows a note that they could not be refreshed.
function showError(text = 'The portal did not respond. Your text is kept; edit it to try again.') {
  if (part().querySelector('[data-trouble]')) return;
  const note = document.createElement('p');
  note.className = 'note risk';
  note.dataset.trouble = '';
  note.textContent = text;
  part().prepend(note);
}

function show(html, takesText) {
  const active = part().contains(document.activeElement) ? document.activeElement.id : '';
  const kept = KEPT.map((id) => [id, document.getElementById(id)?.value]);
  part().innerHTML = html;
  const text = part().querySelector('[data-text]')?.dataset.text;
  if (takesText && text) field().value = text;
  for (const [id, value] of kept) restore(document.getElementById(id), value);
  if (active) document.getElementById(active)?.focus();
  label();
  seen();
}

function restore(input, value) {
  if (!input || !value) return;
  input.value = value;
  const details = input.closest('details');
  if (details) details.open = true;
}

// `data-seen` marks options that have been visible for a moment.
function seen() {
  clearTimeout(unseen);
  delete panel.dataset.seen;
  requestAnimationFrame(() => {
    clearTimeout(unseen);
    unseen = setTimeout(() => { panel.dataset.seen = ''; }, UNSEEN_MS);
  });
}

// The options belong to the old text; they can't be booked until refreshed.
function stale() {
  delete panel.dataset.seen;
  const button = bookButton();
  if (button) button.disabled = true;
}

// Requests options for the text, then focuses the button so that the next Enter books.
async function askAndOffer() {
  await ask();
  if (bookButton() && !bookButton().disabled) bookButton().focus();
}

// Announces the number of options and the best one.
function announceOptions() {
  const options = part().querySelectorAll('.opt');
  const words = options.length
    ? `${options.length} options. First: ${options[0].querySelector('b').textContent}, ${options[0].querySelector('.p').textContent}`
    : [...part().querySelectorAll('.err, .refusal b')].map((each) => each.textContent.trim()).join(' ');
  document.querySelector('[data-say]').textContent = words;
}

function label() {
  const button = bookButton();
  const chosen = panel.querySelector('input[name="option"]:checked');
  if (button && chosen) button.textContent = chosen.dataset.button;
}

function soon(by) {
  clearTimeout(timer);
  stale();
  timer = setTimeout(() => ask(by), REST_MS);
}

async function confirm(form) {
  const button = form.querySelector('[data-book]');
  button.disabled = true;
  try {
    const response = await fetch(form.action, {
      method: 'POST', headers: { 'X-Fragment': '1' }, body: new URLSearchParams(new FormData(form)), redirect: 'error',
    });
    if (isBusy(response)) {
      button.disabled = false;
      showError(await response.text());
      return;
    }
    if (!ANSWERS.includes(response.status)) throw new Error(String(response.status));
    show(await response.text(), false);
    if (response.ok) made();
  } catch {
    button.disabled = false;
    showError();
  }
}

function made() {
  field().value = '';
  const box = part().querySelector('[data-made]');
  box.tabIndex = -1;
  box.focus();
  const label = part().querySelector('[data-made]')?.dataset.made;
  document.querySelector('[data-say]').textContent = `Booked as ${label}`;
  document.dispatchEvent(new CustomEvent('booking:made', { detail: label }));
  const undo = part().querySelector('[data-undo]');
  setTimeout(() => undo?.remove(), Number(undo?.dataset.undo || 0) * 1000);
}

function start() {
  panel.classList.add('js');
  label();
  seen();
  // On the booking page the next Enter books.
  if (!document.querySelector('[data-treegrid]') && document.activeElement === document.body) bookButton()?.focus();
  field().addEventListener('input', () => soon(''));
  document.getElementById('ask-form').addEventListener('submit', (event) => {
    event.preventDefault();
    askAndOffer();
  });
  panel.addEventListener('change', (event) => {
    if (event.target.matches('[data-field]')) soon('fields');
    else if (event.target.matches('[data-choice]')) soon('choice');
    else if (event.target.name === 'option') label();
  });
  panel.addEventListener('input', (event) => {
    if (event.target === nameField()) named();
  });
  panel.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || !event.target.matches('[data-book], input[name="option"]')) return;
    event.preventDefault();
    // A held key, or one pressed before the option was visible, does not book.
    if (event.repeat || !('seen' in panel.dataset) || bookButton().disabled) return;
    event.target.form.requestSubmit(bookButton());
  });
  const folding = panel.querySelector('[data-panel-fold]');
  if (folding) {
    folding.hidden = false;
    folding.addEventListener('click', () => fold(!panel.closest('.work').classList.contains('folded')));
  }
  panel.addEventListener('click', (event) => {
    const example = event.target.closest('[data-example]');
    if (!example && !event.target.closest('[data-again]')) return;
    event.preventDefault();
    const wanted = example ? new URL(example.href).searchParams : new URLSearchParams();
    field().value = wanted.get('q') || '';
    const tier = panel.querySelector('[data-choice][name="tier"]');
    if (tier && wanted.get('tier')) tier.value = wanted.get('tier');
    field().focus();
    ask();
  });
  panel.addEventListener('submit', (event) => {
    if (!event.target.matches('[data-confirm]') || !document.querySelector('[data-treegrid]')) return;
    event.preventDefault();
    confirm(event.target);
  });
  document.addEventListener('ask:text', (event) => {
    fold(false);
    field().value = event.detail.text;
    stale();
    if (event.detail.isDone) askAndOffer();
    else ask();
  });
}

if (panel) start();
