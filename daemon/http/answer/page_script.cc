// SPDX-License-Identifier: Apache-2.0
#include <string_view>

#include "daemon/http/answer/page.h"

namespace afd::daemon {

// The figures are those of /metrics, so that the page never says anything else than a dashboard, or
// than afdctl top, whose source is the same segments.
const std::string_view kPageScript = R"js("use strict";
const by = id => document.getElementById(id);
const headers = () => ({
  "Content-Type": "application/json",
  ...(by("key").value && { Authorization: "Bearer " + by("key").value }),
});

let stopper = null;
by("stop").onclick = () => stopper?.abort();
by("form").onsubmit = async event => {
  event.preventDefault();
  const answer = by("answer");
  answer.textContent = "";
  const prompt = document.createElement("span");
  prompt.className = "prompt";
  prompt.textContent = by("prompt").value;
  answer.append(prompt);
  by("send").disabled = true;
  by("stop").disabled = false;
  by("speed").textContent = "";
  stopper = new AbortController();
  try {
    await generate(answer);
  } catch (error) {
    if (error.name !== "AbortError") fail(answer, error.message);
  }
  by("send").disabled = false;
  by("stop").disabled = true;
};

function fail(answer, message) {
  const line = document.createElement("div");
  line.className = "error";
  line.textContent = message;
  answer.append(line);
}

async function generate(answer) {
  const start = performance.now();
  let first = 0, tokens = 0, over = false;
  const response = await fetch("/v1/completions", {
    method: "POST", headers: headers(), signal: stopper.signal,
    body: JSON.stringify({
      prompt: by("prompt").value, max_tokens: +by("max_tokens").value,
      temperature: +by("temperature").value, stream: true, return_token_ids: true,
      ...(by("seed").value && { seed: +by("seed").value }),
    }),
  });
  if (!response.ok) return fail(answer, (await response.json()).error.message);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = "", part; !(part = await reader.read()).done;) {
    const events = (rest + part.value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      if (event === "data: [DONE]") over = true;
      if (!event.startsWith("data: {")) continue;
      const said = JSON.parse(event.slice(6));
      if (said.error) return fail(answer, said.error.message);
      const choice = said.choices[0];
      tokens += choice.token_ids?.length ?? 0;
      if (tokens) first ||= performance.now();
      answer.append(choice.text);
    }
    by("speed").textContent = tokens + " tokens" + (first === 0 ? "" :
      `, the first after ${(first - start).toFixed(1)} ms, ` +
      `${(1000 * tokens / Math.max(1, performance.now() - first)).toFixed(0)} a second`);
  }
  if (!over) fail(answer, "the answer was cut off");
}

// Values of /metrics by series; labels that all have are left out.
function parse(text) {
  const values = {};
  for (const line of text.split("\n")) {
    const match = /^(\w+)(?:{(.*)})? (\S+)$/.exec(line);
    if (!match) continue;
    const labels = (match[2] ?? "").replace(/(model_name|engine)="(\\.|[^"])*",?/g, "");
    values[labels ? `${match[1]}{${labels}}` : match[1]] = +match[3];
  }
  return values;
}

// Of all series of the name, or of those whose labels begin so.
function sum(values, name, labels = "") {
  let total = 0;
  for (const series in values) {
    if (series === name || series.startsWith(`${name}{${labels}`)) total += values[series];
  }
  return total;
}
const grown = (now, then, name, labels) =>
  Math.max(0, sum(now, name, labels) - sum(then, name, labels));
const seconds = (now, then) => Math.max(1e-3, now.afd_uptime_seconds - then.afd_uptime_seconds);
const rate = (now, then, name, labels) => grown(now, then, name, labels) / seconds(now, then);
const mean = (now, then, name) => {
  const count = grown(now, then, name + "_count");
  return count ? 1000 * grown(now, then, name + "_sum") / count : 0;
};
const short = value => value >= 100 ? value.toFixed(0) : `${+value.toPrecision(3)}`;

const kPast = 60;
const charts = {
  "tokens a second": (now, then) => rate(now, then, "afd_generation_tokens_total"),
  "requests running": now => now.afd_num_requests_running,
  "requests waiting": now => now.afd_num_requests_waiting,
  "finished a second": (now, then) => rate(now, then, "afd_request_success_total"),
  "failed or refused": (now, then) =>
    grown(now, then, "afd_request_failures_total") + grown(now, then, "afd_requests_refused_total"),
  "first token, ms": (now, then) => mean(now, then, "afd_time_to_first_token_seconds"),
  "between tokens, ms": (now, then) => mean(now, then, "afd_inter_token_latency_seconds"),
  "rounds in flight": now => sum(now, "afd_microbatches_inflight"),
  "KV cache reserved, %": now => 100 * now.afd_kv_cache_usage_perc,
};
const lines = {};
for (const name in charts) {
  const figure = document.createElement("figure");
  figure.innerHTML = '<figcaption><span></span><b></b></figcaption><svg viewBox="0 0 59 20" ' +
    'preserveAspectRatio="none"><polyline/></svg>';
  figure.querySelector("span").textContent = name;
  by("charts").append(figure);
  lines[name] = { figure, past: [] };
}

function keep(past, value) {
  past.push(value);
  if (past.length > kPast) past.shift();
}

function drawLines(now, then) {
  for (const name in charts) {
    const { figure, past } = lines[name];
    keep(past, charts[name](now, then));
    const top = Math.max(1e-9, ...past);
    figure.querySelector("polyline").setAttribute("points", past.map((value, i) =>
      `${kPast - past.length + i},${(19.5 - 18.5 * value / top).toFixed(2)}`).join(" "));
    figure.querySelector("b").textContent = short(past.at(-1));
  }
}

