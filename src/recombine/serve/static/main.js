"use strict";
// Which view is shown, dark or light, and the line to the server.
(() => {
  const { byId, ask, readAddress, say, shared, trouble } = recombine;
  const views = { runs: recombine.runs, explore: recombine.explore };

  // `anew`: somebody has followed a link; what it says goes before what was there. The views' own links say nothing.
  async function show(anew = false) {
    const [view, parameters] = readAddress();
    const name = Object.hasOwn(views, view) ? view : "runs";
    if (anew && [...parameters].length) views[name].restore(parameters);
    for (const one of Object.keys(views)) {
      byId(one).hidden = one !== name;
      if (one === name) byId(`to-${one}`).setAttribute("aria-current", "page");
      else byId(`to-${one}`).removeAttribute("aria-current");
    }
    views[name].save();
    try {
      await views[name].show();
      document.documentElement.dataset.ready = name;
    } catch (error) {
      trouble(error.message);
      document.documentElement.dataset.ready = "failed";
    }
  }

  // A page that nobody sees does not listen (a browser has few lines to one server), and catches up when it is seen again.
  let source = null;
  let number = 0;
  let retry = null;
  function follow() {
    clearTimeout(retry);
    source?.close();
    if (document.hidden) return;
    source = new EventSource(`/api/events?since=${number}`);
    source.onopen = () => say("live", "live");
    source.onerror = () => {
      say("live", "not connected; trying again …");
      if (source.readyState === EventSource.CLOSED) retry = setTimeout(follow, 3000); // the browser has given up
    };
    source.onmessage = (event) => {
      const news = JSON.parse(event.data);
      views.runs.news(news);
      views.explore.news(news);
      number = event.lastEventId;
      document.documentElement.dataset.news = number;
    };
    source.addEventListener("again", () => location.reload());
  }

  let started = false;
  followTone(() => started && show());
  document.querySelectorAll("form").forEach((form) => form.addEventListener("submit", (event) => event.preventDefault()));
  addEventListener("hashchange", () => started && show(true));
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault(); // the address is the view's
    byId("content").focus();
  });

  const slow = setTimeout(() => say("live", "connecting; the machine is busy …"), 3000);
  ask("/api/runs").finally(() => clearTimeout(slow)).then((answer) => {
    Object.assign(shared, { themes: answer.themes, colors: answer.colors, quantiles: answer.quantiles });
    byId("directory").textContent = answer.directory;
    byId("version").textContent = answer.version;
    const [view, parameters] = readAddress();
    views.runs.start(answer);
    for (const name of Object.keys(views)) views[name].restore(name === view ? parameters : new URLSearchParams());
    number = answer.number;
    follow();
    document.addEventListener("visibilitychange", follow);
    started = true;
    return show();
  }).catch((error) => {
    trouble(error.message);
    document.documentElement.dataset.ready = "failed";
  });
})();
