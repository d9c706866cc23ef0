/** Whether the letters of each word occur in the text in this order: "pyth 425" finds "thread 425 (python3)". */
export function matchesFuzzy(text: string, pattern: string): boolean {
  const where = text.toLowerCase();
  return pattern
    .toLowerCase()
    .split(/\s+/)
    .filter(Boolean)
    .every((word) => where.includes(word) || hasLettersInOrder(where, word));
}

function hasLettersInOrder(text: string, word: string): boolean {
  // A shorter word would match everything.
  if (word.length < 3) return false;
  let position = -1;
  for (const letter of word) {
    position = text.indexOf(letter, position + 1);
    if (position < 0) return false;
  }
  return true;
}
