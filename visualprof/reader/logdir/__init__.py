"""Log directories: which files there are, what they are, and their traces.

directory.py      all of it together: the log directories as they are now
scan.py           the files that are there, and what each is
layout.py         runs, workers and spans by the names of files
listing.py        what users see: runs with their workers and spans
entry.py          what is known of one file, and whether it is at rest
rounds.py         when the next scan comes; watch.py: word of changes from the system
file_index.py     what earlier servers knew of the files
pool.py           files are parsed by processes of this machine; cluster_pool.py: by a cluster; parsers.py: which
summary.py        what comes of a parse
open_traces.py    the traces that stay open
models.py         graphs of models
remote_files.py   files that are kept elsewhere; remote_folder.py: at an address; addresses.py: what reads those
"""
