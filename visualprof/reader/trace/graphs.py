"""What is inside the launches of captured graphs: once for all that are alike."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from visualprof.reader.trace import ArgColumn, Bytes, Ids, Ints


class Graphs(msgspec.Struct, frozen=True):
    """Templates of what is inside launches, and the launches.

    call: (l,) rows of the calls. work: (w,) rows of what they launched, by launch and start. first: (l + 1,) slice of
    each launch in `work`. template: (l,) its template.
    nodes: (t + 1,) slice of each template in name, category, parent: what is inside, those around before those inside,
    the whole graph first. parent: place in the template, -1 for the launch itself. kernels: (t + 1,) slice of each
    template in `owner`: the place of what is innermost around each kernel. args: of the nodes.
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
