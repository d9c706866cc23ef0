"""One file per accelerator platform, each with a `VENDOR`; found by listing this folder. Keep heavy imports out."""
