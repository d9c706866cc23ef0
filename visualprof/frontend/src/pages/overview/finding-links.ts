// Where on the timeline a finding is seen: the step that it names, else the longest event of what it is about.
import type { RouteLocationRaw } from "vue-router";
import type { Finding } from "../../api/model";
import { linked_location, tabs } from "../../state";

const CATEGORIES: Record<string, string> = {
  dataloader_bound: "dataloader",
  communication_bound: "comm",
  not_nccl: "comm",
  data_parallel: "memcpy",
  low_gpu_utilization: "kernel",
  tensor_cores_unused: "kernel",
  many_small_kernels: "kernel",
  low_occupancy: "kernel",
  cpu_bound: "op",
  copies_blocking: "memcpy",
};

/** Null where there is no timeline, or nothing on it to point at. */
export function finding_location(id: string, evidence: Finding["evidence"]): RouteLocationRaw | null {
  if (!tabs.value.some((tab) => tab.id === "trace" && tab.enabled)) return null;
  const { step } = evidence;
  const category = CATEGORIES[id];
  if (step) return linked_location(`/trace?at_step=${encodeURIComponent(step)}`);
  return category === undefined ? null : linked_location(`/trace?longest_category=${category}`);
}
