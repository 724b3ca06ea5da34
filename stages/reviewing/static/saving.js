// Changes on their way to review.csv, one after the other, and texts that are not there yet.
import { post } from "./api.js";
import { state, takeSome } from "./state.js";

export const unsaved = new Map();
let line = Promise.resolve();
let waiting = 0;
let taken = async () => {};

export function startSaving(onTaken) {
  taken = onTaken;
}

export function isSaving() {
  return waiting > 0;
}

// `make` gives the body when its turn has come: the versions are then those of the save before.
// `settle` gets the answer before the page is drawn anew.
export function send(path, make, settle = () => {}, keepalive = false) {
  waiting += 1;
  const result = line.then(() => post(path, make(), keepalive)).then(async (values) => {
    const isStale = values.from !== state.stamp;
    takeSome(values.rows);
    state.steps = values.steps;
    state.stamp = isStale ? "" : values.stamp;
    settle(values);
    return values;
  });
  line = result.then(() => {}, () => {});
  return result.finally(() => { waiting -= 1; }).then(async (values) => {
    await taken(values);
    return values;
  });
}

export function change(row, wanted) {
  return { id: row.id, version: row.version, ...wanted };
}
