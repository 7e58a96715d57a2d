"use strict";
// The button that turns the page dark or light (without it, the page follows the system), and marks in view.
(() => {
  const root = document.documentElement, button = document.getElementById("theme");
  const isDark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const name = () => { button.textContent = isDark() ? "Light" : "Dark"; };
  button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; name(); });
  button.hidden = false;
  name();
  for (const mark of document.querySelectorAll("pre mark")) {
    const pre = mark.parentElement;
    pre.scrollTop = mark.offsetTop - pre.offsetTop - pre.clientHeight / 2;
  }
})();
