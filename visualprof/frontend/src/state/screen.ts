import { ref } from "vue";

const query = window.matchMedia("(min-width: 1700px)");

/** Whether the screen has room for what is merely nice to have. */
export const wide = ref(query.matches);
query.addEventListener("change", (event) => (wide.value = event.matches));
