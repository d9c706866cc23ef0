// Packed lists of numbers by key: the entries of key k are list[start[k]] .. list[start[k + 1] - 1].

export interface Adjacency {
  start: Int32Array;
  list: Int32Array;
}

/** Group the indexes 0..keys.length-1 by key, in order. Negative keys are skipped. */
export function groupByKey(keys: ArrayLike<number>, count: number): Adjacency {
  const start = new Int32Array(count + 1);
  for (let i = 0; i < keys.length; i += 1) {
    const key = keys[i] as number;
    if (key >= 0) start[key + 1] = (start[key + 1] as number) + 1;
  }
  for (let k = 0; k < count; k += 1) start[k + 1] = (start[k + 1] as number) + (start[k] as number);
  const next = start.slice(0, count);
  const list = new Int32Array(start[count] as number);
  for (let i = 0; i < keys.length; i += 1) {
    const key = keys[i] as number;
    if (key < 0) continue;
    const slot = next[key] as number;
    list[slot] = i;
    next[key] = slot + 1;
  }
  return { start, list };
}

/** Return the entries of one key. */
export function entriesOf({ start, list }: Adjacency, key: number): Int32Array {
  return list.subarray(start[key], start[key + 1]);
}
