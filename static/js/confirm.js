// A form with data-dialog opens its confirmation page in a dialog.
async function ask(form) {
  const response = await fetch(`${form.action}?part=1`, { headers: { 'X-Fragment': '1' }, redirect: 'error' });
  if (!response.ok) throw new Error(response.status);
  const dialog = document.createElement('dialog');
  dialog.className = 'ask-first';
  dialog.setAttribute('aria-labelledby', 'confirm-title');
  const found = new DOMParser().parseFromString(await response.text(), 'text/html');
  dialog.append(found.querySelector('#confirm'));
  dialog.addEventListener('close', () => dialog.remove());
  dialog.addEventListener('click', (event) => {
    if (event.target !== dialog && !event.target.closest('[data-keep]')) return;
    event.preventDefault();
    dialog.close();
  });
  document.body.append(dialog);
  dialog.showModal();
}

export function startConfirm() {
  document.addEventListener('submit', (event) => {
    const form = event.target.closest('form[data-dialog]');
    if (!form) return;
    event.preventDefault();
    // Without a response the browser opens the page itself.
    ask(form).catch(() => form.submit());
  });
}
