import { describe, expect, it } from "vitest";
import type { Context, Option } from "./theme";
import { chartOption } from "./options";
import { byteStep, pointTooltip } from "./xy-chart";

const context: Context = { theme: "light", text: (key) => `text of ${key}`, width: 500 };
const plain = (text: string) => text.replaceAll("\u00a0", " ");

describe("curves", () => {
  const server = {
    series: [
      {
        type: "line",
        name: "@t:memory.allocated",
        data: [
          [0, 1],
          [5, 700 * 2 ** 20],
        ],
      },
    ],
    xAxis: { type: "value", axisLabel: { formatter: "@f:ns" } },
    yAxis: { type: "value", axisLabel: { formatter: "@f:bytes" } },
  };

  it("have a unit for each axis", () => {
    const option = chartOption(server, context) as { xAxis: Option; yAxis: Option };
    const mark = (axis: Option, value: number) =>
      plain((axis["axisLabel"] as { formatter: (value: number) => string }).formatter(value));
    expect([mark(option.xAxis, 2e6), mark(option.yAxis, 2 ** 28)]).toEqual(["2 ms", "256 MiB"]);
  });

  it("have ticks at powers of two, the last one above all values", () => {
    const { yAxis } = chartOption(server, context) as { yAxis: { interval: number; max: number } };
    expect(Math.log2(yAxis.interval) % 1).toBe(0);
    expect(yAxis.max).toBeGreaterThanOrEqual(700 * 2 ** 20);
    expect(byteStep(0)).toBeGreaterThan(0);
  });
});

describe("stacked areas", () => {
  it("reach up from 0, with the lower ones in front", () => {
    const part = (name: string, values: number[]) => ({
      type: "line",
      stack: "all",
      name,
      data: values.map((value, x) => [x, value]),
    });
    const option = chartOption(
      { series: [part("a", [1, 2]), part("b", [3, 4])], xAxis: { type: "value" }, yAxis: { type: "value" } },
      context,
    );
    const [a, b] = option["series"] as { data: number[][]; z: number }[];
    expect([a?.data, b?.data]).toEqual([
      [
        [0, 1, 1],
        [1, 2, 2],
      ],
      [
        [0, 4, 3],
        [1, 6, 4],
      ],
    ]);
    expect(a?.z).toBeGreaterThan(b?.z ?? 0);
  });
});

describe("points", () => {
  it("show the server's facts and escape names", () => {
    const html = pointTooltip([{ name: "FLOPS", formatter: (value) => `${String(value)} F` }])({
      name: "<b>",
      seriesName: "<i>",
      value: [3],
    });
    expect(html).toContain("&lt;b&gt;");
    expect(html).toContain("&lt;i&gt;");
    expect(html).toContain("<td>FLOPS</td><td>3 F</td>");
  });

  it("stay points next to a line", () => {
    const option = chartOption(
      {
        series: [
          { type: "scatter", data: [{ name: "a", id: "1", value: [1, 2] }] },
          {
            type: "line",
            data: [
              [1, 1],
              [2, 2],
            ],
          },
        ],
        xAxis: { type: "log" },
        yAxis: { type: "log" },
        tooltip: { fields: [] },
      },
      context,
    ) as { series: { type: string }[] };
    expect(option.series.map((item) => item.type)).toEqual(["scatter", "line"]);
  });
});
