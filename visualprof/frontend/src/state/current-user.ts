// The logged-in user; null if there are no accounts, or for viewers of a single run.
import { computed, ref, shallowRef } from "vue";
import { offlineReport, type Person } from "../api";

export const currentUser = shallowRef<Person | null>(null);
/** When the link to the run expires; null without a link. */
export const linkExpiresNs = shallowRef<number | null>(null);
/** Whether the server rejects every change. */
export const readOnly = ref(false);
/** Whether the user may add runs, jobs and models. */
export const mayChange = computed(
  () => !readOnly.value && currentUser.value?.role !== "viewer" && linkExpiresNs.value === null && !offlineReport,
);
