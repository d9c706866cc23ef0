// Who is logged in; null where there are no accounts, and for who came by a link to one run.
import { shallowRef } from "vue";
import type { Person } from "../api";

export const currentUser = shallowRef<Person | null>(null);
/** When that link is over; null without one. */
export const linkExpiresNs = shallowRef<number | null>(null);
