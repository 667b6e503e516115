// Countdowns of pauses: the server sends the remaining seconds, a monotonic clock counts them down.
//   <div data-countdown="462" data-whole="600" data-name="ablation-7">… <span data-countdown-text>
import { refreshAll } from './live.js';

const SLEPT_MS = 2000;
const begun = new WeakMap();
const title = document.title.replace(/^\(\d+:\d\d\) /, '');
let drift = Date.now() - performance.now();
let said = null;

function left(element) {
  if (!begun.has(element)) begun.set(element, performance.now());
  const gone = (performance.now() - begun.get(element)) / 1000;
  return Math.max(0, Math.ceil(Number(element.dataset.countdown) - gone));
}

const words = (seconds) => `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, '0')}`;

function draw(element) {
  const seconds = left(element);
  const text = element.querySelector('[data-countdown-text]');
  if (text.textContent !== words(seconds)) text.textContent = words(seconds);
  const rest = element.querySelector('.rest');
  rest?.setAttribute('stroke-dasharray', `${Math.round((seconds * 100) / Number(element.dataset.whole))} 100`);
  return seconds;
}

// Announced at whole minutes and once at the end.
function speak(name, seconds) {
  if (seconds % 60 || said === seconds) return;
  said = seconds;
  const minutes = seconds / 60;
  document.querySelector('[data-say]').textContent = seconds
    ? `${name} pauses in ${minutes} minute${minutes === 1 ? '' : 's'}.` : `${name} is being paused.`;
}

function tick() {
  const now = Date.now() - performance.now();
  if (Math.abs(now - drift) > SLEPT_MS) refreshAll();
  drift = now;
  const all = [...document.querySelectorAll('[data-countdown]')];
  const times = all.map((element) => [draw(element), element.dataset.name]).sort((a, b) => a[0] - b[0]);
  const [seconds, name] = times[0] || [0, ''];
  document.title = seconds ? `(${words(seconds)}) ${title}` : title;
  if (name) speak(name, seconds);
}

tick();
setInterval(tick, 1000);
document.addEventListener('live:replaced', tick);
