// The parts of ECharts that the pages use. This module is only ever imported lazily.
import { BarChart, LineChart, PieChart } from "echarts/charts";
import { DataZoomComponent, GridComponent, LegendComponent, TitleComponent, TooltipComponent } from "echarts/components";
import { init, use, type EChartsType } from "echarts/core";
import { CanvasRenderer, SVGRenderer } from "echarts/renderers";

use([
  BarChart, LineChart, PieChart,
  DataZoomComponent, GridComponent, LegendComponent, TitleComponent, TooltipComponent,
  CanvasRenderer, SVGRenderer,
]);

export { init, type EChartsType };
