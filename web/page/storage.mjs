// Storage, locks and service workers, which not every page gets: over http from another machine
// there are none, and with site data blocked, reading the property or using it throws. The page
// accesses them only here; what is not available is null.
const attempt = (read) => {
  try {
    return read() ?? null;
  } catch {
    return null;
  }
};

export const session = attempt(() => self.sessionStorage);
export const locks = attempt(() => navigator.locks);
export const serviceWorkers = attempt(() => navigator.serviceWorker);

const local = attempt(() => self.localStorage);

// Values that this browser keeps for the page; without a storage, only until it is left.
export const store = {
  read: (key) => attempt(() => JSON.parse(local.getItem(key))),
  // Returns whether there was room.
  write: (key, value) => attempt(() => {
    local.setItem(key, JSON.stringify(value));
    return true;
  }) ?? false,
};

export async function openCache(name) {
  try {
    return await caches.open(name);
  } catch {
    return null;
  }
}

export const dropCache = (name) => attempt(() => caches.delete(name))?.catch(() => false);

// Asks the browser not to clear the storage; a worker cannot ask.
export const persist = () => attempt(() => navigator.storage.persist())?.catch(() => false);

// A message for the user about what this window lacks; "" if nothing is missing.
export async function lacking() {
  if (!self.isSecureContext) {
    return "This page came over http from another machine, so the browser gives it no storage, and models are " +
      "downloaded again at every visit. Over https, or on localhost, they are kept.";
  }
  if (await openCache("halfbyte-start")) return "";
  return "This browser keeps no data for this site, so models are downloaded again at every visit. Allow site data to keep them.";
}
