"""The queue of record: jobs, tasks, agents and files, in a database and a folder. Knows no web server.

from visualprof.remote.queue.service import Remote

remote = Remote(root, data=None)      # root: reader.scan.Root of the log directory; opens nothing yet
remote.problem                        # None, or (error, hint): why nothing can be submitted here
remote.keep(name, stream.read)        # -> (sha256, size): stores an uploaded file, also one that is there already
remote.blob_path(sha256)              # -> Path; raises NotFound
remote.remember(sha256, name, found)  # what inspection found in it, as JSON's types; "graph" in it is an id of models
remote.inspected(sha256)              # -> that, or None for a file that was never inspected (or is not there)
remote.agents()                       # -> list[Agent]: for checks of a spec's agent, platform, runtime, device
"""
