"use strict";
// The plots of a sweep, in light or dark like the page.
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);

  followTone(async (tone) => {
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
  });
})();
