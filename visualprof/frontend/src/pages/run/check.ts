// What is wrong with the draft, field by field: our own look first, the server's as soon as the typing pauses.
import { computed, inject, onScopeDispose, provide, reactive, ref, shallowRef, watch, type ComputedRef, type InjectionKey, type Ref, type ShallowRef } from "vue";
import { useI18n } from "vue-i18n";
import { address, as_error, send, type ApiError } from "../../api/client";
import type { AgentRow, CheckAnswer, FieldError } from "../../api/model";
import { draft } from "./draft";
import { request_of, typing_errors } from "./request";

const PAUSE_MS = 350;

export interface Check {
  errors: ComputedRef<FieldError[]>;
  warnings: ComputedRef<FieldError[]>;
  /** Those that no field on the page shows. */
  homeless: ComputedRef<FieldError[]>;
  /** Of the field itself and of what is below it. */
  at: (path: string, kind?: "errors" | "warnings") => FieldError[];
  wrong: (path: string) => boolean;
  /** Fields that show their own errors. */
  claims: Map<symbol, readonly string[]>;
  checking: Ref<boolean>;
  failure: ShallowRef<ApiError | null>;
  /** What the server found wrong when the job was submitted. */
  refused: (errors: readonly FieldError[]) => void;
}

const KEY: InjectionKey<Check> = Symbol("check");

/** `specs[1]` holds `specs[1].agent`, but not `specs[12]`. */
export function within(field: string, path: string): boolean {
  return field === path || (field.startsWith(path) && /^[.[]/.test(field.slice(path.length)));
}

export function provideCheck(agents: () => readonly AgentRow[]): Check {
  const { t } = useI18n();
  const answer: ShallowRef<CheckAnswer | null> = shallowRef(null);
  const failure: ShallowRef<ApiError | null> = shallowRef(null);
  const checking = ref(false);
  const claims = reactive(new Map<symbol, readonly string[]>());
  let control = new AbortController();
  let timer = 0;

  const typed = computed(() => (draft.model ? typing_errors(draft, t) : []));
  const errors = computed(() => {
    const own = typed.value;
    const theirs = (answer.value?.errors ?? []).filter((error) => !own.some((mine) => within(error.field, mine.field) || within(mine.field, error.field)));
    return draft.model ? [...own, ...theirs] : [];
  });
  const warnings = computed(() => (draft.model ? (answer.value?.warnings ?? []) : []));
  const shown = computed(() => [...claims.values()].flat());
  const homeless = computed(() => errors.value.filter((error) => !shown.value.some((path) => within(error.field, path))));

  async function ask(body: string): Promise<void> {
    control = new AbortController();
    const { signal } = control;
    try {
      answer.value = await send<CheckAnswer>("POST", address("jobs/check"), JSON.parse(body), signal);
      failure.value = null;
    } catch (error) {
      if (signal.aborted) return;
      failure.value = as_error(error);
    }
    checking.value = false;
  }

  watch(
    () => (draft.model ? JSON.stringify(request_of(draft, agents())) : ""),
    (body) => {
      control.abort();
      clearTimeout(timer);
      checking.value = body !== "";
      if (body !== "") timer = window.setTimeout(() => void ask(body), PAUSE_MS);
      else answer.value = null;
    },
    { immediate: true },
  );
  onScopeDispose(() => {
    control.abort();
    clearTimeout(timer);
  });

  const at = (path: string, kind: "errors" | "warnings" = "errors") => (kind === "errors" ? errors : warnings).value.filter((error) => within(error.field, path));
  const check: Check = {
    errors, warnings, homeless, at, claims, checking, failure,
    wrong: (path) => at(path).length > 0,
    refused: (found) => (answer.value = { errors: [...found], warnings: answer.value?.warnings ?? [], points: 0 }),
  };
  provide(KEY, check);
  return check;
}

export function useCheck(): Check {
  const check = inject(KEY);
  if (!check) throw new Error("this component stands outside the form");
  return check;
}
