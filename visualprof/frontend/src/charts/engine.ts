// The parts of ECharts that the pages use. This module is only ever imported lazily.
import { BarChart, LineChart, PieChart, ScatterChart } from "echarts/charts";
import { DataZoomComponent, GridComponent, LegendComponent, MarkLineComponent, MarkPointComponent, TitleComponent, TooltipComponent } from "echarts/components";
import { graphic, init, use, type EChartsType } from "echarts/core";
import { LabelLayout } from "echarts/features";
import { CanvasRenderer, SVGRenderer } from "echarts/renderers";

use([
  BarChart, LineChart, PieChart, ScatterChart,
  DataZoomComponent, GridComponent, LegendComponent, MarkLineComponent, MarkPointComponent, TitleComponent, TooltipComponent,
  CanvasRenderer, SVGRenderer,
  LabelLayout,
]);

export { graphic, init, type EChartsType };
