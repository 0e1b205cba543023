"use strict";
// Dark or light: as the system says, or as the button was last left. `draw(tone)` is called now and at every change.
function followTone(draw) {
  const button = document.getElementById("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  // A page opened as a file, or in a strict browser, may not have a storage.
  const remember = { get: () => { try { return localStorage.getItem("recombine-theme"); } catch { return null; } },
    set: (tone) => { try { localStorage.setItem("recombine-theme", tone); } catch { /* the choice is for now only */ } } };

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
