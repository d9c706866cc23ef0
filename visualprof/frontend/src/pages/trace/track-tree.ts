// The tracks of a trace in groups: devices, then processes, then counters, then the rest.
import type { Counter, Meta, Track } from "./model";

export interface Item {
  /** `worker.track`: short, stable for a file, and without characters that an address escapes. */
  key: string;
  label: string;
  /** Details that the label omits, for filter and tooltip. */
  detail: string;
  track: Track | null;
  counter: Counter | null;
}

export interface Group {
  key: string;
  label: string;
  items: Item[];
  /** Folded by default. */
  minor: boolean;
}

export interface TrackTexts {
  device: (id: number) => string;
  process: (id: string) => string;
  annotations: (name: string) => string;
  graphs: (name: string) => string;
  track: (name: string) => string;
  counter: (name: string) => string;
  counters: string;
  other: string;
  unnamed: string;
}

/** Profilers add tracks with one event each; they are kept, but folded. */
const MINOR_EVENTS = 2;

function labelOf(track: Track, words: TrackTexts): string {
  const name = track.name.trim() || track.tid.trim();
  // A number alone is not clear. Newer Kineto files write "stream 7" and "thread 42" themselves.
  const plain = words.track(/^-?\d+$/.test(name) ? `${track.kind === "thread" ? "thread" : "stream"} ${name}` : name);
  if (track.kind === "graph") return words.graphs(plain);
  return track.kind === "gpu_annotation" ? words.annotations(plain) : plain || words.unnamed;
}

function groupLabel(tracks: readonly Track[], words: TrackTexts): string {
  const first = tracks[0];
  if (!first) return "";
  if (first.process) return first.process;
  if (first.kind !== "thread" && first.device !== null) return words.device(first.device);
  return words.process(first.pid);
}

export function buildTrackTree(
  { tracks }: Pick<Meta, "tracks">,
  counters: Meta["counters"],
  worker: number,
  words: TrackTexts,
): Group[] {
  const byProcess = new Map<string, Track[]>();
  for (const track of tracks) {
    const process = `${track.process}\n${track.pid}`;
    byProcess.set(process, [...(byProcess.get(process) ?? []), track]);
  }
  const key = (id: number) => `${worker}.${id}`;
  const item = (track: Track): Item => ({
    key: key(track.id),
    label: labelOf(track, words),
    detail: `${track.process} ${track.pid} ${track.tid}`,
    track,
    counter: null,
  });
  const groups: Group[] = [];
  const rest: Item[] = [];
  for (const ofProcess of byProcess.values()) {
    const items = ofProcess.map(item);
    const events = ofProcess.reduce((sum, track) => sum + track.events, 0);
    if (events <= MINOR_EVENTS && byProcess.size > 1 && ofProcess.every((track) => track.kind === "thread"))
      rest.push(...items);
    else groups.push({ key: key(-1 - groups.length), label: groupLabel(ofProcess, words), items, minor: false });
  }
  const onDevice = (group: Group) => group.items.some(({ track }) => track?.kind === "stream");
  groups.sort((a, b) => Number(onDevice(b)) - Number(onDevice(a)));
  if (counters.length > 0) {
    const items = counters.map((counter) => ({
      key: key(counter.id),
      label: words.counter(counter.name.trim()) || words.unnamed,
      detail: `${counter.name} ${counter.process}`,
      track: null,
      counter,
    }));
    groups.push({ key: `${worker}.c`, label: words.counters, items, minor: false });
  }
  if (rest.length > 0) groups.push({ key: `${worker}.o`, label: words.other, items: rest, minor: groups.length > 0 });
  return groups;
}
