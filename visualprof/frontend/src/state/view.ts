import { address, type Query } from "../api/client";
import { useResource, type Resource } from "./resource";
import { file_stamp, selected_query } from "./selection";

/** The address of a view or chart of the selected span; null while that span cannot be shown. */
export function view_address(path: string, query: Query = {}): string | null {
  return selected_query.value && address(path, { ...selected_query.value, ...query });
}

/** A view or chart of the selected span, read again when the selection, the file or `query()` changes. */
export function useView<T>(path: string, query: () => Query = () => ({})): Resource<T> {
  return useResource<T>(() => view_address(path, query()), () => file_stamp.value);
}
