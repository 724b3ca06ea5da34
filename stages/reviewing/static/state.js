// What the page knows: all rows, which of them are shown, and the one that is open.

export const state = {
  rows: [], byId: new Map(), pictures: {}, groups: [], stamp: "", steps: 0,
  shown: [], places: new Map(), current: null,
  filter: { status: "waiting", flag: "", words: "", order: "" },
};

const waits = (row) => row.status === "draft" || row.status === "check";

export function takeAll(values) {
  Object.assign(state, { pictures: values.pictures, groups: values.groups, steps: values.steps });
  state.stamp = values.stamp;
  state.rows = values.rows;
  state.byId = new Map(values.rows.map((row) => [row.id, row]));
}

export function takeSome(rows) {
  for (const row of rows) {
    const known = state.byId.get(row.id);
    if (known) Object.assign(known, row);
  }
}

export function reviewed() {
  return state.rows.filter((row) => !waits(row)).length;
}

export function flagCounts() {
  const counts = new Map();
  for (const row of state.rows) for (const flag of row.flags) counts.set(flag, (counts.get(flag) || 0) + 1);
  return [...counts].sort((one, other) => other[1] - one[1] || one[0].localeCompare(other[0]));
}

export function groupOf(id) {
  return state.groups.find((members) => members.some((member) => member.id === id)) || null;
}

// The open row stays among the others until it is left, also when it has just been decided.
export function filterRows() {
  const { status, flag, words, order } = state.filter;
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const copies = flag === "copies" ? new Set(state.groups.flat().map((member) => member.id)) : null;
  state.shown = state.rows.filter((row) => row.id === state.current || ((!status || (status === "waiting" ? waits(row) : row.status === status)) &&
    (!flag || (copies ? copies.has(row.id) : row.flags.includes(flag.slice(5)))) &&
    holds(row, wanted)));
  if (copies) bringTogether();
  if (order === "score") state.shown.sort((one, other) => score(one) - score(other));
  if (order === "tokens") state.shown.sort((one, other) => (other.tokens || 0) - (one.tokens || 0));
  state.places = new Map(state.shown.map((row, place) => [row.id, place]));
}

function bringTogether() {
  const place = new Map(state.groups.flat().map((member, at) => [member.id, at]));
  state.shown.sort((one, other) => (place.get(one.id) ?? -1) - (place.get(other.id) ?? -1));
}

function score(row) {
  return row.clip_score === null ? Number.MAX_VALUE : row.clip_score;
}

function holds(row, words) {
  if (!words.length) return true;
  const text = `${row.caption}\n${row.image}\n${row.id}\n${row.note}\n${row.flags.join(" ")}`.toLowerCase();
  return words.every((word) => text.includes(word));
}

// The id beside the open row.
export function neighbour(step) {
  const place = state.places.get(state.current);
  if (place === undefined) return state.shown.length ? state.shown[0].id : null;
  const next = state.shown[place + step];
  return next ? next.id : null;
}
