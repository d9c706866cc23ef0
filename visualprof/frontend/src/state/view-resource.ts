import { address, type Query } from "../api/client";
import { comparedQuery, comparedStamp } from "./compare";
import { useResource, type Resource } from "./resource";
import { fileStamp, selectedQuery } from "./selection";

/** The path for comparing two runs. */
export const DIFF_PATH = "diff";

/** Return the address of a view or chart of the selected span, or of `DIFF_PATH`; null while that cannot be shown. */
export function viewAddress(path: string, query: Query = {}): string | null {
  const selection = path === DIFF_PATH ? comparedQuery.value : selectedQuery.value;
  return selection && address(path, { ...selection, ...query });
}

/** Return a value that changes with the data of `path`. */
export const dataStamp = (path: string): string => (path === DIFF_PATH ? comparedStamp.value : fileStamp.value);

/** Load a view or chart of the selected span, again when the selection, the file or `query()` changes. */
export function useView<T>(path: string, query: () => Query = () => ({})): Resource<T> {
  return useResource<T>(
    () => viewAddress(path, query()),
    () => dataStamp(path),
  );
}
