"""Log directories: their files, what each file is, and their traces.

- directory.py: the current state of the log directories
- scan.py: finds the files, and what each is
- layout.py: derives run, worker and span from file names
- listing.py: what users see: runs with their workers and spans
- entry.py: state of one file, and whether it is still changing
- scan_scheduler.py: decides when to scan; watch.py: change notifications from the system
- file_index.py: findings of earlier servers about the files
- parsers.py: chooses the parser; pool.py: processes of this machine; cluster_pool.py: workers of a cluster
- summary.py: result of a parse
- open_traces.py: traces that stay open
- models.py: graphs of models
- remote_files.py: files stored remotely; remote_folder.py: a folder at an address; addresses.py: reads addresses
"""
