// Shows status.json, and asks for it again every second. Texts are set as text, never as HTML: anyone
// chooses keys. An answer older than three seconds makes the page stale, also where none comes.
"use strict";

const SLOTS = 60;
const SLOT_SECONDS = 5;
const HEIGHT = 44;
const WIDTH = 240;
const LONGEST_KEY = 40;
const STALE_MS = 3000;
const SVG = "http://www.w3.org/2000/svg";

const byId = (id) => document.getElementById(id);

// What is invisible, turns the direction of a text or moves it; a space only where nobody sees it.
const HIDDEN = /^ | $|(?<= ) |(?! )[\\\p{C}\p{Z}\p{Default_Ignorable_Code_Point}]/gu;

/** The text, so that no two of them look the same. */
function visible(text) {
  return text.replace(HIDDEN, (found) => {
    return found === "\\" ? "\\\\" : `\\u{${found.codePointAt(0).toString(16)}}`;
  });
}

function element(name, className, ...content) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...content);
  return made;
}

/** Sets a text only where it differs, so that a selection and a screen reader are left alone. */
function setText(place, text) {
  if (place.textContent !== text) place.textContent = text;
}

const digits = (value) => value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 });

function percent(part, whole) {
  if (part === 0 || whole === 0) return "0 %";
  const share = (100 * part) / whole;
  if (share < 0.1) return "< 0.1 %";
  if (share > 99.9 && part < whole) return "> 99.9 %";
  return `${digits(share)} %`;
}

function milliseconds(ms) {
  if (ms === null) return "–";
  return ms < 0.1 ? "< 0.1 ms" : `${digits(ms)} ms`;
}

