// Requests tiles and keeps the latest ones. A change of the filter discards them.
import { get, type HeapTile } from "../../api";
import { decodeTile, type Tile } from "./tile";

const MAX_TILES = 64;
const RETRY_MS = 1500;

export class TileSource {
  private readonly tiles = new Map<string, Tile>();
  private readonly inFlight = new Map<string, AbortController>();
  private closed = false;

  /**
   * `address`: returns the address of a tile, null while there is no file. `arrived`: called when a tile has loaded.
   */
  constructor(
    private readonly address: (level: number, index: number) => string | null,
    private readonly arrived: () => void,
  ) {}

  /** Return a tile, or request it. */
  tile(level: number, index: number): Tile | null {
    const url = this.address(level, index);
    if (url === null) return null;
    const tile = this.tiles.get(url);
    if (!tile) void this.load(url, level, index);
    else {
      // The last one of the map is the one used last.
      this.tiles.delete(url);
      this.tiles.set(url, tile);
    }
    return tile ?? null;
  }

  /** Cancel the requests that `isNeeded` does not name. */
  cancelOthers(isNeeded: (url: string) => boolean): void {
    for (const [url, control] of this.inFlight) {
      if (isNeeded(url)) continue;
      control.abort();
      this.inFlight.delete(url);
    }
  }

  close(): void {
    this.closed = true;
    this.cancelOthers(() => false);
    this.tiles.clear();
  }

  private async load(url: string, level: number, index: number): Promise<void> {
    if (this.closed || this.inFlight.has(url)) return;
    const control = new AbortController();
    this.inFlight.set(url, control);
    try {
      const answer = await get<HeapTile>(url, { signal: control.signal });
      if (answer) this.tiles.set(url, decodeTile(answer.body, level, index));
      for (const oldest of this.tiles.keys()) {
        if (this.tiles.size <= MAX_TILES) break;
        this.tiles.delete(oldest);
      }
    } catch {
      if (control.signal.aborted) return;
      // The server may be restarting; the request stays listed until then, so that no frame repeats it.
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
    if (this.inFlight.get(url) === control) this.inFlight.delete(url);
    if (!this.closed) this.arrived();
  }
}
