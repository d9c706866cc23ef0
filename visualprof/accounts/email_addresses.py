"""Reject e-mail addresses that look like another address."""

from __future__ import annotations

import unicodedata

# Letters of other scripts that look like Latin ones.
_LOOK_ALIKES = frozenset("асеорхуіјѕԁһӏԛԝ" + "αικνορυχ")
# Latin letters that look like another Latin letter.
_LATIN_LOOK_ALIKES = frozenset("ıȷɑɡɩɪʏʟɴʀʙɢʜꞁǀ")
_EAST_ASIAN = frozenset({"CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO"})


def is_deceptive(email: str) -> bool:
    """Return whether a lower-case address may be taken for another one.

    That is an address with invisible characters, compatibility forms (such as full-width letters), letters of several
    scripts in one part, or only letters that look like Latin ones.
    """
    if email.isascii():
        return False
    if unicodedata.normalize("NFKC", email) != email:
        return True
    if any(unicodedata.category(character)[0] in "CZ" for character in email):
        return True
    local, _, domain = email.rpartition("@")
    return any(_is_deceptive_part(part) for part in (local, *domain.split(".")))


def _is_deceptive_part(part: str) -> bool:
    letters = [character for character in part if character.isalpha()]
    scripts = {unicodedata.name(letter, "?").split(" ")[0].split("-")[0] for letter in letters}
    if len(scripts) > 1 and not scripts <= _EAST_ASIAN:
        return True
    if _LATIN_LOOK_ALIKES.intersection(letters):
        return True
    if not letters:
        return any(not character.isascii() for character in part)  # combining marks, symbols, digits of other scripts
    return "LATIN" not in scripts and _LOOK_ALIKES.issuperset(letters)
