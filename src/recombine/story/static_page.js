"use strict";
// The story as a file of its own: the data are in the page, the state is in the address after the #.
(() => {
  const root = document.documentElement;
  root.classList.toggle("present", new URLSearchParams(location.search).has("present"));
  followTone(() => {});
  const read = () => new URLSearchParams(location.hash.slice(1));
  const save = (parameters) => {
    const hash = `#${new URLSearchParams(parameters.filter(([, value]) => value !== null))}`;
    if (hash !== location.hash) history.replaceState(null, "", hash);
  };
  const packed = JSON.parse(document.getElementById("story-data").textContent);
  const story = explorable.story(document.getElementById("story"), packed, { save });
  explorable.shown = story;
  story.restore(read());
  addEventListener("hashchange", () => story.restore(read()));
  root.dataset.ready = "yes";
})();
