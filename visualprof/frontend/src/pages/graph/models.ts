// The available models, and uploads of new ones.
import { computed, ref, shallowRef } from "vue";
import { address, type ApiError, asError, get, send } from "../../api/client";
import { t } from "../../locales";
import { run, runs, selectedQuery, useModelMatches } from "../../state";
import type { ModelEntry, ModelsAnswer } from "../../api/graph";

/** File name extensions in the file dialog. */
export const MODEL_FILES = [
  ".onnx",
  ".mge",
  ".pt2",
  ".pt",
  ".json",
  ".pdmodel",
  ".xml",
  ".pb",
  ".tflite",
  ".log",
  ".keras",
  ".mlmodel",
  ".param",
  ".safetensors",
  ".gguf",
];

export type ModelList = ReturnType<typeof useModels>;

export function useModels() {
  const answer = shallowRef<ModelsAnswer | null>(null);
  const error = shallowRef<ApiError | null>(null);
  /** Name of the file being uploaded; otherwise empty. */
  const uploading = ref("");
  const uploadError = shallowRef<ApiError | null>(null);

  async function load(): Promise<void> {
    try {
      answer.value = (await get<ModelsAnswer>(address("models")))?.body ?? null;
      error.value = null;
    } catch (failure) {
      error.value = asError(failure);
    }
  }

  const { matches, error: matchError, refresh } = useModelMatches();
  /** Per model, the share of the run's time that matches one of its nodes. */
  const shares = computed(
    () => new Map((matches.value?.matches ?? []).map((match) => [match.model, match.matched_ratio])),
  );
  /** Models that fit the selected run first, then the newest ones. */
  const files = computed<ModelEntry[]>(() => {
    const priority = (model: ModelEntry) =>
      model.run !== null && model.run === run.value?.id ? 0 : model.uploaded ? 1 : 2;
    const share = (model: ModelEntry) => Math.round((shares.value.get(model.id) ?? 0) * 100);
    return [...(answer.value?.models ?? [])].sort(
      (a, b) =>
        share(b) - share(a) || priority(a) - priority(b) || b.modified_ns - a.modified_ns || a.id.localeCompare(b.id),
    );
  });
  /** The modules of the selected run, for runs without a model file. */
  const recorded = computed<ModelEntry | null>(() => {
    const id = matches.value?.recorded ?? null;
    if (id === null) return null;
    const name = t("graph.recorded_modules");
    return { id, name, file: name, format: "modules", run: null, size_bytes: 0, modified_ns: 0, uploaded: false };
  });
  const sorted = computed(() => [...files.value, ...(recorded.value ? [recorded.value] : [])]);
  /** The model of the selected run; without a run, the newest. Null if none fits the run or that is not known yet. */
  const defaultModel = computed<ModelEntry | null>(() => {
    if (selectedQuery.value === null) return sorted.value[0] ?? null;
    const best = sorted.value.find((model) => model.id === matches.value?.best);
    return best ?? (matches.value?.reading === 0 ? recorded.value : null);
  });
  const stamp = computed(() => runs.value.map((candidate) => `${candidate.id} ${candidate.modified_ns}`).join());

  /** Return the new model's id, or null if the server rejected it. */
  async function upload(file: File): Promise<string | null> {
    uploading.value = file.name;
    uploadError.value = null;
    try {
      const entry = await send<ModelEntry>("POST", address("models", { name: file.name }), file);
      await Promise.all([load(), refresh()]);
      return entry.id;
    } catch (failure) {
      uploadError.value = asError(failure);
      return null;
    } finally {
      uploading.value = "";
    }
  }

  return {
    answer,
    error,
    matches,
    matchError,
    shares,
    sorted,
    defaultModel,
    stamp,
    load,
    upload,
    uploading,
    uploadError,
  };
}
