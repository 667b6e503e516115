// Runs on every page: theme, search and keys, menus, live parts.
import { startConfirm } from './confirm.js';
import { startFind } from './find.js';
import { startLive } from './live.js';
import { startPalette } from './palette.js';
import { startTheme } from './theme.js';

// A strip that is wider than a phone begins at the page that is open.
const current = document.querySelector('.area [aria-current]');
if (current) current.parentElement.scrollLeft = current.offsetLeft - current.parentElement.offsetLeft - 40;

startTheme();
startFind();
startPalette();
startConfirm();
startLive(document.body.dataset.liveSocket);

document.addEventListener('click', (event) => {
  for (const menu of document.querySelectorAll('details.menu[open], details.more[open]')) {
    if (!menu.contains(event.target)) menu.open = false;
  }
});

document.addEventListener('keydown', (event) => {
  if (event.key !== 'Escape') return;
  for (const menu of document.querySelectorAll('details.menu[open], details.more[open]')) {
    menu.open = false;
    menu.querySelector('summary').focus();
  }
});

document.addEventListener('click', async (event) => {
  const button = event.target.closest('[data-copy]');
  if (!button) return;
  await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent.trim());
  document.querySelector('[data-say]').textContent = 'Copied';
  button.classList.add('done');
});
