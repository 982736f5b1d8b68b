"use strict";
/* Polls /status and draws it. Every word that comes from outside goes through textContent. */

const POLL_MS = 1000;
const KEEP_S = 120;
const RECENT_MS = 5000;
const SHOWN = 25; // of the latest requests
const PAIRS_SHOWN = 16; // of those that have met
const TIMEOUT_MS = 5000;
const STAGES = ["tokenise", "queue", "reserve", "prefill"];
const SVG = "http://www.w3.org/2000/svg";

const history = []; // of /status, the latest last
let failing = 0; // polls in a row without an answer

const $ = (id) => document.getElementById(id);

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined && text !== null) element.textContent = text;
  return element;
}

function shape(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

async function get(path) {
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  const key = sessionStorage.getItem("key"); // forgotten with the tab
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  const response = await fetch(path, { cache: "no-store", signal, headers });
  const body = await response.json();
  $("door").hidden = response.status !== 401 && response.status !== 403;
  if (!response.ok)
    throw new Error(body.error ? body.error.message : `status ${response.status}`);
  return body;
}

/* ---- numbers as people read them ---- */

function short(value) {
  if (value >= 1e9) return `${(value / 1e9).toFixed(1)} G`;
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)} M`;
  if (value >= 1e4) return `${(value / 1e3).toFixed(1)} k`;
  return value >= 100 || Number.isInteger(value) ? value.toFixed(0) : value.toFixed(1);
}

function many(count, noun) {
  return `${short(count)} ${noun}${count === 1 ? "" : "s"}`;
}

function time(seconds) {
  if (seconds === null) return "–";
  if (seconds >= 100) return `${seconds.toFixed(0)} s`;
  if (seconds >= 1) return `${seconds.toFixed(2)} s`;
  const ms = seconds * 1e3;
  return `${ms >= 10 || ms === 0 ? ms.toFixed(0) : ms.toFixed(1)} ms`;
}

function age(seconds) {
  if (seconds < 120) return `${seconds.toFixed(0)} s`;
  if (seconds < 7200) return `${(seconds / 60).toFixed(0)} min`;
  if (seconds < 172800) return `${(seconds / 3600).toFixed(0)} h`;
  return `${(seconds / 86400).toFixed(0)} d`;
}

/* ---- what changed in the last minute ---- */

function before(seconds) {
  const now = history[history.length - 1];
  return history.find((status) => now.now_ms - status.now_ms <= seconds * 1e3) || now;
}

function rate(from, to, key) {
  const seconds = (to.now_ms - from.now_ms) / 1e3;
  return seconds > 0 ? Math.max(0, to[key] - from[key]) / seconds : 0;
}

function newSpan(name) {
  const from = before(60).spans[name];
  const to = history[history.length - 1].spans[name];
  const counts = to.counts.map((count, i) => count - from.counts[i]);
  return { bounds: to.bounds, counts, sum: to.sum - from.sum,
    count: counts.reduce((sum, count) => sum + count, 0) };
}

/* By linear interpolation inside a bucket, as Prometheus does it. */
function quantile(span, share) {
  if (span.count <= 0) return null;
  let left = share * span.count;
  for (let i = 0; i < span.counts.length; i++) {
    if (left <= span.counts[i] && span.counts[i] > 0) {
      const low = i > 0 ? span.bounds[i - 1] : 0;
      const high = i < span.bounds.length ? span.bounds[i] : low;
      return low + (high - low) * left / span.counts[i];
    }
    left -= span.counts[i];
  }
  return span.bounds[span.bounds.length - 1];
}

/* ---- what is wrong, the worst first ---- */

function troubles(status) {
  const bad = [], warn = [];
  const from = before(60);
  const news = (key) => Math.max(0, status[key] - from[key]);
  if (status.draining) warn.push("The router is shutting down and takes no new requests.");
  for (const model of status.models) {
    const of = status.models.length > 1 ? ` of ${model.id}` : "";
    if (model.decode === 0)
      bad.push(`No decode node${of} is connected: every request for it is refused.`);
    else if (model.prefill === 0)
      warn.push(`No prefill node${of} is connected: decode nodes read the prompts themselves.`);
  }
  for (const worker of status.workers) {
    const name = `${worker.role} node ${worker.name || worker.address}`;
    if (worker.state === "lost")
      bad.push(`${name} was lost ${age(worker.state_seconds)} ago: ${worker.reason}`);
    else if (worker.state === "refused") bad.push(`${name} was refused: ${worker.reason}`);
    else if (worker.reason) warn.push(`${name}: ${worker.reason}`);
    else if (worker.state === "draining") warn.push(`${name} takes no more requests.`);
    if (worker.state === "up" && worker.pages_total > 0 && worker.role === "decode" &&
        worker.pages_free / worker.pages_total < 0.05)
      warn.push(`${name} has ${worker.pages_free} of ${worker.pages_total} KV pages left.`);
    if (worker.state === "up" && worker.handoff.oldest_ms > 10000)
      warn.push(`${name}: a hand-off holds pages for ${age(worker.handoff.oldest_ms / 1e3)} now.`);
    for (const peer of worker.state === "up" ? worker.handoff.peers : [])
      if (peer.state === "broken" || peer.state === "lost")
        bad.push(`${name}: its link to ${peer.node} is ${peer.state}.`);
  }
  if (!status.journal_healthy) bad.push("The journal can not be written; serving goes on.");
  if (news("journal_dropped") > 0)
    warn.push(`${many(news("journal_dropped"), "journal record")} lost in the last minute.`);
  if (news("requests_fault") > 0)
    bad.push(`${many(news("requests_fault"), "request")} answered with a 5xx in the last minute.`);
  if (status.states.queued > 0)
    warn.push(`${many(status.states.queued, "request")} waiting for room on a decode node.`);
  if (news("handoffs_damaged") > 0)
    warn.push(`${many(news("handoffs_damaged"), "hand-off")} damaged in the last minute.`);
  if (news("slow_readers") > 0)
    warn.push(`${many(news("slow_readers"), "stream")} dropped: the client took too little.`);
  if (news("links_unproven") > 0)
    warn.push("Connections without the cluster's secret were turned away in the last minute.");
  return { bad, warn };
}

function drawTrouble(status, lost) {
  const section = $("trouble"), list = section.querySelector("ul");
  const { bad, warn } = status ? troubles(status) : { bad: [], warn: [] };
  if (lost) bad.unshift(lost);
  const items = bad.map((text) => make("li", "bad", text))
    .concat(warn.map((text) => make("li", "warn", text)));
  if (items.length === 0) items.push(make("li", "good", "Nothing is wrong."));
  list.replaceChildren(...items);
  section.className = bad.length > 0 ? "bad" : warn.length > 0 ? "warn" : "calm";
  const count = bad.length + warn.length;
  document.title = count > 0 ? `(${count}) baton` : "baton";
}

/* ---- the parts of the page ---- */

/* Chosen and sorted once, so that cards, arrows and tables agree. Who left in order is no news. */
function sortWorkers(status) {
  status.workers = status.workers.filter((worker) => worker.state !== "left");
  status.workers.sort((a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }));
}

function drawHeader(status) {
  $("model").textContent = status.models
    .map((model) => model.ready ? model.id : `${model.id} (no decode node)`).join(", ");
  $("since").textContent = `up ${age(status.now_ms / 1e3 - status.started_s)} · ${status.version}`;
}

function drawNumbers(status) {
  const from = before(10), minute = before(60), ttft = newSpan("ttft"), itl = newSpan("itl");
  const running = status.states.prefilling + status.states.decoding + status.states.reporting;
  const waiting = status.states.tokenising + status.states.queued + status.states.reserving;
  const errors = status.requests_fault - minute.requests_fault;
  const decode = status.workers.filter((w) => w.state === "up" && w.role === "decode");
  const total = decode.reduce((sum, w) => sum + w.pages_total, 0);
  const free = decode.reduce((sum, w) => sum + w.pages_free, 0);
  const prompt = status.prompt_tokens - minute.prompt_tokens;
  const cached = Math.min(prompt, status.prompt_tokens_cached - minute.prompt_tokens_cached);
  const rows = [
    ["running", short(running)],
    ["waiting", short(waiting), status.states.queued > 0 ? "warn" : ""],
    ["requests/s", short(rate(from, status, "requests_ok"))],
    ["tokens/s out", short(rate(from, status, "output_tokens"))],
    ["tokens/s read", short(rate(from, status, "prompt_tokens"))],
    ["TTFT p50", time(quantile(ttft, 0.5))],
    ["TTFT p95", time(quantile(ttft, 0.95))],
    ["ITL p50", time(quantile(itl, 0.5))],
    ["ITL p95", time(quantile(itl, 0.95))],
    ["decode KV", total > 0 ? `${(100 - 100 * free / total).toFixed(0)} %` : "–"],
    ["prefix hits", prompt > 0 ? `${(100 * cached / prompt).toFixed(0)} %` : "–"],
    ["5xx/minute", short(errors), errors > 0 ? "bad" : ""],
  ];
  $("numbers").replaceChildren(...rows.map(([label, value, kind]) => {
    const box = make("div", `number ${kind || ""}`);
    box.append(make("b", "", value), make("small", "", label));
    return box;
  }));
}

function series(key) {
  const points = [];
  for (let i = 1; i < history.length; i++)
    points.push([history[i].now_ms, rate(history[i - 1], history[i], key)]);
  return points;
}

/* Each line to its own scale: prompts come in thousands, answers in tens. */
function drawChart(status) {
  const chart = $("chart"), width = 400, height = 92;
  const lines = [["out", series("output_tokens")], ["read", series("prompt_tokens")]];
  const most = lines.map(([, points]) => Math.max(1, ...points.map((point) => point[1])));
  const x = (ms) => (width * (1 - (status.now_ms - ms) / (KEEP_S * 1e3))).toFixed(1);
  const y = (value, line) => (height - 2 - (height - 6) * value / most[line]).toFixed(1);
  const parts = [shape("line", { x1: 0, x2: width, y1: height - 1, y2: height - 1 })];
  lines.forEach(([, points], i) => {
    const steps = points.map(([ms, value], at) => `${at ? "L" : "M"}${x(ms)} ${y(value, i)}`);
    if (points.length > 1) parts.push(shape("path", { class: `s${i}`, d: steps.join("") }));
  });
  chart.setAttribute("viewBox", `0 0 ${width} ${height}`);
  chart.setAttribute("preserveAspectRatio", "none");
  chart.replaceChildren(...parts);
  $("chart-legend").replaceChildren(...lines.map(([name, points], i) =>
    legend(i, `${name} ${short(points.length ? points[points.length - 1][1] : 0)}, ` +
      `highest ${short(most[i])}`)));
}

function legend(color, text) {
  const entry = make("span");
  entry.append(make("i", `c${color}`), document.createTextNode(text));
  return entry;
}

/* widths: shares of one, by color. */
function drawBar(bar, widths) {
  bar.replaceChildren(...widths.map((share, i) => {
    const part = make("i", `c${i}`);
    part.style.width = `${100 * share}%`;
    return part;
  }));
}

function drawStages() {
  const means = STAGES.map((name) => {
    const span = newSpan(name);
    return span.count > 0 ? span.sum / span.count : 0;
  });
  const whole = means.reduce((sum, mean) => sum + mean, 0);
  drawBar($("stages"), means.map((mean) => whole > 0 ? mean / whole : 0));
  const mean = (i) => (whole > 0 ? time(means[i]) : "–");
  const entries = STAGES.map((name, i) => legend(i, `${name} ${mean(i)}`));
  const handoff = newSpan("handoff"), wait = newSpan("handoff_wait");
  if (handoff.count > 0)
    entries.push(make("span", "quiet", `hand-off ${time(handoff.sum / handoff.count)}, of it not ` +
      `hidden ${time(wait.sum / Math.max(1, wait.count))}`));
  $("stage-legend").replaceChildren(...entries);
}

/* ---- the fleet ---- */

function card(worker) {
  const kind = worker.state === "lost" || worker.state === "refused" ? "bad"
    : worker.state === "draining" || worker.reason ? "warn" : "";
  const box = make("div", `card ${kind}`), top = make("div", "top");
  top.append(make("b", "", worker.name || "?"), make("span", "state quiet", worker.state));
  box.append(top);
  if (worker.state === "up" || worker.state === "draining") {
    const bar = make("div", "bar thin");
    const total = Math.max(1, worker.pages_total);
    const used = Math.max(0, worker.pages_total - worker.pages_free - worker.pages_handoff);
    drawBar(bar, [used / total, worker.pages_handoff / total]);
    box.append(bar, make("small", "",
      `KV ${(100 * (1 - worker.pages_free / total)).toFixed(0)} % of ${short(worker.pages_total)}` +
      ` · ${worker.running} running · ${worker.waiting} waiting`));
    const more = make("small", "optional");
    const model = history[history.length - 1].models.length > 1 ? ` · ${worker.model}` : "";
    more.textContent = `${short(worker.tokens_per_s)} tok/s · ${worker.address}${model}`;
    box.append(more);
  }
  if (worker.reason) box.append(make("small", "", worker.reason));
  return box;
}

/* One row a pair that has met, as the prefill nodes tell. */
function pairs(status) {
  const old = before(5), seconds = (status.now_ms - old.now_ms) / 1e3;
  const rows = [];
  for (const worker of status.workers) {
    if (worker.role !== "prefill" || worker.state !== "up") continue;
    const past = old.workers.find((w) => w.name === worker.name && w.role === "prefill");
    for (const peer of worker.handoff.peers) {
      const then = past && past.handoff.peers.find((p) => p.node === peer.node);
      const bytes = then ? Math.max(0, peer.bytes - then.bytes) : 0;
      const speed = seconds > 0 ? bytes / seconds : 0;
      rows.push({ from: worker.name, to: peer.node, peer, speed });
    }
  }
  return rows;
}

function middle(container, index, origin) {
  const box = container.children[index].getBoundingClientRect();
  return box.top + box.height / 2 - origin.top;
}

function drawArrows(status, rows) {
  const svg = $("arrows"), origin = svg.getBoundingClientRect(), half = origin.width / 2;
  const names = (role) => status.workers.filter((w) => w.role === role).map((w) => w.name);
  const from = names("prefill"), to = names("decode"), parts = [];
  for (const row of rows) {
    const a = from.indexOf(row.from), b = to.indexOf(row.to);
    if (a < 0 || b < 0) continue;
    const y1 = middle($("prefill"), a, origin), y2 = middle($("decode"), b, origin);
    const busy = row.speed > 0 || row.peer.open > 0;
    const path = shape("path", {
      class: busy ? "busy" : "",
      "stroke-width": Math.min(7, 1.2 + Math.log10(1 + row.speed / 1e5)).toFixed(1),
      d: `M4 ${y1}C${half} ${y1} ${half} ${y2} ${2 * half - 4} ${y2}`,
    });
    parts.push(path);
  }
  svg.replaceChildren(...parts);
}

function cells(row, tag, values) {
  for (const [text, className] of values) row.append(make(tag, className || "", text));
  return row;
}

function drawTable(table, head, rows) {
  if (rows.length === 0) {
    table.replaceChildren();
    return;
  }
  const header = make("thead"), body = make("tbody");
  header.append(cells(make("tr"), "th", head));
  body.append(...rows);
  table.replaceChildren(header, body);
}

function drawFleet(status) {
  for (const role of ["prefill", "decode"]) {
    const own = status.workers.filter((w) => w.role === role);
    $(role).replaceChildren(...(own.length > 0 ? own.map(card) : [make("div", "quiet", "none")]));
  }
  const rows = pairs(status);
  drawArrows(status, rows);
  drawPairs(rows);
}

/* A large fleet has a thousand of them: those that are at it come first, then those that failed. */
function drawPairs(rows) {
  rows.sort((a, b) => b.peer.open - a.peer.open || b.speed - a.speed ||
    b.peer.failed - a.peer.failed);
  const more = rows.length - PAIRS_SHOWN;
  drawTable($("handoffs"),
    [["hand-offs"], ["open", "n"], ["MB/s", "n"], ["landed", "n"], ["failed", "n"],
      ["link", "optional"]],
    rows.slice(0, PAIRS_SHOWN).map((row) => cells(make("tr"), "td", [
      [`${row.from} → ${row.to}`], [short(row.peer.open), "n"],
      [(row.speed / 1e6).toFixed(1), "n"], [short(row.peer.landed), "n"],
      [short(row.peer.failed), row.peer.failed > 0 ? "n bad" : "n"],
      [row.peer.state, "quiet optional"]])));
  if (more > 0) $("handoffs").append(make("caption", "quiet", `and ${many(more, "pair")} more`));
}

/* ---- requests ---- */

function clock(ms) {
  return new Date(ms).toLocaleTimeString([], { hour12: false });
}

function outcome(request) {
  if (request.state !== "ended") return [request.state, "quiet"];
  const bad = request.outcome === "failed" || request.outcome === "lost";
  return [request.http_status >= 400 ? `${request.outcome} ${request.http_status}`
    : request.outcome || "ended", bad ? "bad" : ""];
}

function microseconds(value) {
  return value === null ? "–" : time(value / 1e6);
}

function drawRecent(body) {
  drawTable($("recent"),
    [["when"], ["id", "optional"], ["how"], ["in", "n"], ["out", "n"], ["TTFT", "n"],
      ["whole", "n"], ["nodes", "optional"]],
    body.requests.slice(0, SHOWN).map((request) => {
      const row = cells(make("tr", "pick"), "td", [
        [clock(request.accepted_ms)], [request.id, "mono optional"],
        outcome(request),
        [request.prompt_tokens === null ? "–" : short(request.prompt_tokens), "n"],
        [short(request.output_tokens), "n"], [microseconds(request.first_token_us), "n"],
        [microseconds(request.duration_us), "n"],
        [[request.prefill, request.decode].filter(Boolean).join(" → "), "quiet optional"]]);
      row.tabIndex = 0;
      row.addEventListener("click", () => find(request.id));
      row.addEventListener("keydown", (event) => event.key === "Enter" && find(request.id));
      return row;
    }));
}

/* Each state lasts until the next one; the last one of a running request until now. */
function timeline(request) {
  const steps = [];
  request.states.forEach((entry, i) => {
    if (entry.state === "ended") return;
    const next = request.states[i + 1];
    const end = next ? next.at_ms : Date.now(); // by a clock that may be set back
    steps.push({ name: entry.state, ms: Math.max(0, end - entry.at_ms) });
  });
  return steps;
}

function drawRequest(request) {
  const box = make("div", "found"), [how, kind] = outcome(request);
  const accepted = new Date(request.accepted_ms);
  const title = make("p");
  title.append(make("b", "mono", request.id), document.createTextNode("  "),
    make("span", kind === "bad" ? "bad-text" : "", how),
    make("span", "quiet", `  ${request.endpoint} · ${accepted.toLocaleString()}`));
  const steps = timeline(request);
  const whole = Math.max(1, steps.reduce((sum, step) => sum + step.ms, 0));
  const bar = make("div", "bar"), names = make("div", "legend");
  drawBar(bar, steps.map((step) => step.ms / whole));
  steps.forEach((step, i) => {
    bar.children[i].className = `c${i % 5}`;
    names.append(legend(i % 5, `${step.name} ${step.ms} ms`));
  });
  const facts = [`client's id ${request.client_id}`,
    `${request.prompt_tokens ?? "?"} tokens in`,
    `${request.output_tokens} out, at most ${request.max_tokens ?? "?"}`,
    `first token after ${microseconds(request.first_token_us)}`,
    `whole ${microseconds(request.duration_us)}`];
  if (request.trace_id) facts.push(`trace ${request.trace_id}`);
  if (request.tenant) facts.push(`tenant ${request.tenant}`);
  if (request.model) facts.push(request.model);
  if (request.prefill) facts.push(`prefill ${request.prefill}`);
  if (request.decode) facts.push(`decode ${request.decode}`);
  box.append(title, bar, names, make("p", "quiet", facts.join(" · ")));
  if (request.reason) box.append(make("p", "bad-text", request.reason));
  return box;
}

