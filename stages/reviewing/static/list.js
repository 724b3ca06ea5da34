// The rows beside the picture: only those in sight are in the document.
import { state } from "./state.js";

const ROW_PX = 76;
const list = document.getElementById("list");
const room = document.getElementById("room");
const nodes = new Map();
let choose = () => {};
let asked = 0;

export function startList(onChoose) {
  choose = onChoose;
  list.addEventListener("scroll", soon);
  addEventListener("resize", soon);
  list.addEventListener("click", (event) => {
    const node = event.target.closest(".row");
    if (node) choose(node.dataset.id);
  });
}

export function reveal(id) {
  const place = state.places.get(id);
  if (place === undefined) return;
  const top = place * ROW_PX;
  if (top < list.scrollTop) list.scrollTop = top;
  if (top + ROW_PX > list.scrollTop + list.clientHeight) list.scrollTop = top + ROW_PX - list.clientHeight;
}

export function drawList() {
  room.style.height = `${state.shown.length * ROW_PX}px`;
  const first = Math.max(0, Math.floor(list.scrollTop / ROW_PX) - 4);
  const last = Math.min(state.shown.length, Math.ceil((list.scrollTop + list.clientHeight) / ROW_PX) + 4);
  const wanted = new Map();
  for (let place = first; place < last; place++) wanted.set(state.shown[place].id, place);
  for (const [id, node] of nodes) {
    if (!wanted.has(id)) {
      node.remove();
      nodes.delete(id);
    }
  }
  for (const [id, place] of wanted) drawRow(state.byId.get(id), place);
}

function soon() {
  if (!asked) asked = requestAnimationFrame(() => { asked = 0; drawList(); });
}

function drawRow(row, place) {
  let node = nodes.get(row.id);
  if (!node) {
    node = makeRow(row);
    nodes.set(row.id, node);
    room.append(node);
  }
  node.style.top = `${place * ROW_PX}px`;
  node.className = `row is-${row.status}`;
  node.setAttribute("aria-selected", String(row.id === state.current));
  const [words, about] = node.lastChild.children;
  words.textContent = row.caption || "no caption";
  const flags = row.flags.length ? ` · ${row.flags.join(" ")}` : "";
  about.textContent = row.status + (row.clip_score === null ? "" : ` · ${row.clip_score.toFixed(2)}`) + flags;
  about.className = `words ${row.status}`;
  about.style.webkitLineClamp = "1";
}

function makeRow(row) {
  const node = document.createElement("div");
  node.dataset.id = row.id;
  node.setAttribute("role", "option");
  const image = document.createElement("img");
  image.alt = "";
  image.loading = "lazy";
  if (state.pictures[row.id]) image.src = address(row.id, "small");
  const text = document.createElement("div");
  const words = document.createElement("div");
  words.className = "words";
  text.append(words, document.createElement("div"));
  node.append(image, text);
  return node;
}

export function address(id, size) {
  return `picture/${encodeURIComponent(id)}/${size}?${state.pictures[id].pixels}`;
}
