"use strict";
// A sweep's plots, in the page's tone.
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const button = document.getElementById("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  // A page opened as a file, or in a strict browser, may not have a storage.
  const remember = { get: () => { try { return localStorage.getItem("recombine-theme"); } catch { return null; } },
    set: (tone) => { try { localStorage.setItem("recombine-theme", tone); } catch { /* the choice is for now only */ } } };

  async function paint(tone) {
    document.documentElement.dataset.theme = tone;
    button.textContent = tone === "dark" ? "Light" : "Dark";
    for (const place of document.querySelectorAll(".plot")) {
      await vegaEmbed(place, charts[tone][place.dataset.panel], {
        mode: "vega-lite",
        renderer: "svg",
        ast: true, // expressions are interpreted, so that the page's policy can forbid eval
        tooltip: { theme: tone },
        actions: { export: true, source: false, compiled: false, editor: false },
        downloadFileName: place.dataset.panel,
      });
    }
    document.documentElement.dataset.drawn = tone;
  }

  button.addEventListener("click", () => {
    const tone = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    remember.set(tone);
    paint(tone);
  });
  paint(remember.get() ?? (dark.matches ? "dark" : "light"));
})();
