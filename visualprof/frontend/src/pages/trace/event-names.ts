// Names by number, loaded in pages when needed. Kernels have short names.
import { address, get, type Query } from "../../api/client";
import type { Schemas } from "../../api/model";
import { displayText } from "../../lib/text";

export const PAGE_SIZE = 4096;

export class EventNames {
  private readonly loadedNames: string[] = [];
  /** The full names of kernels, by number. */
  private readonly fullNames = new Map<number, string>();
  private readonly requestedPages = new Set<number>();
  private needle = "";
  /** Per name: 0 not matched yet, 1 matches the search, 2 does not. */
  private matchCache = new Uint8Array(0);

  constructor(
    private readonly query: Query,
    private readonly total: number,
    private readonly arrived: () => void,
  ) {
    this.matchCache = new Uint8Array(total);
  }

  /** Return the short name of a kernel or the name of another event; undefined while it is loading. */
  get(name: number): string | undefined {
    const cachedName = this.loadedNames[name];
    if (cachedName === undefined && name < this.total) void this.load(Math.floor(name / PAGE_SIZE));
    return cachedName;
  }

  set search(text: string) {
    this.needle = text.toLowerCase();
    this.matchCache.fill(0);
  }

  /** Whether a name contains the search text; false while it is loading. */
  matches(name: number): boolean {
    const before = this.matchCache[name];
    if (before) return before === 1;
    const text = this.get(name);
    if (text === undefined) return false;
    const texts = [text, this.fullNames.get(name) ?? ""];
    const match = texts.some((candidate) => candidate.toLowerCase().includes(this.needle));
    this.matchCache[name] = match ? 1 : 2;
    return match;
  }

  private add(name: number, text: string, shortNames: Record<string, string>): void {
    const short = shortNames[text];
    this.loadedNames[name] = displayText(short ?? text);
    if (short !== undefined) this.fullNames.set(name, displayText(text));
  }

  private async load(page: number): Promise<void> {
    if (this.requestedPages.has(page)) return;
    this.requestedPages.add(page);
    try {
      const answer = await get<Schemas["TimelineStrings"]>(
        address("timeline/strings", { ...this.query, offset: page * PAGE_SIZE, limit: PAGE_SIZE }),
      );
      answer?.body.strings.forEach((text, index) => this.add(page * PAGE_SIZE + index, text, answer.body.short_names));
      this.arrived();
    } catch {
      // Labels stay empty and are requested again later.
      setTimeout(() => this.requestedPages.delete(page), 2000);
    }
  }
}
