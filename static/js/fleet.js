// Telemetry comes every ten seconds and is not announced: the page looks again as often.
import { refreshAll } from './live.js';

const EVERY_MS = 10000;

setInterval(() => {
  // A form that is open keeps what was typed into it.
  const isOpen = document.querySelector('[data-live] details[open]');
  if (!document.hidden && !isOpen) refreshAll();
}, EVERY_MS);
