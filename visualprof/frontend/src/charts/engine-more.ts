// Further parts of ECharts for curves, points, marks, zooming and SVG images. Only imported lazily.
import { CustomChart, LineChart, ScatterChart } from "echarts/charts";
import { DataZoomComponent, MarkLineComponent, MarkPointComponent, TitleComponent } from "echarts/components";
import { graphic, use } from "echarts/core";
import { LabelLayout } from "echarts/features";
import { SVGRenderer } from "echarts/renderers";

use([
  CustomChart,
  LineChart,
  ScatterChart,
  DataZoomComponent,
  MarkLineComponent,
  MarkPointComponent,
  TitleComponent,
  LabelLayout,
  SVGRenderer,
]);

export { graphic };
