// Counts down the lifetime of an enrolment token and polls for its agent.
import { refreshAll } from './live.js';

const LOOK_MS = 3000;
const left = document.querySelector('[data-seconds-left]');

if (left) {
  // Uses the page's age, which does not depend on the computer's clock.
  const ends = performance.now() + Number(left.dataset.secondsLeft) * 1000;
  const show = () => {
    const seconds = Math.max(0, Math.ceil((ends - performance.now()) / 1000));
    left.textContent = ` (${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, '0')} left)`;
  };
  show();
  setInterval(show, 1000);
  setInterval(() => { if (!document.hidden) refreshAll(); }, LOOK_MS);
}
