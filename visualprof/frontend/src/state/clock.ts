// The time as the page shows it: one tick a second for everything that says "5 s ago".
import { createSharedComposable, useTimestamp } from "@vueuse/core";

export const useNow = createSharedComposable(() => useTimestamp({ interval: 1000 }));
