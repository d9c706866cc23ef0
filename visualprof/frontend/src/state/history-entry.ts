// Values of one entry of the browser's history, which return with Back, Forward and a reload but are not in the address.

type Stored = Record<string, unknown>;

function entryValues(): Stored {
  return ((history.state as { visualprof?: Stored } | null)?.visualprof ?? {}) as Stored;
}

/** Return a value of the current entry, undefined if it has none. */
export function readEntry(name: string): unknown {
  return entryValues()[name];
}

export function writeEntry(name: string, value: unknown): void {
  try {
    history.replaceState({ ...(history.state as Stored | null), visualprof: { ...entryValues(), [name]: value } }, "");
  } catch {
    // An embedded report has no history of its own.
  }
}
