// A form with data-dialog leads by GET to the page that asks first; here it asks over the page.
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
    // Without an answer the browser goes to the page itself.
    ask(form).catch(() => form.submit());
  });
}
