// The time as the page shows it: one tick a second for everything that says "5 s ago".
import { onScopeDispose, ref, type Ref } from "vue";

const TICK_MS = 1000;
const now_ms = ref(Date.now());
let users = 0;
let timer = 0;

export function useNow(): Ref<number> {
  users += 1;
  if (users === 1) {
    now_ms.value = Date.now();
    timer = window.setInterval(() => (now_ms.value = Date.now()), TICK_MS);
  }
  onScopeDispose(() => {
    users -= 1;
    if (users === 0) clearInterval(timer);
  });
  return now_ms;
}
