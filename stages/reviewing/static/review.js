// Puts the page together: filters, keys, and what happens when rows change.
import { get } from "./api.js";
import { element, isBlocked, save, showRow, startEditor, wouldLose } from "./editor.js";
import { drawList, reveal, startList } from "./list.js";
import { startReplacing } from "./replacing.js";
import { isSaving, send, startSaving, unsaved } from "./saving.js";
import { filterRows, flagCounts, neighbour, reviewed, state, takeAll } from "./state.js";

const LOOK_MS = 3000;
const byId = (id) => document.getElementById(id);

function draw() {
  const done = reviewed();
  byId("progress").max = Math.max(1, state.rows.length);
  byId("progress").value = done;
  byId("reviewed").textContent = `${done} of ${state.rows.length} reviewed`;
  byId("undo").disabled = state.steps === 0;
  byId("found").textContent = `${state.shown.length} of ${state.rows.length} rows`;
  const isNothing = !state.current;
  byId("nothing").hidden = !isNothing;
  byId("nothing").firstElementChild.textContent = state.rows.length === done && state.filter.status === "waiting"
    ? "Every row is reviewed. End the page with Ctrl-C in the terminal; it says what is next."
    : "No row is like that.";
  drawFlags();
  drawList();
  showRow(state.current);
}

function drawFlags() {
  const options = [["", "any"], ...flagCounts().map(([flag, count]) => [`flag:${flag}`, `${flag} (${count})`])];
  if (state.groups.length) options.splice(1, 0, ["copies", `copies (${state.groups.flat().length})`]);
  const select = byId("flag");
  if (select.dataset.shown === JSON.stringify(options)) return;
  select.dataset.shown = JSON.stringify(options);
  select.replaceChildren(...options.map(([value, text]) => {
    const option = element("option", text);
    option.value = value;
    return option;
  }));
  select.value = options.some(([value]) => value === state.filter.flag) ? state.filter.flag : "";
}

function refresh() {
  filterRows();
  if (!state.byId.has(state.current)) state.current = state.shown.length ? state.shown[0].id : null;
  draw();
}

function choose(id, widen = false) {
  if (!id) return;
  if (widen && !state.places.has(id)) clearFilter();
  save();
  open(id);
}

function open(id) {
  state.current = id;
  refresh();
  reveal(id);
  drawList();
}

function go(step) {
  choose(neighbour(step));
}

async function decide(status) {
  const row = state.byId.get(state.current);
  if (!row || isBlocked()) return;
  const text = unsaved.has(row.id) ? unsaved.get(row.id) : row.caption;
  if (status === "ok" && !text.trim()) {
    alarm("This row has no caption: write one, or set it aside.");
    byId("caption").focus();
    return;
  }
  alarm("");
  const next = neighbour(1) || neighbour(-1);
  const saved = save(status);
  if (next) {
    open(next);
  } else if (await saved) {
    state.current = null;
    refresh();
  }
}

async function undo() {
  await save();
  try {
    const values = await send("undo", () => ({}));
    const [first] = values.rows;
    if (Object.keys(values.refused).length) alarm("Not taken back: the row was changed in review.csv meanwhile.");
    if (first) choose(first.id, true);
  } catch (error) {
    failed(error);
  }
}

function clearFilter() {
  Object.assign(state.filter, { status: "", flag: "", words: "" });
  byId("status").value = "";
  byId("flag").value = "";
  byId("search").value = "";
  filterRows();
}

function failed(error, id = null) {
  alarm(error.message, id);
}

function alarm(words, id = null) {
  byId("alarm").hidden = !words;
  byId("alarm").textContent = words;
  if (id && id !== state.current) {
    const button = element("button", "Open that row");
    button.addEventListener("click", () => { alarm(""); choose(id, true); });
    byId("alarm").append(" ", button);
  }
}

async function look() {
  if (document.hidden || isSaving()) return;
  try {
    const { stamp } = await get("stamp");
    if (stamp !== state.stamp && !isSaving()) await reload();
    if (byId("alarm").dataset.from === "look") alarm("");
    byId("alarm").dataset.from = "";
  } catch (error) {
    failed(error);
    byId("alarm").dataset.from = "look";
  }
}

async function reload() {
  takeAll(await get("rows"));
  refresh();
}

const KEYS = {
  j: () => go(1), ArrowDown: () => go(1), k: () => go(-1), ArrowUp: () => go(-1),
  a: () => decide("ok"), s: () => decide("skip"), u: () => undo(),
  e: () => byId("caption").focus(), "/": () => byId("search").focus(), "?": () => byId("help").showModal(),
};

function onKey(event) {
  if (document.querySelector("dialog[open]") || event.isComposing) return;
  const isText = event.target.matches("input, textarea, select");
  if (event.target.id === "caption" && event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    decide("ok");
    return;
  }
  if (isText && event.key === "Escape") event.target.blur();
  if (isText || event.ctrlKey || event.metaKey || event.altKey) return;
  const act = KEYS[event.key] || KEYS[event.key.toLowerCase()];
  if (act && !(event.repeat && "asu".includes(event.key.toLowerCase()))) {
    event.preventDefault();
    act();
  }
}

function filterBy(id, name, kind) {
  byId(id).addEventListener(kind, () => {
    save();
    state.filter[name] = byId(id).value;
    const before = state.current;
    state.current = null;
    filterRows();
    state.current = state.places.has(before) ? before : state.shown.length ? state.shown[0].id : null;
    byId("list").scrollTop = 0;
    draw();
    reveal(state.current);
    drawList();
  });
}

function connect() {
  startList((id) => choose(id));
  startEditor({ failed, choose });
  startSaving(async () => { if (!state.stamp) await reload(); else refresh(); });
  startReplacing();
  filterBy("status", "status", "change");
  filterBy("flag", "flag", "change");
  filterBy("order", "order", "change");
  filterBy("search", "words", "input");
  byId("approve").addEventListener("click", () => decide("ok"));
  byId("skip").addEventListener("click", () => decide("skip"));
  byId("previous").addEventListener("click", () => go(-1));
  byId("next").addEventListener("click", () => go(1));
  byId("undo").addEventListener("click", undo);
  byId("show-all").addEventListener("click", () => { clearFilter(); state.current = null; refresh(); });
  byId("open-help").addEventListener("click", () => byId("help").showModal());
  byId("close-help").addEventListener("click", () => byId("help").close());
  document.addEventListener("keydown", onKey);
  addEventListener("beforeunload", (event) => { if (wouldLose()) event.preventDefault(); });
  addEventListener("focus", look);
  setInterval(look, LOOK_MS);
}

async function start() {
  connect();
  try {
    takeAll(await get("rows"));
  } catch (error) {
    failed(error);
    return;
  }
  filterRows();
  if (!state.shown.length) clearFilter();
  state.current = state.shown.length ? state.shown[0].id : null;
  draw();
}

start();
