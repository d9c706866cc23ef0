"""One file a format, each with a `FORMAT`; found by listing this folder."""
