// Tiles asked for, on their way, and kept. Each frame says anew what it wants; what no longer is wanted is cancelled.
import { ask } from "../../api/client";
import { Lru } from "./lru-cache";
import { decodeTile, tileWeight, type Tile } from "./tile";

const IN_FLIGHT = 6;
const BUDGET_BYTES = 64 * 2 ** 20;
const RETRY_MS = 1500;

export interface Wish {
  key: string;
  url: string;
  level: number;
  index: number;
  /** Lower is sooner: 0 is on screen. */
  rank: number;
}

type Fetch = (url: string, signal: AbortSignal) => Promise<ArrayBuffer>;

async function fetchBytes(url: string, signal: AbortSignal): Promise<ArrayBuffer> {
  return (await ask(url, { signal })).arrayBuffer();
}

export class TileStore {
  private readonly tiles: Lru<Tile>;
  private readonly flights = new Map<string, AbortController>();
  private readonly failed = new Map<string, number>();
  private wishes = new Map<string, Wish>();
  private closed = false;

  constructor(
    private readonly arrived: () => void,
    private readonly load: Fetch = fetchBytes,
    budget = BUDGET_BYTES,
  ) {
    this.tiles = new Lru<Tile>(budget);
  }

  get bytes(): number {
    return this.tiles.weight;
  }

  /** Nothing that is on screen is still to come. */
  get settled(): boolean {
    return ![...this.wishes.values()].some((wish) => wish.rank === 0 && !this.failed.has(wish.key));
  }

  get(key: string): Tile | undefined {
    return this.tiles.get(key);
  }

  has(key: string): boolean {
    return this.tiles.has(key);
  }

  /** All that this frame wants and does not have. */
  want(wishes: readonly Wish[]): void {
    this.wishes = new Map();
    for (const wish of wishes) {
      const existing = this.wishes.get(wish.key);
      if (!this.tiles.has(wish.key) && (!existing || existing.rank > wish.rank)) this.wishes.set(wish.key, wish);
    }
    for (const [key, flight] of this.flights) {
      if (!this.wishes.has(key)) {
        flight.abort();
        this.flights.delete(key);
      }
    }
    this.pump();
  }

  close(): void {
    this.closed = true;
    this.want([]);
    this.tiles.clear();
  }

  private pump(): void {
    if (this.closed || this.flights.size >= IN_FLIGHT) return;
    const now = performance.now();
    const ready = [...this.wishes.values()].filter(
      (wish) => !this.flights.has(wish.key) && (this.failed.get(wish.key) ?? 0) <= now,
    );
    ready.sort((a, b) => a.rank - b.rank);
    for (const wish of ready.slice(0, IN_FLIGHT - this.flights.size)) void this.fly(wish);
  }

  private async fly(wish: Wish): Promise<void> {
    const control = new AbortController();
    this.flights.set(wish.key, control);
    try {
      const bytes = await this.load(wish.url, control.signal);
      if (control.signal.aborted) return;
      const tile = decodeTile(bytes, wish.level, wish.index);
      this.tiles.set(wish.key, tile, tileWeight(tile));
      this.failed.delete(wish.key);
    } catch {
      if (control.signal.aborted) return;
      // The server may be restarting: asked again, but not at once and not by every frame.
      this.failed.set(wish.key, performance.now() + RETRY_MS);
      setTimeout(() => this.closed || this.arrived(), RETRY_MS + 10);
    }
    this.flights.delete(wish.key);
    this.wishes.delete(wish.key);
    this.pump();
    this.arrived();
  }
}
