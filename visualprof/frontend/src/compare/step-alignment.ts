// A run beside its base: which of its steps begins with which, and how far it is moved for that.
import type { Schemas } from "../api/model";

/** On the timeline, the place of the base among the workers, which count from 0. */
export const BASE = -1;

export const WAYS = ["step", "name", "longest"] as const;
export type Way = (typeof WAYS)[number];
type Step = Schemas["TimelineStep"];

/** Places of two steps that begin together: of the shown run and of the base. */
export interface Pair {
  own: number;
  base: number;
}

function longest(steps: readonly Step[]): number {
  return steps.reduce((best, one, place) => (one.duration_ns > (steps[best]?.duration_ns ?? -1) ? place : best), -1);
}

/**
 * The steps to begin together; null where the base has no such step: the traces then begin together.
 * `chosen` is the name of the shown run's step and `beside` the one that it is compared with, null for all of them: the first ones,
 * or the first that both have, stand for them.
 */
export function pairOf(
  own: readonly Step[],
  base: readonly Step[],
  way: Way,
  chosen: string | null,
  beside: string | null,
): Pair | null {
  const named = (name: string | undefined) => base.findIndex((one) => one.name === name);
  const at = own.findIndex((one) => (chosen !== null ? one.name === chosen : way !== "name" || named(one.name) >= 0));
  const pair =
    way === "longest"
      ? { own: longest(own), base: longest(base) }
      : { own: at, base: way === "name" ? named(own[at]?.name) : chosen === null ? at : named(beside ?? undefined) };
  return own[pair.own] && base[pair.base] ? pair : null;
}

/** What stands at the place of a step in the other run: as many steps from the pair as the step is from its own. */
export function stepBeside(
  name: string | null,
  from: readonly Step[],
  to: readonly Step[],
  shift: number,
): string | null {
  const place = from.findIndex((one) => one.name === name);
  return place < 0 ? null : (to[place + shift]?.name ?? null);
}

/** By how much the base is moved, ns, so that the pair begins together. */
export function shiftOf(own: readonly Step[], base: readonly Step[], pair: Pair | null): number {
  return pair ? (own[pair.own]?.start_ns ?? 0) - (base[pair.base]?.start_ns ?? 0) : 0;
}
