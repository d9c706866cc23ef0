"""Steps of a recording and of inference servers: windows, durations, stages."""
