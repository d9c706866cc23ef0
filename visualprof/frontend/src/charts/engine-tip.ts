// The parts of ECharts that react to the pointer. Only imported lazily, when a pointer first enters a chart.
import { TooltipComponent } from "echarts/components";
import { use } from "echarts/core";

use([TooltipComponent]);
