// Links from a recording to the memory snapshot of the same process.
import { computed } from "vue";
import type { RouteLocationRaw } from "vue-router";
import { address, offlineReport, type JoinedSnapshots, type Query } from "../api";
import { useResource } from "./resource";
import { runs, runSpans } from "./runs";

const snapshotCount = computed(
  () => runs.value.flatMap(runSpans).filter((candidate) => candidate.views.includes("snapshot")).length,
);

/**
 * Return the function that links to the snapshot, or to its moment `ns` after the first event of the recording; null if
 * no snapshot is joined with the recording, or its history does not contain the moment.
 */
export function useSnapshotLink(recording: () => Query | null): (ns?: number) => RouteLocationRaw | null {
  const { data } = useResource<JoinedSnapshots>(
    () => {
      const query = !offlineReport && snapshotCount.value > 0 ? recording() : null;
      return query && address("snapshot/joined", { run: query["run"], worker: query["worker"], span: query["span"] });
    },
    () => snapshotCount.value,
  );
  return (ns) => {
    const snapshot = data.value?.snapshots.find(
      ({ start_ns: start, end_ns: end }) => ns === undefined || (ns >= start && ns <= end),
    );
    if (!snapshot || !recording()) return null;
    const { run, worker, span, recording: file } = snapshot;
    return {
      path: "/snapshot",
      query: { run, worker, span, ...(ns !== undefined && { at: `${Math.round(ns)}@${file}` }) },
    };
  };
}
