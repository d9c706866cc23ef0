// The command that restarts the dashboard with an agent on its own machine.
import { computed, onMounted, ref, type ComputedRef } from "vue";
import { address, get, type Status } from "../api";

const quoted = (path: string) => (/[^\w./-]/.test(path) ? `'${path.replaceAll("'", "'\\''")}'` : path);

export function useRestartCommand(): ComputedRef<string> {
  const logdirs = ref<string[]>([]);
  onMounted(async () => {
    const status = await get<Status>(address("status")).catch(() => null);
    logdirs.value = status?.body.logdirs ?? [];
  });
  return computed(() => `visualprof --logdir ${logdirs.value.map(quoted).join(" ") || "DIR"} --with-agent`);
}
