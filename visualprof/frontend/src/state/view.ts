import { address, type Query } from "../api/client";
import { compared_query, compared_stamp } from "./compare";
import { useResource, type Resource } from "./resource";
import { file_stamp, selected_query } from "./selection";

/** The path that asks about two runs instead of one. */
export const DIFF = "diff";

/** The address of a view or chart of the selected span, or of `DIFF`; null while that cannot be shown. */
export function view_address(path: string, query: Query = {}): string | null {
  const selection = path === DIFF ? compared_query.value : selected_query.value;
  return selection && address(path, { ...selection, ...query });
}

/** Changes when what `path` tells of does. */
export const stamp_of = (path: string): string => (path === DIFF ? compared_stamp.value : file_stamp.value);

/** A view or chart of the selected span, read again when the selection, the file or `query()` changes. */
export function useView<T>(path: string, query: () => Query = () => ({})): Resource<T> {
  return useResource<T>(
    () => view_address(path, query()),
    () => stamp_of(path),
  );
}
