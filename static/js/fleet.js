// Telemetry arrives every ten seconds without a live message, so the page polls.
import { refreshAll } from './live.js';

const EVERY_MS = 10000;

setInterval(() => {
  // Open forms keep their input.
  const isOpen = document.querySelector('[data-live] details[open]');
  if (!document.hidden && !isOpen) refreshAll();
}, EVERY_MS);
