// The short names of kernels in changes of a replay: `kernel[void f<float>(int)]*0.5` is `kernel[f f32]*0.5`.
/** Return the changes in a text. */
export function partsOfChange(text: string): string[] {
  return text.split(";").map((part) => part.trim());
}

/** Return changes with the short names of their kernels, by full name. A replay accepts both. */
export function shortChange(text: string, shortNames: Readonly<Record<string, string>> = {}): string {
  const short = (part: string) => {
    const [, start = "", name = "", end = ""] = /^(kernel\[)(.+)(\][*=].*)$/.exec(part) ?? [];
    return name in shortNames ? `${start}${shortNames[name] ?? name}${end}` : part;
  };
  return partsOfChange(text).map(short).join("; ");
}
