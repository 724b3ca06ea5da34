// The open row: its picture, its caption as it is typed, and its tokens.
import { Failure, get, post } from "./api.js";
import { address } from "./list.js";
import { change, isSaving, send, unsaved } from "./saving.js";
import { groupOf, state } from "./state.js";

const TYPED_MS = 600;
const COUNT_MS = 120;
const byId = (id) => document.getElementById(id);
const area = byId("caption");
const stuck = new Set();
let open = null;
let typing = 0;
let counting = 0;
let counted = 0;
let tell = { failed: () => {}, choose: () => {} };

export function startEditor(handlers) {
  tell = handlers;
  area.addEventListener("input", () => {
    unsaved.set(open.id, area.value);
    say("not saved yet");
    clearTimeout(typing);
    typing = setTimeout(() => save(), TYPED_MS);
    clearTimeout(counting);
    counting = setTimeout(count, COUNT_MS);
  });
  area.addEventListener("blur", () => save());
  addEventListener("pagehide", () => save(null, true));
  document.addEventListener("visibilitychange", () => { if (document.hidden) save(); });
  byId("image").addEventListener("error", explainPicture);
  byId("keep-mine").addEventListener("click", keepMine);
  byId("take-theirs").addEventListener("click", takeTheirs);
}

// Opens a row, or draws the open one again after rows changed; what is being typed stays.
export function showRow(id) {
  const row = state.byId.get(id);
  byId("one").hidden = !row;
  if (!row) { open = null; return; }
  if (!open || open.id !== id) {
    open = { id, version: row.version, base: row.caption, goesOn: false };
    area.value = unsaved.has(id) ? unsaved.get(id) : row.caption;
    drawPicture(row);
    say("");
    count();
  } else if (row.version !== open.version && !unsaved.has(id)) {
    Object.assign(open, { version: row.version, base: row.caption, goesOn: false });
    if (area.value !== row.caption) { area.value = row.caption; count(); }
  }
  drawFacts(row);
  drawConflict(row);
  drawTwins(row);
}

// Saves what was typed, and `status` where a person decides; false when it was refused.
export async function save(status = null, keepalive = false) {
  clearTimeout(typing);
  if (!open) return true;
  const session = open;
  const text = unsaved.get(session.id);
  const isTyped = text !== undefined && text !== session.base;
  if (!isTyped) unsaved.delete(session.id);
  if (isConflict(session) || (!isTyped && !status)) return !isConflict(session);
  const wanted = { goes_on: session.goesOn && !status };
  if (isTyped) wanted.caption = text;
  if (status) wanted.status = status;
  say("saving …");
  try {
    const make = () => ({ changes: [change(session, wanted)] });
    const settle = (values) => settled(session, values, isTyped && !status, text);
    const values = await send("change", make, settle, keepalive);
    return !values.refused[session.id];
  } catch (error) {
    say("not saved");
    stuck.add(session.id);
    tell.failed(error);
    return false;
  }
}

function settled(session, values, goesOn, text) {
  const row = state.byId.get(session.id);
  const reason = values.refused[session.id];
  if (session === open) say(reason ? "not saved" : "saved");
  if (reason) {
    stuck.add(session.id);
    tell.failed(new Failure(`${row.image}: ${reason}.`), session.id);
    return;
  }
  stuck.delete(session.id);
  Object.assign(session, { version: row.version, base: row.caption, goesOn });
  if (unsaved.get(session.id) === text) unsaved.delete(session.id);
}

// Whether a text would be lost with the page: one that could not be saved, or waits for its turn.
export function wouldLose() {
  return [...unsaved.keys()].some((id) => stuck.has(id) || isSaving());
}

export function isBlocked() {
  return open !== null && isConflict(open);
}

function isConflict(session) {
  const row = state.byId.get(session.id);
  return unsaved.has(session.id) && row.version !== session.version;
}

function drawConflict(row) {
  const box = byId("conflict");
  box.hidden = !isConflict(open);
  box.firstElementChild.textContent =
    `This row was changed in review.csv meanwhile; it now says (${row.status}): ${row.caption || "no caption"}`;
}

function keepMine() {
  open.version = state.byId.get(open.id).version;
  byId("conflict").hidden = true;
  save();
}

