// What the settings panel of a page of run data shows and changes.
import type { Ref } from "vue";
import type { ApiError } from "../api";
import { usePolled } from "../state";
import type { useShownRuns } from "./shown-runs";

interface DataAnswer {
  complete: boolean;
  warnings?: readonly string[];
}

export interface DataSource {
  /** Page with the texts. */
  page: string;
  /** Expression for tags; undefined if the page has none. */
  tagText?: Ref<string>;
  runText: Ref<string>;
  shownRuns: Readonly<Ref<readonly unknown[]>>;
  /** Whether the page shows all runs without an expression. */
  usesAllRuns?: boolean;
  data: Readonly<Ref<DataAnswer | null>>;
  error: Readonly<Ref<ApiError | null>>;
  /** Whether an expression is invalid. */
  isInvalid: Readonly<Ref<boolean>>;
  /** Whether the data has nothing to show. */
  isEmpty: Readonly<Ref<boolean>>;
}

const POLL_MS = 3000;
const READING_POLL_MS = 300;

/** Request `url()` repeatedly while a run is shown: often while the server reads the files. */
export function usePolledData<T extends DataAnswer>(url: () => string, { shownRuns }: ReturnType<typeof useShownRuns>) {
  return usePolled<T>(
    () => (shownRuns.value.length > 0 ? url() : null),
    (answer) => (answer?.complete === false ? READING_POLL_MS : POLL_MS),
  );
}
