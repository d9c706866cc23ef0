// The token of the server's session: it comes with the printed link, or the user is asked for it.
import { shallowRef } from "vue";

// Of this origin and path, its port included: a cookie would go to every port of the host, whoever serves there.
const KEY = `visualprof.token:${location.pathname}`;
const HEADER = "X-Visualprof-Token";

let token = "";

/** Somebody waits for the user's token; answered with one that is right, or null when he has none. */
export const question = shallowRef<((token: string | null) => void) | null>(null);

/** Storage may be forbidden, as in an embedded page: the token then lasts as long as the page. */
function stored(keep?: string): string {
  try {
    if (keep !== undefined) localStorage.setItem(KEY, keep);
    return localStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}

function keep(given: string): void {
  token = given;
  stored(given);
}

/** Takes the token out of the address, where others may see it, and the router would keep it. */
function begin(): void {
  const here = new URL(location.href);
  const given = here.searchParams.get("token");
  if (given === null) token = stored();
  else {
    keep(given);
    here.searchParams.delete("token");
    history.replaceState(history.state, "", here);
  }
}

/** What a request carries. */
export function session_headers(given = token): Record<string, string> {
  return given ? { [HEADER]: given } : {};
}

export async function is_trusted(given?: string): Promise<boolean> {
  const answer = await fetch("api/v1/session", { headers: session_headers(given) }).catch(() => null);
  return answer?.ok === true && ((await answer.json()) as { trusted: boolean }).trusted;
}

let asking: Promise<boolean> | null = null;

/** Asks the user, all who need it at once; false when he has no token. Another page of this browser may have it by now. */
export function ask_token(): Promise<boolean> {
  asking ??= (async () => {
    const other = stored();
    const given = other !== token && (await is_trusted(other)) ? other : await new Promise<string | null>((resolve) => (question.value = resolve));
    question.value = asking = null;
    if (given !== null) keep(given);
    return given !== null;
  })();
  return asking;
}

begin();
