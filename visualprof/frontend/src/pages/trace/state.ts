// The page's state: all of it lives in the address, so that a copied link shows the same.
import { computed, ref } from "vue";
import { query_value, run, useParameter, worker } from "../../state";
import { WAYS, type Way } from "../../compare/steps";
import {
  area_text,
  event_text,
  list_text,
  numbers_text,
  offsets_text,
  text_area,
  text_event,
  text_list,
  text_numbers,
  text_offsets,
  type Area,
  type EventId,
} from "./url";

/** Parameters that mean something only for the run that they were chosen in. */
export const OWN_KEYS = ["win", "sel", "pin", "fold", "order", "ranks", "off", "marks", "area", "tab", "y"] as const;
const ALL = "all";

export type State = ReturnType<typeof useTimelineState>;

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
  const own = computed(() =>
    Math.max(
      0,
      workers.value.findIndex((one) => one.id === worker.value?.id),
    ),
  );
  const list = (parameter: typeof pin) =>
    computed({
      get: () => text_list(parameter.value),
      set: (values: string[]) => (parameter.value = list_text(values)),
    });

  const shown = computed<number[]>({
    get: () => {
      if (ranks.value === ALL) return workers.value.map((_, place) => place);
      const chosen = text_numbers(ranks.value).filter((place) => place < workers.value.length);
      return chosen.length > 0 ? chosen : [own.value];
    },
    set: (places) => {
      const sorted = [...places].sort((a, b) => a - b);
      const only_own = sorted.length === 1 && sorted[0] === own.value;
      ranks.value = only_own
        ? ""
        : sorted.length === workers.value.length && sorted.length > 1
          ? ALL
          : numbers_text(sorted);
    },
  });

  const pins = list(pin);
  const toggled = list(fold);
  const toggle = (values: string[], key: string) =>
    values.includes(key) ? values.filter((one) => one !== key) : [...values, key];

  return {
    win,
    tab,
    /** How the base stands beside the shown run. */
    way: computed<Way>({
      get: () => WAYS.find((one) => one === align.value) ?? "step",
      set: (way) => (align.value = way),
    }),
    scroll: computed({
      get: () => Number(y.value) || 0,
      set: (px: number) => (y.value = px ? String(Math.round(px)) : ""),
    }),
    search,
    filter,
    shown,
    workers,
    own,
    pins,
    toggled: computed(() => new Set(toggled.value)),
    order: list(order),
    selected: computed<EventId | null>({
      get: () => text_event(sel.value),
      set: (id) => (sel.value = id ? event_text(id) : ""),
    }),
    area: computed<Area | null>({
      get: () => text_area(area.value),
      set: (one) => (area.value = one ? area_text(one) : ""),
    }),
    markers: computed<number[]>({
      get: () => text_numbers(marks.value),
      set: (all) => (marks.value = numbers_text([...all].sort((a, b) => a - b))),
    }),
    offsets: computed({
      get: () => text_offsets(off.value),
      set: (all: Map<number, number>) => (off.value = offsets_text(all)),
    }),
    hide_empty: computed({
      get: () => empty.value === "hide",
      set: (hide: boolean) => (empty.value = hide ? "hide" : ""),
    }),
    path: computed({ get: () => path.value === "on", set: (on: boolean) => (path.value = on ? "on" : "") }),
    toggle_pin: (key: string) => (pins.value = toggle(pins.value, key)),
    toggle_fold: (key: string) => (toggled.value = toggle(toggled.value, key)),
    set_toggled: (keys: string[]) => (toggled.value = keys),
  };
}

let left: { context: string; own: string } | null = null;

export function own_text(): string {
  return OWN_KEYS.map((key) => query_value(key) ?? "").join(" ");
}

/** Remembers for which file the own parameters were chosen. */
export function remember(context: string): void {
  left = { context, own: own_text() };
}

/** True when they were chosen for another file and came along by accident: tabs carry parameters over. */
export function are_stale(context: string): boolean {
  return left !== null && left.context !== context && left.own === own_text() && left.own.trim() !== "";
}

/** As the user dragged it; not worth an address. */
export const drawer_height = ref(270);
