// The models that can be shown, and new ones brought by hand.
import { computed, ref, shallowRef } from "vue";
import { address, type ApiError, as_error, get, send } from "../../api/client";
import { run, runs } from "../../state";
import type { ModelEntry, ModelsAnswer } from "../../api/graph";

export type Models = ReturnType<typeof useModels>;

export function useModels() {
  const answer = shallowRef<ModelsAnswer | null>(null);
  const error = shallowRef<ApiError | null>(null);
  /** Name of the file on its way; empty otherwise. */
  const uploading = ref("");
  const upload_error = shallowRef<ApiError | null>(null);

  async function load(): Promise<void> {
    try {
      answer.value = (await get<ModelsAnswer>(address("models")))?.body ?? null;
      error.value = null;
    } catch (failure) {
      error.value = as_error(failure);
    }
  }

  /** Those of the selected run first, then the newest. */
  const sorted = computed<ModelEntry[]>(() => {
    const own = (one: ModelEntry) => (one.run !== null && one.run === run.value?.id ? 0 : one.uploaded ? 1 : 2);
    return [...(answer.value?.models ?? [])].sort((a, b) => own(a) - own(b) || b.modified_ns - a.modified_ns || a.id.localeCompare(b.id));
  });
  const stamp = computed(() => runs.value.map((one) => `${one.id} ${one.modified_ns}`).join());

  /** The new model's id; null when the server refused it. */
  async function upload(file: File): Promise<string | null> {
    uploading.value = file.name;
    upload_error.value = null;
    try {
      const entry = await send<ModelEntry>("POST", address("models", { name: file.name }), file);
      await load();
      return entry.id;
    } catch (failure) {
      upload_error.value = as_error(failure);
      return null;
    } finally {
      uploading.value = "";
    }
  }

  return { answer, error, sorted, stamp, load, upload, uploading, upload_error };
}
