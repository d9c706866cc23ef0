"""Compare two models: nodes, weights and attributes that only one has or that differ.

Example:
  visualprof compare before.onnx after.onnx
"""

from __future__ import annotations

import argparse

from visualprof.cli._subjects import model_at
from visualprof.cli.view import add_output_arguments, print_answer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("model", metavar="MODEL", help="A model file.")
    parser.add_argument("other", metavar="OTHER", help="The model file to compare it with.")
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print the kinds of differences with their number of nodes, and the nodes."""
    from visualprof.views.measure.graphs.compare import compare_graphs

    print_answer(compare_graphs(model_at(args.model), model_at(args.other)).differences, args)
    return 0
