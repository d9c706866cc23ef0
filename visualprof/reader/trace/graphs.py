"""Contents of captured graphs, stored once for all launches with the same contents."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from visualprof.reader.trace import ArgColumn, Bytes, Ids, Ints


class Graphs(msgspec.Struct, frozen=True):
    """Templates of graph contents, and the launches.

    Attributes:
        call: (l,) rows of the launch calls.
        work: (w,) rows of the launched device work, by launch and start.
        first: (l + 1,) slice of each launch in `work`.
        template: (l,) template of each launch.
        nodes: (t + 1,) slice of each template in `name`, `category` and `parent`. Parents come before their children,
            and the root comes first.
        kernels: (t + 1,) slice of each template in `owner`.
        name: String id of each node.
        category: Category of each node.
        parent: Index of the parent in the template, -1 for the launch itself.
        owner: Index of the innermost node around each kernel, in the template.
        args: Arguments of the nodes.
    """

    call: Ids
    work: Ids
    first: Ints
    template: Ids
    nodes: Ints
    kernels: Ints
    name: Ids
    category: Bytes
    parent: Ids
    owner: Ids
    args: Mapping[str, ArgColumn]
