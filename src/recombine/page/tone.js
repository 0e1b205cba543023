"use strict";
// Dark or light: the last choice made with the button, or the system's. Calls `draw(tone)` now and on every change.
function followTone(draw) {
  const button = document.getElementById("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  // A page opened as a file, or in a strict browser, may have no storage.
  const remember = { get: () => { try { return localStorage.getItem("recombine-theme"); } catch { return null; } },
    set: (tone) => { try { localStorage.setItem("recombine-theme", tone); } catch { /* not remembered */ } } };

  function paint(tone) {
    document.documentElement.dataset.theme = tone;
    button.textContent = tone === "dark" ? "Light" : "Dark";
    return draw(tone);
  }

  button.addEventListener("click", () => {
    const tone = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    remember.set(tone);
    paint(tone);
  });
  dark.addEventListener("change", () => {
    if (!remember.get()) paint(dark.matches ? "dark" : "light");
  });
  return paint(remember.get() ?? (dark.matches ? "dark" : "light"));
}
