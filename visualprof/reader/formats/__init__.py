"""Profile formats, one file each with a `FORMAT`; found by listing this folder."""
