"""A fleet at an address of Ray's client, in a process of its own: Ray leaves files of its client's server open.

Prints the names of the nodes that the labels choose, and how a call at each and at any node of a kind ends.
"""

from __future__ import annotations

import json
import socket
import sys
import time

from tests.remote.fleet_sites import cluster
from visualprof.remote import fleets


def main() -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    group = {"labels": {"zone": "b", "ray.io/node-group": "small"}}
    with cluster({"labels": {"zone": "a"}}, group, client=port):
        _, fleet = fleets.open_fleet(f"ray://127.0.0.1:{port}", {"labels": "zone=b"}, 0)
        nodes = fleet.nodes()
        wanted = [fleets.PlacementRequest(nodes[0].kind, name, 1) for name in (nodes[0].name, "")]
        ends = [_ended(fleet.place("no order", each)) for each in wanted]
        fleet.close()
    sys.stdout.write(json.dumps({"kinds": [node.kind for node in nodes], "ends": ends}) + "\n")


def _ended(call: fleets.Placement) -> list[str]:
    while (progress := call.poll()).state in ("waiting", "running"):
        time.sleep(0.1)
    return [progress.state, progress.text.partition(":")[0]]


if __name__ == "__main__":
    main()
