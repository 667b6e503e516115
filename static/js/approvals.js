// Keys of the approvals page: J and K go through the requests, A approves, R declines.
const cards = () => [...document.querySelectorAll('[data-approval]')].filter((card) => card.querySelector('[data-approval-form]'));

function current(all) {
  return all.find((card) => card.contains(document.activeElement)) || null;
}

function step(by) {
  const all = cards();
  if (!all.length) return;
  const at = all.indexOf(current(all));
  const next = at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + by));
  all[next].focus();
  all[next].scrollIntoView({ block: 'nearest' });
}

function decide(act) {
  const all = cards();
  const card = current(all) || (all.length === 1 ? all[0] : null);
  if (!card) {
    step(1);
    return;
  }
  const form = card.querySelector('[data-approval-form]');
  const reason = form.elements.reason;
  if (act === 'decline' && !reason.value.trim()) {
    form.dataset.declining = '1';
    reason.focus();
    document.querySelector('[data-say]').textContent = 'Say why, then press Enter.';
    return;
  }
  form.requestSubmit(form.querySelector(`button[value="${act}"]`));
}

const KEYS = { j: () => step(1), k: () => step(-1), a: () => decide('approve'), r: () => decide('decline') };

document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const field = event.target.closest('input, textarea, select, [contenteditable]');
  if (field) {
    // Enter in a reason declines after R, and decides nothing otherwise.
    const form = field.closest('[data-approval-form]');
    if (form && event.key === 'Enter') {
      event.preventDefault();
      if (form.dataset.declining && field.value.trim()) form.requestSubmit(form.querySelector('button[value="decline"]'));
    }
    return;
  }
  const act = KEYS[event.key.toLowerCase()];
  if (!act) return;
  event.preventDefault();
  act();
});
