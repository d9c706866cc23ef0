// The page's state as short texts of the address. `~` and `.` need no escaping there.
import { BASE } from "../../compare/step-alignment";
import type { Range } from "./model";

export function listText(values: readonly string[]): string {
  return values.join("~");
}

export function textList(text: string): string[] {
  return text.split("~").filter(Boolean);
}

function parseInteger(text: string | undefined): number | null {
  return text !== undefined && /^-?\d{1,16}$/.test(text) ? Number(text) : null;
}

export function rangeText(range: Range): string {
  return `${Math.round(range.start)}~${Math.round(range.end)}`;
}

export function textRange(text: string): Range | null {
  const [start, end] = text.split("~").map((part) => parseInteger(part));
  return start !== null && end !== null && start !== undefined && end !== undefined && end > start
    ? { start, end }
    : null;
}

export interface EventId {
  worker: number;
  event: number;
}

export function eventText(id: EventId): string {
  return `${id.worker}.${id.event}`;
}

export function textEvent(text: string): EventId | null {
  const [worker, event] = text.split(".").map((part) => parseInteger(part));
  return worker !== null &&
    event !== null &&
    worker !== undefined &&
    event !== undefined &&
    worker >= BASE &&
    event >= 0
    ? { worker, event }
    : null;
}

export function numbersText(values: readonly number[]): string {
  return values.map((value) => String(Math.round(value))).join("~");
}

export function textNumbers(text: string): number[] {
  return textList(text).flatMap((part) => parseInteger(part) ?? []);
}

/** By worker; zeros are left out. */
export function offsetsText(offsets: ReadonlyMap<number, number>): string {
  return listText(
    [...offsets]
      .filter(([, ns]) => ns !== 0)
      .sort(([a], [b]) => a - b)
      .map(([worker, ns]) => `${worker}.${Math.round(ns)}`),
  );
}

export function textOffsets(text: string): Map<number, number> {
  const pairs = textList(text).map((part) => part.split(".").map((digits) => parseInteger(digits)));
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

export function areaText(area: Area): string {
  return listText([rangeText(area), ...area.tracks]);
}

export function textArea(text: string): Area | null {
  const [start, end, ...tracks] = text.split("~");
  const range = textRange(`${start}~${end}`);
  return range && { ...range, tracks: tracks.filter(Boolean) };
}
