"use strict";
// The story of the demo, as a view of the live page. The models run in the page, as in the file of `export --page`.
recombine.story = (() => {
  const { byId, ask, writeAddress } = recombine;
  let parameters = new URLSearchParams();
  let story = null;
  document.documentElement.classList.toggle("present", new URLSearchParams(location.search).has("present"));

  return {
    restore(given) {
      parameters = given;
      story?.restore(parameters);
    },
    save: () => story?.keep(),
    async show() {
      if (story) return;
      const packed = await ask("/api/story");
      story = explorable.story(byId("story"), packed, { save: (state) => writeAddress("story", state) });
      story.restore(parameters);
    },
    news() {},
  };
})();
