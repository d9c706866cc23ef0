import { ref, type Ref } from "vue";

function matches(query: string): Ref<boolean> {
  const list = window.matchMedia(query);
  const is = ref(list.matches);
  list.addEventListener("change", (event) => (is.value = event.matches));
  return is;
}

/** Whether the screen has room for what is merely nice to have. */
export const wide = matches("(min-width: 1700px)");
/** Whether three columns fit side by side. */
export const roomy = matches("(min-width: 1501px)");
