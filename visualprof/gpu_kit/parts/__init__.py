"""One file per part; see `visualprof.gpu_kit.Part`."""
