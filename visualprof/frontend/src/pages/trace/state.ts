// The page's state. All of it is in the address, so that a copied link shows the same.
import { computed, ref } from "vue";
import { queryValue, run, useParameter, worker } from "../../state";
import { ALIGNMENT_MODES, type AlignmentMode } from "../../compare/step-alignment";
import {
  formatArea,
  formatEvent,
  formatList,
  formatNumbers,
  formatOffsets,
  parseArea,
  parseEvent,
  parseList,
  parseNumbers,
  parseOffsets,
  type Area,
  type EventId,
} from "./url-state";

/** Parameters that are valid only for the run in which they were chosen. */
export const RUN_SPECIFIC_KEYS = [
  "win",
  "sel",
  "pin",
  "fold",
  "order",
  "ranks",
  "off",
  "marks",
  "area",
  "tab",
  "y",
] as const;
const ALL_RANKS = "all";

export type TimelineState = ReturnType<typeof useTimelineState>;

export function useTimelineState() {
  const win = useParameter("win", "");
  const sel = useParameter("sel", "");
  const pin = useParameter("pin", "");
  const fold = useParameter("fold", "");
  const order = useParameter("order", "");
  const ranks = useParameter("ranks", "");
  const off = useParameter("off", "");
  const marks = useParameter("marks", "");
  const area = useParameter("area", "");
  const tab = useParameter("tab", "");
  const y = useParameter("y", "");
  const align = useParameter("align", "step");
  const search = useParameter("search", "");
  const filter = useParameter("tracks", "");
  const empty = useParameter("empty", "");
  const path = useParameter("path", "");

  const workers = computed(() => run.value?.workers ?? []);
  const mainWorker = computed(() =>
    Math.max(
      0,
      workers.value.findIndex((candidate) => candidate.id === worker.value?.id),
    ),
  );
  const list = (parameter: typeof pin) =>
    computed({
      get: () => parseList(parameter.value),
      set: (values: string[]) => (parameter.value = formatList(values)),
    });

  const shownWorkers = computed<number[]>({
    get: () => {
      if (ranks.value === ALL_RANKS) return workers.value.map((_, index) => index);
      const chosen = parseNumbers(ranks.value).filter((index) => index < workers.value.length);
      return chosen.length > 0 ? chosen : [mainWorker.value];
    },
    set: (indexes) => {
      const sorted = [...indexes].sort((a, b) => a - b);
      const onlyOwn = sorted.length === 1 && sorted[0] === mainWorker.value;
      ranks.value = onlyOwn
        ? ""
        : sorted.length === workers.value.length && sorted.length > 1
          ? ALL_RANKS
          : formatNumbers(sorted);
    },
  });

  const pins = list(pin);
  const toggled = list(fold);
  const toggle = (values: string[], key: string) =>
    values.includes(key) ? values.filter((entry) => entry !== key) : [...values, key];

  return {
    win,
    tab,
    /** How the base is aligned with the current run. */
    way: computed<AlignmentMode>({
      get: () => ALIGNMENT_MODES.find((mode) => mode === align.value) ?? "step",
      set: (mode) => (align.value = mode),
    }),
    scroll: computed({
      get: () => Number(y.value) || 0,
      set: (px: number) => (y.value = px ? String(Math.round(px)) : ""),
    }),
    search,
    filter,
    shown: shownWorkers,
    workers,
    own: mainWorker,
    pins,
    toggled: computed(() => new Set(toggled.value)),
    order: list(order),
    selected: computed<EventId | null>({
      get: () => parseEvent(sel.value),
      set: (id) => (sel.value = id ? formatEvent(id) : ""),
    }),
    area: computed<Area | null>({
      get: () => parseArea(area.value),
      set: (newArea) => (area.value = newArea ? formatArea(newArea) : ""),
    }),
    markers: computed<number[]>({
      get: () => parseNumbers(marks.value),
      set: (times) => (marks.value = formatNumbers([...times].sort((a, b) => a - b))),
    }),
    offsets: computed({
      get: () => parseOffsets(off.value),
      set: (byWorker: Map<number, number>) => (off.value = formatOffsets(byWorker)),
    }),
    hideEmpty: computed({
      get: () => empty.value === "hide",
      set: (hide: boolean) => (empty.value = hide ? "hide" : ""),
    }),
    path: computed({ get: () => path.value === "on", set: (on: boolean) => (path.value = on ? "on" : "") }),
    togglePin: (key: string) => (pins.value = toggle(pins.value, key)),
    toggleFold: (key: string) => (toggled.value = toggle(toggled.value, key)),
    setToggled: (keys: string[]) => (toggled.value = keys),
  };
}

let left: { context: string; own: string } | null = null;

export function runSpecificText(): string {
  return RUN_SPECIFIC_KEYS.map((key) => queryValue(key) ?? "").join(" ");
}

/** Remember the file for which these parameters were chosen. */
export function rememberOwner(context: string): void {
  left = { context, own: runSpecificText() };
}

/** Whether they were chosen for another file: tabs carry parameters over. */
export function areStale(context: string): boolean {
  return left !== null && left.context !== context && left.own === runSpecificText() && left.own.trim() !== "";
}

/** Height set by the user; not kept in the address. */
export const drawerHeight = ref(270);
