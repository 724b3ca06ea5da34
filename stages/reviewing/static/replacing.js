// Find and replace: first what would change, row by row, then one step that can be undone.
import { post } from "./api.js";
import { element } from "./editor.js";
import { change, send } from "./saving.js";
import { state } from "./state.js";

const byId = (id) => document.getElementById(id);
let found = [];

export function startReplacing() {
  byId("open-replace").addEventListener("click", () => { forget(); byId("replace").showModal(); });
  byId("close-replace").addEventListener("click", () => byId("replace").close());
  byId("preview").addEventListener("click", preview);
  byId("replace-all").addEventListener("click", replaceAll);
  for (const id of ["find", "by", "regex"]) byId(id).addEventListener("input", forget);
  byId("find").addEventListener("keydown", (event) => { if (event.key === "Enter") preview(); });
  byId("by").addEventListener("keydown", (event) => { if (event.key === "Enter") preview(); });
  byId("replacements").addEventListener("change", tell);
}

function forget() {
  found = [];
  byId("replacements").replaceChildren();
  byId("replace-says").textContent = "";
  byId("replace-all").disabled = true;
}

async function preview() {
  forget();
  const rule = { find: byId("find").value, by: byId("by").value, regex: byId("regex").checked };
  try {
    const values = await post("replacements", { rule, ids: state.shown.map((row) => row.id) });
    found = values.found;
  } catch (error) {
    byId("replace-says").textContent = error.message;
    return;
  }
  byId("replacements").replaceChildren(...found.map(line));
  tell();
}

function line(one) {
  const item = element("li", "");
  const label = element("label", "");
  const tick = element("input", "");
  tick.type = "checkbox";
  tick.checked = true;
  const [before, after] = differing(state.byId.get(one.id).caption, one.after);
  label.append(tick, before, after);
  item.append(label);
  return item;
}

// Both texts with the part in which they differ marked.
function differing(before, after) {
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start++;
  let end = 0;
  const most = Math.min(before.length, after.length) - start;
  while (end < most && before[before.length - 1 - end] === after[after.length - 1 - end]) end++;
  const mark = (text, kind) => {
    const node = element("span", text.slice(0, start));
    node.append(element(kind, text.slice(start, text.length - end)), text.slice(text.length - end));
    return node;
  };
  return [mark(before, "del"), mark(after, "ins")];
}

function chosen() {
  const ticks = [...byId("replacements").querySelectorAll("input")];
  return found.filter((_, place) => ticks[place].checked);
}

function tell() {
  const number = chosen().length;
  byId("replace-says").textContent = found.length
    ? `${number} of ${found.length} captions are changed` : "no caption of the rows that are shown holds it";
  byId("replace-all").disabled = number === 0;
}

async function replaceAll() {
  byId("replace-all").disabled = true;
  const changes = chosen().map((one) => change(one, { caption: one.after, reword: true }));
  try {
    const values = await send("change", () => ({ changes }));
    const refused = Object.keys(values.refused).length;
    forget();
    byId("replace-says").textContent = `${changes.length - refused} captions changed`
      + (refused ? `, ${refused} not: their rows were changed in review.csv meanwhile` : "");
  } catch (error) {
    byId("replace-says").textContent = error.message;
  }
}
