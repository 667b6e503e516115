// The booking panel: asks the server while one types, shows its options, books without leaving.
const REST_MS = 350;
// A panel, or a panel with a refusal. Anything else is a page that does not belong in here.
const ANSWERS = [200, 403, 409, 422];

const panel = document.querySelector('[data-panel]');
let timer = 0;
let asked = null;

const field = () => panel.querySelector('[data-ask]');
const part = () => panel.querySelector('[data-panel-part]');

function values(byFields) {
  const found = new URLSearchParams({ q: field().value });
  for (const each of panel.querySelectorAll('[data-choice]')) found.set(each.name, each.value);
  if (byFields) {
    found.set('by', 'fields');
    for (const each of panel.querySelectorAll('[data-field]')) found.set(each.name, each.value);
  }
  return found;
}

async function ask(byFields = false) {
  asked?.abort();
  asked = new AbortController();
  const { signal } = asked;
  panel.setAttribute('aria-busy', 'true');
  try {
    const response = await fetch(`${panel.dataset.url}?${values(byFields)}`, {
      headers: { 'X-Fragment': '1' }, signal, redirect: 'error',
    });
    if (signal.aborted) return;
    if (!ANSWERS.includes(response.status)) { trouble(); return; }
    show(await response.text(), byFields);
    tellOptions();
  } catch (error) {
    if (error.name !== 'AbortError') trouble();
  } finally {
    if (!signal.aborted) panel.removeAttribute('aria-busy');
  }
}

// What stands there stays; a line above it says that it could not be renewed.
function trouble() {
  if (part().querySelector('[data-trouble]')) return;
  const note = document.createElement('p');
  note.className = 'note risk';
  note.dataset.trouble = '';
  note.textContent = 'The portal did not answer. Your text is kept; change it to try again.';
  part().prepend(note);
}

function show(html, takesText) {
  const active = part().contains(document.activeElement) ? document.activeElement.id : '';
  const name = panel.querySelector('#f-name')?.value;
  part().innerHTML = html;
  const text = part().querySelector('[data-text]')?.dataset.text;
  if (takesText && text) field().value = text;
  if (name && panel.querySelector('#f-name')) panel.querySelector('#f-name').value = name;
  if (active) document.getElementById(active)?.focus();
  label();
}

// Spoken: how many ways there are and the best one; the rest is read where it stands.
function tellOptions() {
  const options = part().querySelectorAll('.opt');
  const words = options.length
    ? `${options.length} options. First: ${options[0].querySelector('b').textContent}, ${options[0].querySelector('.p').textContent}`
    : [...part().querySelectorAll('.err, .refusal b')].map((each) => each.textContent).join(' ');
  document.querySelector('[data-say]').textContent = words;
}

function label() {
  const button = panel.querySelector('[data-book]');
  const chosen = panel.querySelector('input[name="option"]:checked');
  if (button && chosen) button.textContent = chosen.dataset.button;
}

function soon(byFields) {
  clearTimeout(timer);
  timer = setTimeout(() => ask(byFields), REST_MS);
}

async function confirm(form) {
  const button = form.querySelector('[data-book]');
  button.disabled = true;
  try {
    const response = await fetch(form.action, {
      method: 'POST', headers: { 'X-Fragment': '1' }, body: new URLSearchParams(new FormData(form)), redirect: 'error',
    });
    if (!ANSWERS.includes(response.status)) throw new Error(String(response.status));
    show(await response.text(), false);
    if (response.ok) made();
  } catch {
    button.disabled = false;
    trouble();
  }
}

function made() {
  field().value = '';
  const label = part().querySelector('[data-made]')?.dataset.made;
  document.querySelector('[data-say]').textContent = `Booked as ${label}`;
  document.dispatchEvent(new CustomEvent('booking:made', { detail: label }));
  const undo = part().querySelector('[data-undo]');
  setTimeout(() => undo?.remove(), Number(undo?.dataset.undo || 0) * 1000);
}

function start() {
  panel.classList.add('js');
  label();
  field().addEventListener('input', () => soon(false));
  document.getElementById('ask-form').addEventListener('submit', (event) => {
    event.preventDefault();
    clearTimeout(timer);
    const first = panel.querySelector('input[name="option"]:checked');
    // The second Enter goes to the options that the first one brought.
    ask(false).then(() => (panel.querySelector('input[name="option"]:checked') || first)?.focus());
  });
  panel.addEventListener('change', (event) => {
    if (event.target.matches('[data-field]')) soon(true);
    else if (event.target.matches('[data-choice]')) soon(false);
    else if (event.target.name === 'option') label();
  });
  panel.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && event.target.name === 'option') {
      event.preventDefault();
      event.target.form.requestSubmit();
    }
  });
  panel.addEventListener('click', (event) => {
    const example = event.target.closest('[data-example]');
    if (!example && !event.target.closest('[data-again]')) return;
    event.preventDefault();
    const wanted = example ? new URL(example.href).searchParams : new URLSearchParams();
    field().value = wanted.get('q') || '';
    const tier = panel.querySelector('[data-choice][name="tier"]');
    if (tier && wanted.get('tier')) tier.value = wanted.get('tier');
    field().focus();
    ask(false);
  });
  panel.addEventListener('submit', (event) => {
    if (!event.target.matches('[data-confirm]') || !document.querySelector('[data-treegrid]')) return;
    event.preventDefault();
    confirm(event.target);
  });
  document.addEventListener('ask:text', (event) => {
    field().value = event.detail;
    ask(false);
  });
}

if (panel) start();