// What lies between two rows of values from 0 to 1, as the points of an area.
function area(past, low, high) {
  const at = (i, value) => `${kPast - past.length + i},${(20 - 20 * value).toFixed(2)}`;
  const above = past.map((load, i) => at(i, high(load)));
  const below = past.map((load, i) => at(i, low(load)));
  return [...above, ...below.reverse()].join(" ");
}

const workers = {};
function rowOf(name) {
  if (workers[name]) return workers[name];
  const row = document.createElement("tr");
  row.innerHTML = '<td><td class="chart"><svg viewBox="0 0 59 20" preserveAspectRatio="none">' +
    '<polygon class="busy"/><polygon class="bubble"/></svg><div class="bar">' +
    '<div class="busy"></div><div class="bubble"></div><div class="wait"></div></div>' +
    "<td>".repeat(8);
  row.cells[0].textContent = name;
  by("workers").append(row);
  return workers[name] = { row, past: [] };
}

function drawWorkers(now, then) {
  for (const series in now) {
    const match = /^afd_worker_up{(role="(\w+)",worker="(\d+)")}$/.exec(series);
    if (!match) continue;
    const [, labels, role, index] = match;
    const { row, past } = rowOf(`${role} ${index}`);
    const part = (name, room) => Math.min(rate(now, then, name, labels), room);
    const busy = part("afd_busy_seconds_total", 1);
    // A wait counts when it ends: it may have begun before the last look.
    const bubble = part("afd_bubble_seconds_total", 1 - busy);
    const waits = rate(now, then, "afd_wait_total", labels);
    keep(past, { busy, bubble, waits });
    row.querySelector(".busy").setAttribute("points", area(past, () => 0, load => load.busy));
    row.querySelector(".bubble").setAttribute("points",
      area(past, load => load.busy, load => load.busy + load.bubble));
    const parts = { busy, bubble, wait: 1 - busy - bubble };
    for (const name in parts) {
      row.querySelector(".bar ." + name).style.width = `${(100 * parts[name]).toFixed(2)}%`;
    }
    const holds = role === "attention";
    const texts = [
      ...Object.values(parts).map(value => `${(100 * value).toFixed(0)} %`),
      waits.toFixed(0),
      rate(now, then, "afd_rounds_total", labels).toFixed(0),
      holds ? now[`afd_microbatches_inflight{${labels}}`] : "\u2013",
      holds ? now[`afd_kv_tokens{${labels},kind="reserved"}`] : "\u2013",
      now[`afd_worker_restarts_total{${labels}}`],
    ];
    texts.forEach((text, i) => row.cells[i + 2].textContent = text);
    row.classList.toggle("error", now[series] !== 1);
  }
  // A resize may have ended some.
  for (const name in workers) {
    const [role, index] = name.split(" ");
    if (`afd_worker_up{role="${role}",worker="${index}"}` in now) continue;
    workers[name].row.remove();
    delete workers[name];
  }
}

function drawExperts(now, then) {
  const rows = [];
  for (const series in now) {
    const match = /^afd_expert_rows_total{expert="(\d+)"}$/.exec(series);
    if (match) rows[+match[1]] = Math.max(0, now[series] - (then[series] ?? 0));
  }
  const total = rows.reduce((a, b) => a + b, 0);
  // Without work the last heat stands.
  if (rows.length === 0 || total === 0 && by("experts").childElementCount > 0) return;
  const most = Math.max(1, ...rows);
  while (by("experts").childElementCount < rows.length) {
    by("experts").append(document.createElement("div"));
  }
  rows.forEach((count, expert) => {
    const cell = by("experts").children[expert];
    cell.style.background = `rgba(var(--heat), ${(.05 + .95 * count / most).toFixed(3)})`;
    cell.title = `expert ${expert}: ${count} rows`;
  });
  by("experts_text").textContent = `0\u2013${rows.length - 1}: ${total} rows in the last second` +
    (total ? `; busiest ${rows.indexOf(most)} with ` +
      `${(most * rows.length / total).toFixed(2)} times the mean` : "");
}

// Who waits for whom, a line each; as afdctl top has them.
function drawWaits(waits) {
  by("waits").replaceChildren(...waits.map(wait => {
    const line = document.createElement("div");
    line.textContent = "wait: " + wait;
    return line;
  }));
}

function drawState(now) {
  const state = Object.keys(now).find(series =>
    series.startsWith("afd_state{") && now[series] === 1);
  by("state").textContent = `${/state="(\w+)"/.exec(state)?.[1] ?? ""}, up ` +
    `${now.afd_uptime_seconds.toFixed(0)} s`;
}

let last = null;
async function tick() {
  try {
    const now = parse(await (await fetch("/metrics")).text());
    // Of another process there is nothing to compare with.
    if (last && now.afd_uptime_seconds < last.afd_uptime_seconds) last = null;
    drawState(now);
    if (last) {
      drawLines(now, last);
      drawWorkers(now, last);
      drawExperts(now, last);
    }
    last = now;
    drawWaits((await (await fetch("/health")).json()).waits ?? []);
    document.body.style.opacity = 1;
  } catch {
    // Gone, or draining to its end: what stands there is old.
    document.body.style.opacity = .5;
  }
  setTimeout(tick, 1000);
}
tick();
fetch("/v1/models", { headers: headers() }).then(answer => answer.json())
  .then(list => by("model").textContent = list.data?.[0].id ?? "").catch(() => {});
)js";

}  // namespace afd::daemon
