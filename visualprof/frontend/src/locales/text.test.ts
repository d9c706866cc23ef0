import { beforeAll, describe, expect, it } from "vitest";
import { ALL_TEXTS, speak } from "./index";
import { chartText, columnLabels, counterName, counterLabel, runtimeText } from "./text";

beforeAll(() => speak("en", ALL_TEXTS));

describe("counter_name", () => {
  it("names what the monitor counts and leaves the unit", () =>
    expect(counterName("child CPU %")).toBe("CPU of this process %"));
  it("leaves the device's own name", () => expect(counterName("cuda:0 SM clock MHz")).toBe("cuda:0 SM clock MHz"));
  it("needs no unit where the values have it", () => expect(counterName("RSS bytes")).toBe("Memory of this process"));
  it("leaves what it does not know", () => expect(counterName("queue depth")).toBe("queue depth"));
});

describe("monitored", () => {
  it("leaves the counters of profilers alone", () =>
    expect(["GPU memory", "memory arena", "Power"].map(counterLabel)).toEqual(["GPU memory", "memory arena", "Power"]));
});

describe("said_value", () => {
  it("knows the words of the runtimes and leaves others", () =>
    expect([runtimeText("as the model"), runtimeText("CPUExecutionProvider")]).toEqual([
      "as the model",
      "CPUExecutionProvider",
    ]));
});

describe("chart_text", () => {
  it("says which stages are derived", () =>
    expect(["stage.forward", "derived.forward"].map(chartText)).toEqual(["Forward", "Forward (derived)"]));
});

describe("column_labels", () => {
  const kinds = { name: "name", busy_ns: "ns", busy_ratio: "ratio", idle_ns: "ns" } as const;
  const labels = () => Object.values(columnLabels(Object.keys(kinds), kinds));

  it("leave the unit out, where nothing else is called the same", () =>
    expect(labels()).toEqual(["Name", "Busy (time)", "Busy (share)", "Idle"]));
  it("do so in any language", async () => {
    await speak("zh", ALL_TEXTS);
    expect(labels()).toEqual(["名称", "Busy（时间）", "Busy（占比）", "Idle"]);
  });
});
