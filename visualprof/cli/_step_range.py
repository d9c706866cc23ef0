"""The option --step-range: which ranges of a profile are its steps."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the option --step-range."""
    parser.add_argument(
        "--step-range",
        default="",
        metavar="PATTERN",
        help="Use the ranges whose names match PATTERN as steps, such as 'train_*' (default: the steps of the file).",
    )
