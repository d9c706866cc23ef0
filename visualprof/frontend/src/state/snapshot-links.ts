// Links from a recording to the memory snapshot of the same process.
import { computed } from "vue";
import type { RouteLocationRaw } from "vue-router";
import { address, offlineReport, type JoinedSnapshot, type JoinedSnapshots, type Query } from "../api";
import { useResource } from "./resource";
import { runs, runSpans } from "./runs";

const snapshotCount = computed(
  () => runs.value.flatMap(runSpans).filter((candidate) => candidate.views.includes("snapshot")).length,
);

/** Return the link to the first moment of a snapshot from `ns` to `until`; without `ns`, to a snapshot. */
export function snapshotLocation(
  snapshots: readonly JoinedSnapshot[],
  ns?: number,
  until = ns,
): RouteLocationRaw | null {
  const snapshot = snapshots.find(
    ({ start_ns: start, end_ns: end }) => ns === undefined || ((until ?? ns) >= start && ns <= end),
  );
  if (!snapshot) return null;
  const { run, worker, span, recording, start_ns: start } = snapshot;
  const at = ns === undefined ? undefined : `${Math.round(Math.max(ns, start))}@${recording}`;
  return { path: "/snapshot", query: { run, worker, span, at } };
}

/**
 * Return the function that links to the snapshot of a recording, or to its first moment from `ns` to `until`, both since
 * the first event; null if no snapshot is joined with the recording, or its history does not contain such a moment.
 */
export function useSnapshotLink(
  recording: () => Query | null,
): (ns?: number, until?: number) => RouteLocationRaw | null {
  const { data } = useResource<JoinedSnapshots>(
    () => {
      const query = !offlineReport && snapshotCount.value > 0 ? recording() : null;
      return query && address("snapshot/joined", { run: query["run"], worker: query["worker"], span: query["span"] });
    },
    () => snapshotCount.value,
  );
  return (ns, until) => (recording() ? snapshotLocation(data.value?.snapshots ?? [], ns, until) : null);
}
