// The tags, lines and steps of the values that a page shows.
import { computed } from "vue";
import { address, type SeriesAnswer, type SeriesLine } from "../api";
import { seriesColors } from "../charts/palette";
import { theme, useParameter } from "../state";
import { usePolledData, type DataSource } from "./data-source";
import { lineColors, lineName, parsePattern } from "./lines";
import { useShownRuns } from "./shown-runs";

export const fullName = ({ run, line }: { run: string; line: string }) => lineName(run, line);

export function useSeries(page: "samples" | "distributions" | "curves") {
  const tagText = useParameter("tags", "");
  const chosen = useShownRuns();
  const tagPattern = computed(() => parsePattern(tagText.value));
  const { data, error } = usePolledData<SeriesAnswer>(
    () => address("data/series", { runs: chosen.runIds.value, page }),
    chosen,
  );
  /** Lines by tag, of the matching tags. */
  const tags = computed(() => {
    const groups = new Map<string, SeriesLine[]>();
    for (const line of data.value?.lines ?? [])
      if (tagPattern.value?.test(line.tag)) groups.set(line.tag, [...(groups.get(line.tag) ?? []), line]);
    return [...groups].map(([tag, lines]) => ({ tag, lines }));
  });
  const steps = computed(() => {
    const all = new Set(tags.value.flatMap(({ lines }) => lines.flatMap((line) => line.step as number[])));
    return [...all].sort((a, b) => a - b);
  });
  const names = computed(() => [...new Set((data.value?.lines ?? []).map(fullName))]);
  const colors = computed(() => lineColors(names.value, null, seriesColors(theme.value)));
  const isInvalid = computed(() => !tagPattern.value || !chosen.runPattern.value);
  const isEmpty = computed(() => tags.value.length === 0);
  const source: DataSource = { page, ...chosen, tagText, data, error, isInvalid, isEmpty };
  return { source, runIds: chosen.runIds, data, tags, steps, colors };
}
