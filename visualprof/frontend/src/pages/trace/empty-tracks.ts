// Finds tracks that are empty in the window, with one or two coarse tiles per group, when the window is at rest.
import { fetchApi } from "../../api/client";
import { onScopeDispose, shallowRef, watch, type ShallowRef } from "vue";
import { tileLevel, tilesIn } from "./tile-levels";
import type { Range } from "./model";
import type { TraceSource } from "./trace-source";
import { decodeTile, laneRange, type SliceTile } from "./tile";

const PAUSE_MS = 300;
const BUCKETS = 128;

async function occupiedLanes(source: TraceSource, group: number, range: Range): Promise<Set<string>> {
  const start = range.start - source.offset;
  const end = range.end - source.offset;
  const level = Math.min(source.topLevel, tileLevel((end - start) / BUCKETS));
  const [first, last] = tilesIn(start, end, level, source.meta.duration_ns);
  const busy = new Set<string>();
  for (let index = first; index <= last; index += 1) {
    const response = await fetchApi(source.tileRequest("g", group, level, index, 0).url);
    const tile = decodeTile(await response.arrayBuffer(), level, index) as SliceTile;
    const size = 2 ** level;
    const origin = index * size * 256;
    for (const track of source.meta.tracks) {
      if (track.group !== group || busy.has(`${source.id.worker}.${track.id}`)) continue;
      for (let lane = 0; lane < track.lanes; lane += 1) {
        const [a, b] = laneRange(tile, track.group_lane + lane);
        for (let i = a; i < b; i += 1) {
          if (origin + (tile.start[i] ?? 0) * size < end && origin + (tile.end[i] ?? 0) * size >= start)
            busy.add(`${source.id.worker}.${track.id}`);
        }
      }
    }
  }
  return busy;
}

export function useEmptyTracks(
  sources: ShallowRef<TraceSource[]>,
  windowOf: ShallowRef<Range>,
  enabled: () => boolean,
) {
  const empty = shallowRef<ReadonlySet<string>>(new Set());
  let judged = "";
  let timer = 0;

  async function updateEmpty(): Promise<void> {
    const range = windowOf.value;
    const key = `${range.start} ${range.end} ${sources.value.map((source) => `${source.id.worker}@${source.offset}`).join()}`;
    if (key === judged) return;
    judged = key;
    const tracks = sources.value.flatMap((source) => source.meta.tracks.map((track) => ({ source, track })));
    const groups = new Map(
      tracks.map(({ source, track }) => [`${source.id.worker} ${track.group}`, { source, group: track.group }]),
    );
    try {
      const busy = await Promise.all(
        [...groups.values()].map(({ source, group }) => occupiedLanes(source, group, range)),
      );
      if (judged !== key) return;
      const union = new Set(busy.flatMap((keys) => [...keys]));
      empty.value = new Set(
        tracks.map(({ source, track }) => `${source.id.worker}.${track.id}`).filter((track) => !union.has(track)),
      );
    } catch {
      judged = "";
    }
  }

  function refreshEmpty(): void {
    if (!enabled()) return;
    clearTimeout(timer);
    timer = window.setTimeout(() => void updateEmpty(), PAUSE_MS);
  }

  watch(
    enabled,
    (on) => {
      judged = "";
      empty.value = new Set();
      if (on) refreshEmpty();
    },
    { immediate: true },
  );
  onScopeDispose(() => clearTimeout(timer));
  return { isEmpty: (key: string) => empty.value.has(key), refreshEmpty };
}
