// The page's state as short texts of the address. `~` and `.` need no escaping there.
import { BASE } from "../../compare/steps";
import type { Range } from "./model";

export function list_text(values: readonly string[]): string {
  return values.join("~");
}

export function text_list(text: string): string[] {
  return text.split("~").filter(Boolean);
}

function whole(text: string | undefined): number | null {
  return text !== undefined && /^-?\d{1,16}$/.test(text) ? Number(text) : null;
}

export function range_text(range: Range): string {
  return `${Math.round(range.start)}~${Math.round(range.end)}`;
}

export function text_range(text: string): Range | null {
  const [start, end] = text.split("~").map((part) => whole(part));
  return start !== null && end !== null && start !== undefined && end !== undefined && end > start
    ? { start, end }
    : null;
}

export interface EventId {
  worker: number;
  event: number;
}

export function event_text(id: EventId): string {
  return `${id.worker}.${id.event}`;
}

export function text_event(text: string): EventId | null {
  const [worker, event] = text.split(".").map((part) => whole(part));
  return worker !== null &&
    event !== null &&
    worker !== undefined &&
    event !== undefined &&
    worker >= BASE &&
    event >= 0
    ? { worker, event }
    : null;
}

export function numbers_text(values: readonly number[]): string {
  return values.map((value) => String(Math.round(value))).join("~");
}

export function text_numbers(text: string): number[] {
  return text_list(text).flatMap((part) => whole(part) ?? []);
}

/** By worker; zeros are left out. */
export function offsets_text(offsets: ReadonlyMap<number, number>): string {
  return list_text(
    [...offsets]
      .filter(([, ns]) => ns !== 0)
      .sort(([a], [b]) => a - b)
      .map(([worker, ns]) => `${worker}.${Math.round(ns)}`),
  );
}

export function text_offsets(text: string): Map<number, number> {
  const pairs = text_list(text).map((part) => part.split(".").map((each) => whole(each)));
  return new Map(
    pairs.flatMap(([worker, ns]) =>
      typeof worker === "number" && typeof ns === "number" ? [[worker, ns] as const] : [],
    ),
  );
}

/** Area selections name their tracks after the range: `10~90~0.3~0.5`; none means all. */
export interface Area extends Range {
  tracks: string[];
}

export function area_text(area: Area): string {
  return list_text([range_text(area), ...area.tracks]);
}

export function text_area(text: string): Area | null {
  const [start, end, ...tracks] = text.split("~");
  const range = text_range(`${start}~${end}`);
  return range && { ...range, tracks: tracks.filter(Boolean) };
}
