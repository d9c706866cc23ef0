// What answers the pointer over a chart. Only ever imported lazily, when a pointer first enters one.
import { TooltipComponent } from "echarts/components";
import { use } from "echarts/core";

use([TooltipComponent]);
