"""The life of jobs and tasks, from submission to a run in the log directory."""
