// The theme switch. The server renders the cookie's theme, so the page does not flash.
const YEAR = 365 * 24 * 3600;

export function startTheme() {
  const root = document.documentElement;
  for (const button of document.querySelectorAll('[data-theme-toggle]')) {
    button.hidden = false;
    button.addEventListener('click', () => {
      const dark = root.dataset.theme
        ? root.dataset.theme === 'dark'
        : matchMedia('(prefers-color-scheme: dark)').matches;
      root.dataset.theme = dark ? 'light' : 'dark';
      document.cookie = `theme=${root.dataset.theme};path=/;max-age=${YEAR};samesite=lax`;
    });
  }
}
