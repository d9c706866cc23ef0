"""One file a vendor, each with a `VENDOR`; found by listing this folder. Nothing heavy is imported at their top."""
