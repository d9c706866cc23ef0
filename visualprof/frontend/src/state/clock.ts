// The displayed time: one tick per second for texts such as "5 s ago".
import { createSharedComposable, useTimestamp } from "@vueuse/core";

export const useNow = createSharedComposable(() => useTimestamp({ interval: 1000 }));
