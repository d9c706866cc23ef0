// The visible range of entries: from the first one to the one after the last.
export interface EntryWindow {
  from: number;
  to: number;
}

const MIN_ENTRIES = 8;

/** Return the window within the history, with its width if possible. */
export function limitWindow({ from, to }: EntryWindow, entries: number): EntryWindow {
  const whole = Math.max(entries, 1);
  const width = Math.max(Math.min(MIN_ENTRIES, whole), Math.min(whole, to - from));
  const start = Math.max(0, Math.min(whole - width, from));
  return { from: start, to: start + width };
}

/** Zoom so that the entry `at` keeps its position on the screen. */
export function zoomWindow(shown: EntryWindow, at: number, factor: number, entries: number): EntryWindow {
  const width = Math.max(MIN_ENTRIES, (shown.to - shown.from) * factor);
  const share = (at - shown.from) / (shown.to - shown.from);
  return limitWindow({ from: at - share * width, to: at + (1 - share) * width }, entries);
}

export function moveWindow(shown: EntryWindow, by: number, entries: number): EntryWindow {
  return limitWindow({ from: shown.from + by, to: shown.to + by }, entries);
}

export function formatWindow({ from, to }: EntryWindow): string {
  return `${Math.floor(from)}~${Math.ceil(to)}`;
}

export function parseWindow(text: string, entries: number): EntryWindow {
  const parts = /^(\d{1,15})~(\d{1,15})$/.exec(text);
  const [from, to] = [Number(parts?.[1] ?? 0), Number(parts?.[2] ?? entries)];
  return to > from ? limitWindow({ from, to }, entries) : { from: 0, to: Math.max(entries, 1) };
}
