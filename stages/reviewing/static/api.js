// Requests to the page's own address, and what became of them in words.

export class Failure extends Error {}

export async function get(path) {
  return read(await send(path, {}));
}

export async function post(path, body, keepalive = false) {
  const headers = { "Content-Type": "application/json" };
  return read(await send(path, { method: "POST", headers, body: JSON.stringify(body), keepalive }));
}

async function send(path, options) {
  try {
    return await fetch(path, { cache: "no-store", ...options });
  } catch {
    throw new Failure("`latentmill review` does not answer: it was ended. Start it again; what is not saved yet stays on this page.");
  }
}

async function read(response) {
  const text = await response.text();
  let values;
  try {
    values = JSON.parse(text);
  } catch {
    values = { error: text };
  }
  if (!response.ok) throw new Failure(values.error || response.statusText);
  return values;
}
