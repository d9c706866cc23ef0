import { describe, expect, it } from "vitest";
import type { Context, Option } from "./theme";
import { axisTooltip, chartOption, isToken, resolveTokens, sliceTooltip } from "./options";
import { categoryColor } from "./palette";

const context: Context = { theme: "dark", text: (key) => `text of ${key}`, width: 500 };
const plain = (text: string) => text.replaceAll("\u00a0", " ");

describe("tokens", () => {
  it("are replaced at any position", () => {
    const resolved = resolveTokens(
      { series: [{ name: "@t:category.kernel", itemStyle: { color: "@c:kernel" } }] },
      context,
    );
    expect(resolved).toEqual({
      series: [{ name: "text of category.kernel", itemStyle: { color: categoryColor("kernel", "dark") } }],
    });
  });

  it("become formatters that take a number or an ECharts event", () => {
    const { formatter } = resolveTokens({ formatter: "@f:ns" }, context) as { formatter: (value: unknown) => string };
    expect(plain(formatter(1_240_000))).toBe("1.24 ms");
    expect(plain(formatter({ value: 356 }))).toBe("356 ns");
    expect(plain(formatter({ value: [0, 356] }))).toBe("356 ns");
  });

  it("do not replace the user's names", () => {
    expect(resolveTokens({ name: "aten::mm @ site" }, context)).toEqual({ name: "aten::mm @ site" });
    expect(isToken("@triton_kernel")).toBe(false);
  });
});

describe("tooltips", () => {
  const hostile = "<script>alert(1)</script>";

  it("escape names that contain markup", () => {
    const slice = sliceTooltip(String)({ name: hostile, value: 1, percent: 50 });
    const axis = axisTooltip(
      String,
      hostile,
    )([
      { name: hostile, seriesName: hostile, value: 1 },
      { name: hostile, seriesName: "b", value: 2 },
    ]);
    expect(slice + axis).not.toContain("<script>");
    expect(slice).toContain("&lt;script&gt;");
  });

  it("add up a stack and omit zeros", () => {
    const html = axisTooltip(
      String,
      "Total",
    )([
      { name: "5", seriesName: "Kernel", value: 2 },
      { name: "5", seriesName: "Memset", value: 0 },
      { name: "5", seriesName: "Other", value: 3 },
    ]);
    expect(html).toContain("<td>Total</td><td>5</td>");
    expect(html).not.toContain("Memset");
  });
});

describe("chartOption", () => {
  it("shortens long names in the legend and adds their share", () => {
    const long = "void at::native::vectorized_elementwise_kernel<4, at::native::add_kernel_cuda>".repeat(2);
    const option = chartOption(
      {
        series: [
          {
            type: "pie",
            data: [
              { name: long, value: 3 },
              { name: "b", value: 1 },
            ],
          },
        ],
      },
      context,
    );
    const legend = option["legend"] as Option & { formatter: (name: string) => string };
    expect(legend.formatter(long).length).toBeLessThan(60);
    expect(plain(legend.formatter(long))).toContain("75.0 %");
  });

  it("draws categories as horizontal bars and steps as vertical ones", () => {
    const bars = (names: string[], count: number) => ({
      xAxis: { type: "category", data: names },
      yAxis: { type: "value" },
      series: Array(count).fill({ type: "bar", data: [1] }),
    });
    const categoryAxis = (names: string[], count: number) =>
      ["xAxis", "yAxis"].find(
        (axis) => (chartOption(bars(names, count), context)[axis] as Option[])[0]?.["type"] === "category",
      );
    expect([1, 3].map((count) => categoryAxis(["@t:category.kernel"], count))).toEqual(["yAxis", "yAxis"]);
    expect(categoryAxis(["5"], 3)).toBe("xAxis");
  });

  it("sets the chart's unit on the value axis", () => {
    const option = chartOption(
      {
        tooltip: { valueFormatter: "@f:ns" },
        xAxis: [{ type: "category", data: ["5"] }],
        yAxis: [{ type: "value" }],
        series: [{ type: "bar", data: [1] }],
      },
      context,
    );
    const [axis] = option["yAxis"] as { axisLabel: { formatter: (value: number) => string } }[];
    const mark = (value: number) => plain(axis?.axisLabel.formatter(value) ?? "");
    expect([0, 2_000_000, 1_200_000, 1_250_000, 90_000].map(mark)).toEqual(["0", "2 ms", "1.2 ms", "1.25 ms", "90 µs"]);
  });
});