function duration(seconds) {
  if (seconds < 100) return `${seconds} s`;
  if (seconds < 100 * 60) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 48 * 3600) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} days`;
}

/** A text that is cut in the middle where it is long, and whole when it is pressed. */
function key(text) {
  const whole = visible(text);
  const characters = Array.from(whole);
  if (characters.length <= LONGEST_KEY) return element("span", "key", whole);
  const half = LONGEST_KEY / 2 - 1;
  const cut = `${characters.slice(0, half).join("")} … ${characters.slice(-half).join("")}`;
  const button = element("button", "key", cut);
  button.type = "button";
  button.setAttribute("aria-expanded", "false");
  button.addEventListener("click", () => {
    const isWhole = button.getAttribute("aria-expanded") === "true";
    button.setAttribute("aria-expanded", String(!isWhole));
    button.textContent = isWhole ? cut : whole;
  });
  return button;
}

/** Fills a list where what it shows has changed: a key that was opened stays so until then. */
function fill(list, entries, none, item) {
  const shown = JSON.stringify(entries);
  if (list.dataset.shown === shown) return;
  list.dataset.shown = shown;
  const items = entries.map((entry) => element("li", "", ...item(entry)));
  list.replaceChildren(...(items.length ? items : [element("li", "dim", none)]));
}

const counted = (entry) => [
  key(entry.key),
  element("span", "number", digits(entry.requests)),
];

const sum = ({ granted, denied, failed }) => granted + denied + failed;

/** A bar for each slot: granted below, denied above it, failed on top. */
function chart(series, most, denied) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  const add = (name, attributes) => {
    const part = document.createElementNS(SVG, name);
    for (const [attribute, value] of Object.entries(attributes)) part.setAttribute(attribute, value);
    svg.append(part);
  };
  for (const y of [0.5, HEIGHT - 0.5]) add("line", { x1: 0, x2: WIDTH, y1: y, y2: y });
  const width = WIDTH / SLOTS;
  series.forEach((slot, place) => {
    let top = HEIGHT;
    for (const kind of ["granted", "denied", "failed"]) {
      const height = (slot[kind] / most) * HEIGHT;
      if (height === 0) continue;
      top -= height;
      const x = (SLOTS - series.length + place) * width;
      add("rect", { x, y: top, width: width - 0.8, height, class: kind === "denied" ? denied : kind });
    }
  });
  return svg;
}

const rules = new Map();

function makeRule(name) {
  const part = (className) => element("span", className);
  const shown = {
    badges: part(""),
    applies: part("applies"),
    limit: part("limit"),
    rate: part("rate number"),
    share: part("share number"),
    drawing: part("drawing"),
    axis: part("axis"),
    asking: element("ul", "keys"),
    deniedTitle: element("h3"),
    denied: element("ul", "keys"),
  };
  const title = element("span", "name", visible(name), shown.badges);
  const left = element("span", "left", title, shown.applies);
  const chart = element("span", "chart", shown.drawing, shown.axis);
  const summary = element("summary", "", left, shown.limit, shown.rate, shown.share, chart);
  const opened = element(
    "div",
    "opened",
    element("div", "", element("h3", "", "Keys that ask most"), shown.asking),
    element("div", "", shown.deniedTitle, shown.denied),
  );
  shown.whole = element("details", "rule", summary, opened);
  return shown;
}

function badges(rule) {
  const found = [];
  if (rule.is_shadow) found.push(element("span", "badge shadow", "shadow"));
  if (sum(rule.use.total) === 0) found.push(element("span", "badge unused", "never used"));
  return found;
}

function shareText(rule) {
  const { granted, denied, failed } = rule.use.recent;
  const text = percent(denied, granted + denied + failed);
  const failures = failed === 0 ? "" : `, ${percent(failed, granted + denied + failed)} failed`;
  return (rule.is_shadow ? `${text} would be denied` : `${text} denied`) + failures;
}

function showRule(shown, rule, most) {
  const denied = rule.is_shadow ? "shadow" : "denied";
  shown.badges.replaceChildren(...badges(rule));
  setText(shown.applies, visible(rule.applies));
  setText(shown.limit, visible(rule.limit));
  setText(shown.rate, `${digits(rule.use.per_second)}/s`);
  setText(shown.share, shareText(rule));
  shown.share.className = `share number ${rule.use.recent.denied > 0 ? denied : ""}`;
  shown.drawing.replaceChildren(chart(rule.use.series, most, denied));
  const peak = Math.max(0, ...rule.use.series.map(sum)) / SLOT_SECONDS;
  const ago = element("span", "", "5 min ago");
  shown.axis.replaceChildren(ago, element("span", "", `peak ${digits(peak)}/s`), element("span", "", "now"));
  fill(shown.asking, rule.asking, "none", counted);
  setText(shown.deniedTitle, `Keys that ${rule.is_shadow ? "would be" : "are"} denied most`);
  fill(shown.denied, rule.denied, "none", counted);
}

function showRules(status) {
  const most = Math.max(SLOT_SECONDS, ...status.rules.flatMap((rule) => rule.use.series.map(sum)));
  const names = new Set(status.rules.map((rule) => rule.name));
  for (const [name, shown] of rules) {
    if (names.has(name)) continue;
    shown.whole.remove();
    rules.delete(name);
  }
  status.rules.forEach((rule, place) => {
    if (!rules.has(rule.name)) rules.set(rule.name, makeRule(rule.name));
    const shown = rules.get(rule.name);
    const there = byId("rules").children[place];
    if (there !== shown.whole) byId("rules").insertBefore(shown.whole, there ?? null);
    showRule(shown, rule, most);
  });
  setText(byId("scale"), `every chart: 0 to ${digits(most / SLOT_SECONDS)}/s, five minutes`);
}

function showGlance({ recent }) {
  const whole = sum(recent);
  const tiles = [
    ["Requests", `${digits(recent.per_second)}/s`],
    ["Granted", percent(recent.granted, whole)],
    ["Denied", percent(recent.denied, whole)],
    ["Failed", percent(recent.failed, whole)],
    ["99 % answered within", milliseconds(recent.p99_ms)],
    ["No rule matched", `${digits(recent.unmatched_per_second)}/s`],
  ];
  const made = tiles.map(([title, text]) =>
    element("div", "", element("dt", "", title), element("dd", "", text)),
  );
  const shown = JSON.stringify(tiles);
  if (byId("glance").dataset.shown === shown) return;
  byId("glance").dataset.shown = shown;
  byId("glance").replaceChildren(...made);
}

function showAlerts(status) {
  const found = status.alerts.map(({ title, cause, since_s: since }) => ({
    title: since === undefined ? title : `${title}, for ${duration(since)}`,
    cause,
  }));
  const list = byId("alerts");
  const shown = JSON.stringify(found);
  if (list.dataset.shown === shown) return;
  list.dataset.shown = shown;
  const alerts = found.map(({ title, cause }) =>
    element("li", "", element("strong", "", title), element("div", "", visible(cause))),
  );
  list.replaceChildren(...alerts);
}

function setState(text, isGood) {
  const state = byId("state");
  setText(state, text);
  state.className = isGood ? "good" : "bad";
}

function show(status) {
  setState(status.is_ready ? "✓ ready" : "✗ not ready", status.is_ready);
  setText(byId("about"), `up for ${duration(status.uptime_s)}, version ${status.version}`);
  showAlerts(status);
  showGlance(status);
  showRules(status);
  fill(byId("unmatched"), status.unmatched, "none", counted);
  fill(byId("servers"), status.servers, "in memory", ({ server, breaker, last_cause: cause }) => [
    element("span", "key", visible(server)),
    element("span", breaker === "closed" ? "good" : "bad", breaker === "closed" ? "✓ answers" : `✗ ${breaker}`),
    element("span", "dim", visible(cause ?? "")),
  ]);
}

let answered = performance.now();

function watchAge() {
  const age = performance.now() - answered;
  const isStale = age > STALE_MS;
  document.body.classList.toggle("stale", isStale);
  if (isStale) setState(`✗ stale: no answer for ${duration(Math.floor(age / 1000))}`, false);
}

async function refresh() {
  try {
    const signal = AbortSignal.timeout(STALE_MS);
    const response = await fetch("status.json", { cache: "no-store", signal });
    show(await response.json());
    answered = performance.now();
  } catch {
    // The age of the last answer says it.
  }
  setTimeout(refresh, 1000);
}

setInterval(watchAge, 500);
refresh();
