// Components for pages. Components that only some pages need are imported from their own files, so that the first page
// does not load them.
export { default as ConfirmButton } from "./confirm-button.vue";
export { default as ColumnChooser } from "./column-chooser.vue";
export { default as CommandLine } from "./command-line.vue";
export { default as DataTable } from "./data-table.vue";
export { emptyColumns } from "./empty-columns";
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
export type { RowLink } from "./row-links";
export { default as SearchBox } from "./search-box.vue";
export { default as Segmented } from "./segmented.vue";
export { createColumns, type Column } from "./table-columns";
export { default as TablePanel, type RowOf } from "./table-panel.vue";
export { default as TopControl } from "./top-control.vue";
export { useVisibleColumns } from "./visible-columns";
export { default as Waiting } from "./waiting.vue";
