// Who is logged in; null where there are no accounts.
import { shallowRef } from "vue";
import type { Person } from "../api";

export const person = shallowRef<Person | null>(null);