async function find(id) {
  const found = $("found");
  $("wanted").value = id;
  window.history.replaceState(null, "", `#${encodeURIComponent(id)}`);
  try {
    const body = await get(`/requests/${encodeURIComponent(id)}`);
    found.replaceChildren(...(body.requests.length > 0 ? body.requests.map(drawRequest)
      : [make("p", "quiet", "The journal has no request of that id.")]));
  } catch (error) {
    const text = `The journal could not be asked: ${error.message}`;
    found.replaceChildren(make("p", "bad-text", text));
  }
}

/* An address may name a request behind its #. */
function findNamed() {
  if (location.hash.length > 1) find(decodeURIComponent(location.hash.slice(1)));
}

/* ---- the clockwork ---- */

function draw(status) {
  const last = history[history.length - 1];
  if (last && (last.started_s !== status.started_s || last.now_ms > status.now_ms))
    history.length = 0; // another process, or its clock was set back
  sortWorkers(status);
  history.push(status);
  while (status.now_ms - history[0].now_ms > KEEP_S * 1e3) history.shift();
  drawHeader(status);
  drawTrouble(status, null);
  drawNumbers(status);
  drawChart(status);
  drawStages();
  drawFleet(status);
}

async function poll() {
  if (document.visibilityState !== "hidden") {
    try {
      draw(await get("/status"));
      failing = 0;
    } catch (error) {
      if (++failing > 1)
        drawTrouble(null, `No news of the router: ${error.message} What is below is old.`);
    }
  }
  setTimeout(poll, POLL_MS);
}

async function pollRecent() {
  if (document.visibilityState !== "hidden") {
    try {
      drawRecent(await get("/requests"));
    } catch (error) {
      const text = `No list of requests: ${error.message}`;
      $("recent").replaceChildren(make("caption", "quiet", text));
    }
  }
  setTimeout(pollRecent, RECENT_MS);
}

$("search").addEventListener("submit", (event) => {
  event.preventDefault();
  const id = $("wanted").value.trim();
  if (id) find(id);
});
poll();
pollRecent();
$("knock").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("key", $("key").value.trim());
  $("key").value = "";
});
window.addEventListener("hashchange", findNamed);
findNamed();
