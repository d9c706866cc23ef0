"""A job as somebody types it: what is left open is chosen here, for the Run page and for `visualprof submit` alike."""
