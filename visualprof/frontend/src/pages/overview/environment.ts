import type { Cell, Environment } from "../../api/model";
import { textOr } from "../../locales";

// Shown elsewhere: in the headline, the tables' headings and their hints.
const SHOWN_ELSEWHERE = new Set([
  "device_work",
  "stages_derived",
  "stages_unknown",
  "process_cpu_ratio",
  "system_cpu_ratio",
]);

/** Return facts about the origin of the file. */
export function environmentFacts(environment: Environment): Record<string, Cell> {
  const facts: Record<string, Cell> = {};
  for (const [name, value] of Object.entries(environment)) {
    if (!SHOWN_ELSEWHERE.has(name)) facts[name] = Array.isArray(value) ? value.length : value;
  }
  facts["device_type"] = textOr(`device_type.${environment.device_type}`, environment.device_type.toUpperCase());
  facts["framework"] = textOr(`framework.${environment.framework}`, environment.framework);
  // Without step annotations, there is nothing to count.
  if (facts["steps"] === 0) delete facts["steps"];
  return facts;
}
