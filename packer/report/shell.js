"use strict";
// The button that turns the page dark or light (without it, the page follows the system).
(() => {
  const root = document.documentElement, button = document.getElementById("theme");
  const isDark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const name = () => { button.textContent = isDark() ? "Light" : "Dark"; };
  button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; name(); });
  button.hidden = false;
  name();
})();
