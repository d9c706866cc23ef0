"""Is a job, or a file, one that can be run?"""
