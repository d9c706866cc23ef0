// ECharts with the parts for bars and rings, which the first page needs. Only imported lazily.
import { BarChart, PieChart } from "echarts/charts";
import { GridSimpleComponent, LegendComponent } from "echarts/components";
import { init, use, type EChartsType } from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";

use([BarChart, PieChart, GridSimpleComponent, LegendComponent, CanvasRenderer]);

/** Return ECharts with the parts that a chart needs: curves, points, zooming (`more`) or pointer reactions (`tip`). */
export async function loadEngine(more: boolean, tip: boolean): Promise<typeof init> {
  await Promise.all([more && import("./engine-more"), tip && import("./engine-tip")]);
  return init;
}

export type { EChartsType };
