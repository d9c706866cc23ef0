import { describe, expect, it, vi } from "vitest";
import { sliceBytes } from "../../../tests/made-tiles";
import { TileStore, type TileRequest } from "./tile-store";

function wish(key: string, rank = 0): TileRequest {
  return { key, url: `tile/${key}`, level: 0, index: 0, rank };
}

function heldStore() {
  const requests: { url: string; signal: AbortSignal; give: () => void }[] = [];
  const store = new TileStore(
    vi.fn(),
    (url, signal) =>
      new Promise((resolve, reject) => {
        signal.addEventListener("abort", () => reject(new Error("aborted")));
        requests.push({ url, signal, give: () => resolve(sliceBytes([{ start: 0, end: 1 }])) });
      }),
  );
  return { store, asked: requests };
}

const settle = () => new Promise((resume) => setTimeout(resume));

describe("tile store", () => {
  it("has at most six requests in flight, those on screen first", async () => {
    const { store, asked: requests } = heldStore();
    store.request([...Array.from({ length: 8 }, (_, i) => wish(`later${i}`, 5)), wish("now")]);
    expect(requests).toHaveLength(6);
    expect(requests[0]?.url).toBe("tile/now");
    requests[0]?.give();
    await settle();
    expect(store.has("now")).toBe(true);
    expect(requests).toHaveLength(7);
  });

  it("cancels tiles that are no longer needed, and requests nothing twice", async () => {
    const { store, asked: requests } = heldStore();
    store.request([wish("a"), wish("b")]);
    store.request([wish("b")]);
    expect(requests.map(({ signal }) => signal.aborted)).toEqual([true, false]);
    expect(requests).toHaveLength(2);
    requests[1]?.give();
    await settle();
    store.request([wish("b")]);
    expect(requests).toHaveLength(2);
    expect(store.settled).toBe(true);
  });

  it("does not flood a failing server", async () => {
    const load = vi.fn(() => Promise.reject(new Error("503")));
    const store = new TileStore(vi.fn(), load);
    store.request([wish("a")]);
    await settle();
    store.request([wish("a")]);
    store.request([wish("a")]);
    expect(load).toHaveBeenCalledTimes(1);
    store.close();
  });
});
