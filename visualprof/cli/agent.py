"""Run tasks of a dashboard on this machine: measure models, convert them, record their profiles.

Runs `remote.agent.command`, with its errors as errors of the command line.
"""

from __future__ import annotations

import argparse

from visualprof.errors import UnsafeUser, VisualprofError
from visualprof.remote.agent import command
from visualprof.remote.agent.errors import AgentError, RunsAsRoot

__doc__ = command.__doc__
add_arguments = command.add_arguments


def run(args: argparse.Namespace) -> int:
    """Run the agent until it is stopped, or run the action."""
    try:
        return command.run(args)
    except AgentError as error:
        kind = UnsafeUser if isinstance(error, RunsAsRoot) else VisualprofError
        raise kind(error.error, error.hint) from None
