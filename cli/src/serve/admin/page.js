// Shows status.json, and asks for it again every two seconds. Texts are set as text, never as HTML: keys are chosen by anyone.
"use strict";

const SLOTS = 60;
const HEIGHT = 32;
const WIDTH = 4;
const SVG = "http://www.w3.org/2000/svg";

const byId = (id) => document.getElementById(id);

// What is invisible, turns the direction of a text or moves it, but for a space; and the sign by which it is shown.
const HIDDEN = /[\\\p{C}\p{Z}\p{Default_Ignorable_Code_Point}]/gu;

/** The text, so that no two of them look the same. */
function visible(text) {
  return text.replace(HIDDEN, (found) => {
    if (found === " ") return found;
    return found === "\\" ? "\\\\" : `\\u{${found.codePointAt(0).toString(16)}}`;
  });
}

function cell(text, className) {
  const cell = document.createElement("td");
  cell.textContent = visible(text);
  if (className) cell.className = className;
  return cell;
}

function row(...cells) {
  const row = document.createElement("tr");
  row.append(...cells);
  return row;
}

const number = (value) => cell(value.toLocaleString("en"), "number");

function fill(id, rows, columns) {
  const none = cell("none", "none");
  none.colSpan = columns;
  byId(id).replaceChildren(...(rows.length ? rows : [row(none)]));
}

/** A bar for each slot: granted below, denied above it, failed on top. */
function chart(series, most) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("width", SLOTS * WIDTH);
  svg.setAttribute("height", HEIGHT);
  series.forEach((slot, place) => {
    let top = HEIGHT;
    for (const kind of ["granted", "denied", "failed"]) {
      const height = (slot[kind] / most) * HEIGHT;
      if (height === 0) continue;
      top -= height;
      const bar = document.createElementNS(SVG, "rect");
      bar.setAttribute("x", (SLOTS - series.length + place) * WIDTH);
      bar.setAttribute("y", top);
      bar.setAttribute("width", WIDTH - 1);
      bar.setAttribute("height", height);
      bar.setAttribute("class", kind);
      svg.append(bar);
    }
  });
  const title = document.createElementNS(SVG, "title");
  title.textContent = `at most ${most} in 5 seconds`;
  svg.append(title);
  return svg;
}

function policyText({ algorithm, ...numbers }) {
  const texts = Object.entries(numbers).map(([name, value]) => `${name} ${value}`);
  return [algorithm, ...texts].join(", ");
}

function ruleRow(rule) {
  const { total, series } = rule.use;
  const sums = series.map((slot) => slot.granted + slot.denied + slot.failed);
  const drawn = document.createElement("td");
  drawn.append(chart(series, Math.max(1, ...sums)));
  return row(
    cell(rule.name + (rule.is_shadow ? " (shadow)" : "")),
    cell(rule.key),
    cell(policyText(rule.policy)),
    number(total.granted),
    number(total.denied),
    number(total.failed),
    drawn,
  );
}

const keyRow = (it) => row(cell(it.rule), cell(it.key, "key"), number(it.requests));

function show(status) {
  const state = byId("state");
  state.textContent =
    `${status.is_ready ? "ready" : "not ready"}, up for ${status.uptime_s} s, version ${status.version}`;
  state.className = status.is_ready ? "good" : "bad";
  const error = byId("error");
  error.hidden = status.rules_error === null;
  error.textContent = `The rules file was refused, and the old rules are in force: ${status.rules_error}`;
  fill("rules", status.rules.map(ruleRow), 7);
  fill("asking", status.asking.map(keyRow), 3);
  fill("denied", status.denied.map(keyRow), 3);
  const servers = status.servers.map((it) =>
    row(cell(it.server), cell(it.breaker, it.breaker === "closed" ? "good" : "bad"), cell(it.last_cause ?? "")),
  );
  fill("servers", servers, 3);
}

async function refresh() {
  try {
    const response = await fetch("status.json", { cache: "no-store" });
    show(await response.json());
  } catch {
    const state = byId("state");
    state.textContent = "the server does not answer";
    state.className = "bad";
  }
  setTimeout(refresh, 2000);
}

refresh();
