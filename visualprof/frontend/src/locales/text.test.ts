import { beforeAll, describe, expect, it } from "vitest";
import { ALL_TEXTS, setLanguage } from "./index";
import { chartText, columnLabels, counterName, counterLabel, runtimeText, trackLabel } from "./text";

beforeAll(() => setLanguage("en", ALL_TEXTS));

describe("counterName", () => {
  it("translates the monitor's counters and keeps the unit", () =>
    expect(counterName("child CPU %")).toBe("CPU of this process %"));
  it("keeps the name of the device", () => expect(counterName("cuda:0 SM clock MHz")).toBe("cuda:0 SM clock MHz"));
  it("omits the unit if the values have it", () => expect(counterName("RSS bytes")).toBe("Memory of this process"));
  it("does not change unknown names", () => expect(counterName("queue depth")).toBe("queue depth"));
});

describe("counterLabel", () => {
  it("explains MegEngine's counters", () =>
    expect(["cpu0:0_alloc_mem", "gpu1:0_alloc_mem", "nr_alive_tensor"].map(counterLabel)).toEqual([
      "cpu0:0: used memory of the machine",
      "gpu1:0: used memory",
      "Live tensors",
    ]));
  it("does not change other counters of profilers", () =>
    expect(["GPU memory", "memory arena", "Power"].map(counterLabel)).toEqual(["GPU memory", "memory arena", "Power"]));
});

describe("labels of tracks", () => {
  const NAMES = ["stream 7", "thread 42 (python)", "stream 7a", "main"];
  const COUNTERS = ["stream 7 launches waiting", "Memcpy HtoD GB/s"];
  it("keep the words of profilers in English", () => {
    expect(NAMES.map(trackLabel)).toEqual(NAMES);
    expect(COUNTERS.map(counterLabel)).toEqual(["Queue depth of stream 7", "Memcpy HtoD (GB/s)"]);
  });
  it("translate them", async () => {
    await setLanguage("zh", ALL_TEXTS);
    expect(NAMES.map(trackLabel)).toEqual(["流 7", "线程 42 (python)", "stream 7a", "main"]);
    expect(COUNTERS.map(counterLabel)).toEqual(["流 7 的排队数", "Memcpy HtoD（GB/s）"]);
    await setLanguage("en", ALL_TEXTS);
  });
});

describe("runtimeText", () => {
  it("translates known messages of runtimes and keeps others", async () => {
    await setLanguage("zh", ALL_TEXTS);
    expect([runtimeText("as the model"), runtimeText("CPUExecutionProvider")]).toEqual([
      "与模型一致",
      "CPUExecutionProvider",
    ]);
    await setLanguage("en", ALL_TEXTS);
  });
});

describe("chartText", () => {
  it("marks derived stages", () =>
    expect(["stage.forward", "derived.forward"].map(chartText)).toEqual(["Forward", "Forward (derived)"]));
});

describe("columnLabels", () => {
  const kinds = { name: "name", spin_ns: "ns", spin_ratio: "ratio", idle_ns: "ns" } as const;
  const labels = () => Object.values(columnLabels(Object.keys(kinds), kinds));

  it("omit the unit if no other heading is equal", () =>
    expect(labels()).toEqual(["Name", "Spin (time)", "Spin (share)", "Idle"]));
  it("do so in any language", async () => {
    await setLanguage("zh", ALL_TEXTS);
    expect(labels()).toEqual(["名称", "Spin（时间）", "Spin（占比）", "Idle"]);
  });
});
