/** A cache of the most recently used values, within a budget of bytes. */
export class LruCache<T> {
  private readonly entries = new Map<string, { value: T; weight: number }>();
  private used = 0;

  constructor(readonly budget: number) {}

  get weight(): number {
    return this.used;
  }

  get size(): number {
    return this.entries.size;
  }

  get(key: string): T | undefined {
    const entry = this.entries.get(key);
    if (!entry) return undefined;
    this.entries.delete(key);
    this.entries.set(key, entry);
    return entry.value;
  }

  has(key: string): boolean {
    return this.entries.has(key);
  }

  set(key: string, value: T, weight: number): void {
    this.drop(key);
    this.entries.set(key, { value, weight });
    this.used += weight;
    // The newest value stays even if it exceeds the budget alone, because it is in use.
    for (const oldest of this.entries.keys()) {
      if (this.used <= this.budget || oldest === key) break;
      this.drop(oldest);
    }
  }

  clear(): void {
    this.entries.clear();
    this.used = 0;
  }

  private drop(key: string): void {
    const entry = this.entries.get(key);
    if (!entry) return;
    this.entries.delete(key);
    this.used -= entry.weight;
  }
}
