// Old versions of torch record call stacks of operators, but no modules; recording stacks again would not help.
import { computed, type ComputedRef } from "vue";
import type { OperatorAnswer } from "../../api/model";
import { useView } from "../../state";

/** Whether operators of the recording have call stacks. */
export function useRecordedStacks(): ComputedRef<boolean> {
  const { data } = useView<OperatorAnswer>("view/operator", () => ({ "min.stacks": 1, limit: 1 }));
  return computed(() => (data.value?.columns.name.length ?? 0) > 0);
}
