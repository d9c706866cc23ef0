import { address, type Query } from "../api/client";
import { comparedQuery, comparedStamp } from "./compare";
import { useResource, type Resource } from "./resource";
import { fileStamp, selectedQuery } from "./selection";

/** The path that asks about two runs instead of one. */
export const DIFF_PATH = "diff";

/** The address of a view or chart of the selected span, or of `DIFF`; null while that cannot be shown. */
export function viewAddress(path: string, query: Query = {}): string | null {
  const selection = path === DIFF_PATH ? comparedQuery.value : selectedQuery.value;
  return selection && address(path, { ...selection, ...query });
}

/** Changes when what `path` tells of does. */
export const dataStamp = (path: string): string => (path === DIFF_PATH ? comparedStamp.value : fileStamp.value);

/** A view or chart of the selected span, read again when the selection, the file or `query()` changes. */
export function useView<T>(path: string, query: () => Query = () => ({})): Resource<T> {
  return useResource<T>(
    () => viewAddress(path, query()),
    () => dataStamp(path),
  );
}