function takeTheirs() {
  unsaved.delete(open.id);
  stuck.delete(open.id);
  const id = open.id;
  open = null;
  showRow(id);
}

function say(words) {
  byId("saved").textContent = words;
}

async function count() {
  const asked = ++counted;
  const id = open.id;
  try {
    const values = await post("tokens", { id, caption: area.value });
    if (asked !== counted || !open || open.id !== id) return;
    byId("tokens").textContent = `${values.tokens} of ${values.most} tokens`;
    byId("tokens").className = values.cut ? "long" : "";
    const [read, cut] = byId("trained").children;
    read.textContent = values.read;
    cut.textContent = values.cut;
    byId("trained").hidden = !values.cut && values.read === area.value.trim();
  } catch (error) {
    tell.failed(error);
  }
}

function drawPicture(row) {
  const image = byId("image");
  byId("image-reason").hidden = true;
  image.hidden = !state.pictures[row.id];
  if (state.pictures[row.id]) {
    image.src = address(row.id, "large");
    image.alt = row.image;
    return;
  }
  image.removeAttribute("src");
  showReason("review.csv has a row for it, but the picture is not in the set");
}

async function explainPicture() {
  const id = open && open.id;
  if (!id || !state.pictures[id]) return;
  try {
    await get(address(id, "large"));
  } catch (error) {
    if (open && open.id === id) showReason(error.message);
  }
}

function showReason(words) {
  byId("image").hidden = true;
  byId("image-reason").hidden = false;
  byId("image-reason").textContent = words;
}

function drawFacts(row) {
  const status = byId("row-status");
  status.textContent = row.status;
  status.className = row.status;
  byId("row-flags").replaceChildren(...row.flags.flatMap((flag) => [element("span", flag, "flag"), " "]));
  const picture = state.pictures[row.id];
  const size = picture ? ` (${picture.width} × ${picture.height} px)` : "";
  const facts = [
    ["picture", row.image + size],
    ["CLIP score", row.clip_score === null ? "" : row.clip_score.toFixed(3)],
    ["caption by", { file: "a caption file", blip: "the captioner", person: "a person" }[row.source]],
    ["proposed", row.draft === row.caption ? "" : row.draft],
    ["note", row.note],
    ["id", row.id],
  ];
  const shown = facts.filter(([, text]) => text);
  byId("facts").replaceChildren(...shown.flatMap(([name, text]) => [element("dt", name), element("dd", text)]));
}

function drawTwins(row) {
  const group = groupOf(row.id);
  byId("twins").hidden = !group;
  const figures = (group || []).filter((member) => state.byId.has(member.id)).map((member) => twin(member, row));
  byId("twins").lastElementChild.replaceChildren(...figures);
}

function twin(member, here) {
  const row = state.byId.get(member.id);
  const figure = element("figure", "", member.id === here.id ? "here" : "");
  if (state.pictures[row.id]) {
    const image = element("img", "");
    image.src = address(row.id, "large");
    image.alt = row.image;
    figure.append(image);
  }
  const picture = state.pictures[row.id];
  const size = picture ? `${picture.width} × ${picture.height} px` : "";
  const relation = { best: "best copy", "same-pixels": "same pixels", near: "nearly the same", mirrored: "mirrored" };
  figure.append(
    element("p", `${relation[member.relation] || member.relation}, ${size}`),
    element("p", row.status, row.status),
    element("p", row.caption || "no caption"),
    element("p", row.image, "quiet"),
  );
  if (member.id !== here.id) {
    const go = element("button", "Open");
    go.addEventListener("click", () => tell.choose(row.id, true));
    figure.append(go, " ");
  }
  if (row.status !== "skip") {
    const aside = element("button", "Set aside");
    aside.addEventListener("click", () => setAside(row));
    figure.append(aside);
  }
  return figure;
}

async function setAside(row) {
  try {
    await send("change", () => ({ changes: [change(row, { status: "skip" })] }));
  } catch (error) {
    tell.failed(error);
  }
}

export function element(name, text, kind = "") {
  const node = document.createElement(name);
  node.textContent = text;
  if (name === "button") node.type = "button";
  if (kind) node.className = kind;
  return node;
}
