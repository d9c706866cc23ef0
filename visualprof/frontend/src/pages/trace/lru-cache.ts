/** Keeps what was used last, within a budget of bytes. */
export class Lru<T> {
  private readonly held = new Map<string, { value: T; weight: number }>();
  private used = 0;

  constructor(readonly budget: number) {}

  get weight(): number {
    return this.used;
  }

  get size(): number {
    return this.held.size;
  }

  get(key: string): T | undefined {
    const entry = this.held.get(key);
    if (!entry) return undefined;
    this.held.delete(key);
    this.held.set(key, entry);
    return entry.value;
  }

  has(key: string): boolean {
    return this.held.has(key);
  }

  set(key: string, value: T, weight: number): void {
    this.drop(key);
    this.held.set(key, { value, weight });
    this.used += weight;
    // The newest stays even when it alone is over the budget: it is being looked at.
    for (const oldest of this.held.keys()) {
      if (this.used <= this.budget || oldest === key) break;
      this.drop(oldest);
    }
  }

  clear(): void {
    this.held.clear();
    this.used = 0;
  }

  private drop(key: string): void {
    const entry = this.held.get(key);
    if (!entry) return;
    this.held.delete(key);
    this.used -= entry.weight;
  }
}
