// The server's check of the draft: the resulting job, errors per field, and what machines offer. It is requested when
// the user stops typing.
import {
  computed,
  inject,
  onScopeDispose,
  provide,
  reactive,
  ref,
  shallowRef,
  watch,
  type ComputedRef,
  type InjectionKey,
  type ShallowRef,
} from "vue";
import { address, asError, send, type ApiError, type Drafted, type FieldError } from "../../api";
import { draft, newSpec, toRequest } from "./draft";
import { t } from "../../locales";

const PAUSE_MS = 200;

export interface DraftCheck {
  /** The last answer; null before the first one for a model. */
  drafted: ShallowRef<Drafted | null>;
  /** The swept dimension ("" for none): the typed one, or the server's choice. */
  swept: ComputedRef<string>;
  errors: ComputedRef<FieldError[]>;
  warnings: ComputedRef<FieldError[]>;
  /** Errors that no field on the page shows. */
  unclaimed: ComputedRef<FieldError[]>;
  /** Return the errors of a field and of the fields below it. */
  at: (path: string, kind?: "errors" | "warnings") => FieldError[];
  hasError: (path: string) => boolean;
  /** Fields that show their own errors. */
  claims: Map<symbol, readonly string[]>;
  failure: ShallowRef<ApiError | null>;
  /** Whether the answer is for the current input. */
  latest: () => Promise<Drafted | null>;
  /** Errors from submitting the job. */
  refused: (errors: readonly FieldError[]) => void;
}

const KEY: InjectionKey<DraftCheck> = Symbol("check");

/** Whether a field is at or below a path: `specs[1]` contains `specs[1].agent`, but not `specs[12]`. */
export function isWithin(field: string, path: string): boolean {
  return field === path || (field.startsWith(path) && /^[.[]/.test(field.slice(path.length)));
}

export function provideDraftCheck(): DraftCheck {
  const drafted: ShallowRef<Drafted | null> = shallowRef(null);
  const failure: ShallowRef<ApiError | null> = shallowRef(null);
  /** The draft of the last answer. */
  const answered = ref("");
  const claims = reactive(new Map<symbol, readonly string[]>());
  let control = new AbortController();
  let timer = 0;

  // Input errors have texts in the locales.
  const errors = computed(() =>
    (drafted.value?.errors ?? []).map(({ field, error, hint, code }) =>
      code ? { field, error: t(`run.wrong.${code}`), hint: null } : { field, error, hint },
    ),
  );
  const warnings = computed<FieldError[]>(() => drafted.value?.warnings ?? []);
  const shownFields = computed(() => [...claims.values()].flat());
  const homeless = computed(() =>
    errors.value.filter((error) => !shownFields.value.some((path) => isWithin(error.field, path))),
  );
  const body = computed(() =>
    draft.model ? JSON.stringify(toRequest(drafted.value?.dims ?? Object.keys(draft.dims))) : "",
  );

  async function ask(): Promise<void> {
    clearTimeout(timer);
    control.abort();
    control = new AbortController();
    const { signal } = control;
    const requestBody = body.value;
    try {
      const answer = await send<Drafted>("POST", address("jobs/draft"), JSON.parse(requestBody), signal);
      if (signal.aborted) return;
      answered.value = requestBody;
      drafted.value = answer;
      failure.value = null;
      // The server makes the first choice of machines.
      draft.specs ??= answer.request.specs.map((spec) =>
        newSpec({ backend: spec.backend, where: spec.agent ? `agent:${spec.agent}` : "", device: spec.device }),
      );
    } catch (error) {
      if (signal.aborted) return;
      failure.value = asError(error);
    }
  }

  watch(
    body,
    (now) => {
      control.abort();
      clearTimeout(timer);
      if (now !== "") timer = window.setTimeout(() => void ask(), PAUSE_MS);
    },
    { immediate: true },
  );
  // Answers for another model are not shown with this one.
  watch(
    () => draft.model?.blob,
    () => (drafted.value = null),
  );
  onScopeDispose(() => {
    control.abort();
    clearTimeout(timer);
  });

  async function latest(): Promise<Drafted | null> {
    // An answer may name dimensions whose sizes are now needed; the check is then repeated.
    for (let tries = 0; tries < 3 && answered.value !== body.value; tries += 1) await ask();
    return answered.value === body.value ? drafted.value : null;
  }

  const at = (path: string, kind: "errors" | "warnings" = "errors") =>
    (kind === "errors" ? errors : warnings).value.filter((error) => isWithin(error.field, path));
  const check: DraftCheck = {
    drafted,
    errors,
    warnings,
    unclaimed: homeless,
    at,
    claims,
    failure,
    latest,
    swept: computed(() => draft.sweep ?? drafted.value?.request.sweep?.dim ?? ""),
    hasError: (path) => at(path).length > 0,
    refused: (errors) =>
      (drafted.value = drafted.value && { ...drafted.value, errors: errors.map((error) => ({ ...error, code: "" })) }),
  };
  provide(KEY, check);
  return check;
}

export function useDraftCheck(): DraftCheck {
  const check = inject(KEY);
  if (!check) throw new Error("this component stands outside the form");
  return check;
}
