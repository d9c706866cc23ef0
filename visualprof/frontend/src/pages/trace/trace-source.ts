// One worker's trace: its metadata, its offset on the common time axis, and the addresses of its tiles.
import { shallowRef, type ShallowRef } from "vue";
import { address, get, offlineReport, type Query } from "../../api/client";
import { tileLevel, tileNs, topLevelFor } from "./tile-levels";
import type { Meta } from "./model";
import { EventNames } from "./event-names";
import type { TileRequest } from "./tile-store";

/** Tiles of a group of tracks, of a counter, or of the critical path. */
export type TileKind = "g" | "c" | "p";
const ROUTES = { g: "timeline/tile", c: "timeline/counter", p: "timeline/path" } as const;

export interface TraceSourceId {
  /** Index among the run's workers, or BASE: short, and the same in every address. */
  worker: number;
  name: string;
  query: Query;
}

export class TraceSource {
  readonly names: EventNames;
  readonly topLevel: number;
  /** Added to this trace's times to place it on the page's axis. */
  offset = 0;
  /** Utilization of host and devices. It needs a pass over all events and is loaded after the first picture. */
  readonly profile = shallowRef<Record<string, number[]>>({});
  /** The counters also need such a pass; they are in the first answer only if the address refers to rows below them. */
  readonly counters: ShallowRef<Meta["counters"]>;
  private restRequested = false;
  private readonly stem: string;

  constructor(
    readonly id: TraceSourceId,
    readonly meta: Meta,
    arrived: () => void,
  ) {
    this.names = new EventNames({ ...id.query, v: meta.version }, meta.strings, arrived);
    this.counters = shallowRef(meta.counters);
    this.topLevel = topLevelFor(meta.duration_ns);
    this.stem = `${id.worker}/${meta.version}/`;
  }

  async loadRest(): Promise<void> {
    if (this.restRequested) return;
    this.restRequested = true;
    try {
      const whole = (await get<Meta>(address("timeline/meta", this.id.query)))?.body;
      this.profile.value = whole?.minimap ?? {};
      this.counters.value = whole?.counters ?? [];
    } catch {
      this.restRequested = false;
    }
  }

  get start(): number {
    return this.offset;
  }

  get end(): number {
    return this.offset + this.meta.duration_ns;
  }

  level(nsPerPixel: number): number {
    return Math.min(this.topLevel, tileLevel(nsPerPixel));
  }

  key(kind: TileKind, id: number, level: number, index: number): string {
    return `${this.stem}${kind}${id}/${level}/${index}`;
  }

  tileRequest(kind: TileKind, id: number, level: number, index: number, rank: number): TileRequest {
    const selector = { g: { group: id }, c: { track: id }, p: {} }[kind];
    const [nearestLevel, nth] = offlineReport?.nearestTile(kind, id, level, index) ?? [level, index];
    const url = address(ROUTES[kind], {
      ...this.id.query,
      v: this.meta.version,
      ...selector,
      level: nearestLevel,
      index: nth,
    });
    return { key: this.key(kind, id, level, index), url, level: nearestLevel, index: nth, rank };
  }

  /** Return the start of a tile on the page's axis. */
  tileStart(level: number, index: number): number {
    return this.offset + index * tileNs(level);
  }
}

/** Return how much later `epoch` is than `base`, in ns; 0 if either is unknown. */
export function epochDifference(base: string | null, epoch: string | null): number {
  return base === null || epoch === null ? 0 : Number(BigInt(epoch) - BigInt(base));
}
