"""Measures models that a dashboard gives out, on this machine.

visualprof agent --server URL --token T   registers and works until it is stopped
visualprof agent install-runtime NAME     makes a Python environment with a runtime, e.g. megengine==1.13.0
visualprof agent probe                    prints what this machine is and has, as JSON
"""

from __future__ import annotations

import argparse

from visualprof.errors import VisualprofError
from visualprof.remote.agent import command
from visualprof.remote.agent.faults import AgentError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    command.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Runs the agent until it is stopped, or does what the action says."""
    try:
        return command.run(args)
    except AgentError as error:
        raise VisualprofError(error.error, error.hint) from None
