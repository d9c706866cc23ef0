// The page's state as short texts for the address, in which `~` and `.` need no escaping.
import { BASE } from "../../compare/step-alignment";
import type { Range } from "./model";

export function formatList(values: readonly string[]): string {
  return values.join("~");
}

export function parseList(text: string): string[] {
  return text.split("~").filter(Boolean);
}

function parseInteger(text: string | undefined): number | null {
  return text !== undefined && /^-?\d{1,16}$/.test(text) ? Number(text) : null;
}

export function formatRange(range: Range): string {
  return `${Math.round(range.start)}~${Math.round(range.end)}`;
}

export function parseRange(text: string): Range | null {
  const [start, end] = text.split("~").map((part) => parseInteger(part));
  return start !== null && end !== null && start !== undefined && end !== undefined && end > start
    ? { start, end }
    : null;
}

export interface EventId {
  worker: number;
  event: number;
}

export function formatEvent(id: EventId): string {
  return `${id.worker}.${id.event}`;
}

export function parseEvent(text: string): EventId | null {
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

export function formatNumbers(values: readonly number[]): string {
  return values.map((value) => String(Math.round(value))).join("~");
}

export function parseNumbers(text: string): number[] {
  return parseList(text).flatMap((part) => parseInteger(part) ?? []);
}

/** Per worker; zeros are omitted. */
export function formatOffsets(offsets: ReadonlyMap<number, number>): string {
  return formatList(
    [...offsets]
      .filter(([, ns]) => ns !== 0)
      .sort(([a], [b]) => a - b)
      .map(([worker, ns]) => `${worker}.${Math.round(ns)}`),
  );
}

export function parseOffsets(text: string): Map<number, number> {
  const pairs = parseList(text).map((part) => part.split(".").map((digits) => parseInteger(digits)));
  return new Map(
    pairs.flatMap(([worker, ns]) =>
      typeof worker === "number" && typeof ns === "number" ? [[worker, ns] as const] : [],
    ),
  );
}

/** Selected areas name their tracks after the range: `10~90~0.3~0.5`; without tracks, all are meant. */
export interface Area extends Range {
  tracks: string[];
}

export function formatArea(area: Area): string {
  return formatList([formatRange(area), ...area.tracks]);
}

export function parseArea(text: string): Area | null {
  const [start, end, ...tracks] = text.split("~");
  const range = parseRange(`${start}~${end}`);
  return range && { ...range, tracks: tracks.filter(Boolean) };
}
