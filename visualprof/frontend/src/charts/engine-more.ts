// The further parts of ECharts that the pages use: curves, points, marks, zooming and pictures in SVG. Only ever imported lazily.
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
