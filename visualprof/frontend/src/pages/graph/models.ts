// The models that can be shown, and new ones brought by hand.
import { computed, ref, shallowRef } from "vue";
import { address, ApiError, get } from "../../api/client";
import type { ErrorBody } from "../../api/model";
import { runs } from "../../state/runs";
import { run } from "../../state/selection";
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
      error.value = failure instanceof ApiError ? failure : new ApiError(0, String(failure));
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
      const response = await fetch(address("models", { name: file.name }), { method: "POST", body: file, headers: { "Content-Type": "application/octet-stream" } });
      const body = (await response.json().catch(() => null)) as (ModelEntry & Partial<ErrorBody>) | null;
      if (!response.ok || !body) throw new ApiError(response.status, body?.error ?? `${response.status} ${response.statusText}`, body?.hint ?? null);
      await load();
      return body.id;
    } catch (failure) {
      upload_error.value = failure instanceof ApiError ? failure : new ApiError(0, String(failure));
      return null;
    } finally {
      uploading.value = "";
    }
  }

  return { answer, error, sorted, stamp, load, upload, uploading, upload_error };
}
