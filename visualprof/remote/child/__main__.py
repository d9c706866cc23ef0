"""Entry point of `python -m visualprof.remote.child WORK STAGE`."""

import sys

from visualprof.remote.child.main import main

sys.exit(main(sys.argv[1:]))
