// The logged-in user; null if there are no accounts, or for viewers of a single run.
import { shallowRef } from "vue";
import type { Person } from "../api";

export const currentUser = shallowRef<Person | null>(null);
/** When the link to the run expires; null without a link. */
export const linkExpiresNs = shallowRef<number | null>(null);
