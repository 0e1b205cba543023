"use strict";
// Switches between the views and between dark and light, and listens to the server's events.
(() => {
  const { byId, ask, readAddress, say, shared, trouble } = recombine;
  const views = { story: recombine.story, runs: recombine.runs, run: recombine.runPage, explore: recombine.explore };
  const link = (view) => byId(`to-${view === "run" ? "runs" : view}`); // the page of a run belongs to the runs
  let first = "runs"; // the view of an address without one

  // `anew`: the user has followed a link, whose parameters replace the current state. The links of the views have none.
  async function show(anew = false) {
    const [view, parameters] = readAddress();
    const name = Object.hasOwn(views, view) && !link(view).hidden ? view : first;
    if (anew && [...parameters].length) views[name].restore(parameters);
    for (const one of Object.keys(views)) {
      byId(one).hidden = one !== name;
      link(one).removeAttribute("aria-current");
    }
    link(name).setAttribute("aria-current", "page");
    views[name].save();
    try {
      await views[name].show();
      document.documentElement.dataset.ready = name;
    } catch (error) {
      trouble(error.message);
      document.documentElement.dataset.ready = "failed";
    }
  }

  // A hidden page does not listen, because a browser allows few connections per server. It catches up when shown again.
  let source = null;
  let number = 0;
  let retry = null;
  function follow() {
    clearTimeout(retry);
    source?.close();
    if (document.hidden) return;
    source = new EventSource(`/api/events?since=${number}`);
    source.onopen = () => {
      say("live", "live");
      byId("live").dataset.on = "yes";
    };
    source.onerror = () => {
      delete byId("live").dataset.on;
      say("live", "not connected; trying again …");
      if (source.readyState === EventSource.CLOSED) retry = setTimeout(follow, 3000); // the browser does not retry by itself
    };
    source.onmessage = (event) => {
      const news = JSON.parse(event.data);
      views.runs.news(news);
      views.run.news(news);
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
    event.preventDefault(); // the part after # belongs to the view
    byId("content").focus();
  });

  const slow = setTimeout(() => say("live", "connecting; the machine is busy …"), 3000);
  ask("/api/runs").finally(() => clearTimeout(slow)).then((answer) => {
    Object.assign(shared, { colors: answer.colors, quantiles: answer.quantiles });
    byId("directory").textContent = answer.directory;
    byId("version").textContent = answer.version;
    if (answer.story) first = "story";
    byId("to-story").hidden = !answer.story;
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
