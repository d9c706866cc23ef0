// Tiles: requested, loading, and cached. Each frame states which ones it needs; others are canceled.
import { fetchApi } from "../../api/client";
import { LruCache } from "./lru-cache";
import { decodeTile, tileWeight, type Tile } from "./tile";

const MAX_IN_FLIGHT = 6;
const BUDGET_BYTES = 64 * 2 ** 20;
const RETRY_MS = 1500;

export interface TileRequest {
  key: string;
  url: string;
  level: number;
  index: number;
  /** Lower is sooner: 0 is on screen. */
  rank: number;
}

type Fetch = (url: string, signal: AbortSignal) => Promise<ArrayBuffer>;

async function fetchBytes(url: string, signal: AbortSignal): Promise<ArrayBuffer> {
  return (await fetchApi(url, { signal })).arrayBuffer();
}

export class TileStore {
  private readonly tiles: LruCache<Tile>;
  private readonly inFlight = new Map<string, AbortController>();
  private readonly failed = new Map<string, number>();
  private requests = new Map<string, TileRequest>();
  private closed = false;

  constructor(
    private readonly arrived: () => void,
    private readonly load: Fetch = fetchBytes,
    budget = BUDGET_BYTES,
  ) {
    this.tiles = new LruCache<Tile>(budget);
  }

  get bytes(): number {
    return this.tiles.weight;
  }

  /** Whether all tiles on screen are loaded. */
  get settled(): boolean {
    return ![...this.requests.values()].some((wish) => wish.rank === 0 && !this.failed.has(wish.key));
  }

  get(key: string): Tile | undefined {
    return this.tiles.get(key);
  }

  has(key: string): boolean {
    return this.tiles.has(key);
  }

  /** Request the missing tiles of this frame. */
  request(requests: readonly TileRequest[]): void {
    this.requests = new Map();
    for (const wish of requests) {
      const existing = this.requests.get(wish.key);
      if (!this.tiles.has(wish.key) && (!existing || existing.rank > wish.rank)) this.requests.set(wish.key, wish);
    }
    for (const [key, flight] of this.inFlight) {
      if (!this.requests.has(key)) {
        flight.abort();
        this.inFlight.delete(key);
      }
    }
    this.startNext();
  }

  close(): void {
    this.closed = true;
    this.request([]);
    this.tiles.clear();
  }

  private startNext(): void {
    if (this.closed || this.inFlight.size >= MAX_IN_FLIGHT) return;
    const now = performance.now();
    const ready = [...this.requests.values()].filter(
      (wish) => !this.inFlight.has(wish.key) && (this.failed.get(wish.key) ?? 0) <= now,
    );
    ready.sort((a, b) => a.rank - b.rank);
    for (const wish of ready.slice(0, MAX_IN_FLIGHT - this.inFlight.size)) void this.fetchTile(wish);
  }

  private async fetchTile(wish: TileRequest): Promise<void> {
    const control = new AbortController();
    this.inFlight.set(wish.key, control);
    try {
      const bytes = await this.load(wish.url, control.signal);
      if (control.signal.aborted) return;
      const tile = decodeTile(bytes, wish.level, wish.index);
      this.tiles.set(wish.key, tile, tileWeight(tile));
      this.failed.delete(wish.key);
    } catch {
      if (control.signal.aborted) return;
      // The server may be restarting: retry later, and not in every frame.
      this.failed.set(wish.key, performance.now() + RETRY_MS);
      setTimeout(() => this.closed || this.arrived(), RETRY_MS + 10);
    }
    this.inFlight.delete(wish.key);
    this.requests.delete(wish.key);
    this.startNext();
    this.arrived();
  }
}
