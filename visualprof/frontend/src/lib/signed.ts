/** A difference: what is more has a plus, what is less a minus as wide as it. */
export function signed(value: number, text: (size: number) => string): string {
  return value === 0 ? text(0) : (value > 0 ? "+" : "−") + text(Math.abs(value));
}
