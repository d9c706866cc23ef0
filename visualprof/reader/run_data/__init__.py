"""Read run data: the scalars and samples that training programs log for TensorBoard or VisualDL.

- `framing` splits a file into records, and skips damage.
- `events` and `records` parse the records of TensorBoard and of VisualDL into the same rows.
- `event_file` reads one file, and continues after the last whole record when the file grows.
- `growth` passes values from child processes through the cache; `reading` reads files in this process.
- `join` combines the files of a folder: restarts replace points, parallel writers are separate lines.
- `folders` assigns the files of a log directory to runs and their lines.
"""
