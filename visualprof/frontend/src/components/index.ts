// Components for pages. Components that only some pages need are imported from their own files, so that the first page
// does not load them.
export { default as ConfirmButton } from "./confirm-button.vue";
export { default as ColumnChooser } from "./table/column-chooser.vue";
export { default as CommandLine } from "./command-line.vue";
export { default as DataTable } from "./table/data-table.vue";
export { emptyColumns } from "./table/empty-columns";
export { default as FactList } from "./fact-list.vue";
export { default as FilterChip } from "./filter-chip.vue";
export { default as Meter } from "./meter.vue";
export { default as MiddleEllipsis } from "./middle-ellipsis.vue";
export { default as RelativeTime } from "./relative-time.vue";
export { default as Panel } from "./panel.vue";
export { default as Picker } from "./picker.vue";
export { default as PopOver } from "./pop-over.vue";
export { default as Problem } from "./problem.vue";
export { default as ProgressBar } from "./progress-bar.vue";
export type { RowLink } from "./table/row-links";
export { default as SearchBox } from "./search-box.vue";
export { default as Segmented } from "./segmented.vue";
export { createColumns, type Column } from "./table/columns";
export type { RowDisplay, TableRow } from "./table/rows";
export { requestedSort, useSort } from "./table/sort-keys";
export { default as TablePanel } from "./table/table-panel.vue";
export { default as TopControl } from "./top-control.vue";
export { useColumnLayout } from "./table/column-layout";
export { default as Waiting } from "./waiting.vue";
