"""A private OpenStack Swift with its S3 interface: a server that checks signatures, for what must be refused.

It needs a file system with extended attributes. It is skipped where it is not installed; stand-ins that accept forged
signatures back no test here.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

USER, PASSWORD = "test:tester", "testing"
_BUCKETS = itertools.count()
_SERVERS = ("account", "container", "object")
_PROXY = """
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
cors_allow_origin = *
swift_dir = {etc}
user = {user}
log_address = {etc}/no-log
[pipeline:main]
pipeline = catch_errors proxy-logging cache s3api tempauth bulk slo dlo proxy-logging proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
conn_timeout = 5
node_timeout = 20
error_suppression_limit = 1000000
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = testing .admin
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
cors_preflight_allow_origin = *
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:{nothing}
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:proxy-logging]
use = egg:swift#proxy_logging
[filter:bulk]
use = egg:swift#bulk
[filter:slo]
use = egg:swift#slo
[filter:dlo]
use = egg:swift#dlo
"""
_STORAGE = """
[DEFAULT]
devices = {devices}
bind_ip = 127.0.0.1
bind_port = {port}
mount_check = false
workers = 0
swift_dir = {etc}
user = {user}
log_address = {etc}/no-log
fallocate_reserve = 0
[pipeline:main]
pipeline = {kind}-server
[app:{kind}-server]
use = egg:swift#{kind}
"""
_SWIFT = """
[swift-hash]
swift_hash_path_prefix = visualprof
swift_hash_path_suffix = visualprof
[storage-policy:0]
name = one
default = yes
"""
# In a process of its own, as the library takes a second to load: one device each, on the port of its server.
_RINGS = """
import json, sys
from swift.common.ring import RingBuilder
folder, ports = sys.argv[1], json.loads(sys.argv[2])
for kind, port in ports.items():
    builder = RingBuilder(part_power=4, replicas=1, min_part_hours=0)
    builder.add_dev({"region": 1, "zone": 1, "ip": "127.0.0.1", "port": port, "device": "sdb1", "weight": 1.0})
    builder.rebalance()
    builder.get_ring().save(f"{folder}/{kind}.ring.gz")
"""


@dataclass
class Swift:
    """A running server."""

    folder: Path
    port: int
    ports: dict[str, int] = field(default_factory=dict[str, int])  # of the servers behind it
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict[str, "subprocess.Popen[bytes]"])

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def make(self) -> None:
        etc, devices = self.folder / "etc", self.folder / "devices"
        (devices / "sdb1").mkdir(parents=True)
        etc.mkdir()
        (etc / "swift.conf").write_text(_SWIFT)
        names = {"etc": etc, "devices": devices, "user": _user(), "nothing": _free_port()}
        for kind in _SERVERS:
            port = self.ports[kind] = _free_port()
            (etc / f"{kind}.conf").write_text(_STORAGE.format(kind=kind, port=port, **names))
        subprocess.run([sys.executable, "-c", _RINGS, str(etc), json.dumps(self.ports)], check=True)
        (etc / "proxy.conf").write_text(_PROXY.format(port=self.port, **names))

    def start(self, *kinds: str) -> None:
        """Those servers, or all that do not run; returns when all answer."""
        for kind in kinds or (*_SERVERS, "proxy"):
            if kind not in self.running:
                command = [_program(f"swift-{kind}-server"), str(self.folder / "etc" / f"{kind}.conf")]
                environment = {**os.environ, "EVENTLET_NO_GREENDNS": "yes"}
                with (self.folder / f"{kind}.log").open("ab") as log:
                    self.running[kind] = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        end = time.monotonic() + 30
        while not all(map(_listens, (self.port, *self.ports.values()))):  # before, it answers 404 for all that it has
            assert time.monotonic() < end, (self.folder / "proxy.log").read_text()[-2000:]
            time.sleep(0.05)

    def stop(self, *kinds: str) -> None:
        for kind in kinds or tuple(self.running):
            process = self.running.pop(kind)
            process.send_signal(signal.SIGKILL)
            process.wait()

    def client(self) -> Any:
        boto3: Any = import_module("boto3")
        core: Any = import_module("botocore.config")
        style: Any = {"addressing_style": "path"}
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=USER,
            aws_secret_access_key=PASSWORD,
            config=core.Config(s3=style, signature_version="s3v4", request_checksum_calculation="when_required"),
        )

    def new(self) -> str:
        """The URL of an empty bucket with a prefix."""
        name = f"bucket{next(_BUCKETS)}"
        self.client().create_bucket(Bucket=name)
        return f"s3://{name}/runs?endpoint={self.endpoint}"


@pytest.fixture(scope="session")
def swift_server() -> Iterator[Swift]:
    """Skipped clearly where it is not installed."""
    for needed in ("boto3", "swift", "pyeclib"):
        pytest.importorskip(needed, reason="needs a store: pip install boto3 swift pyeclib")
    with swift_running() as server:
        yield server


@contextmanager
def swift_running() -> Iterator[Swift]:
    """A server in a folder of its own, until the end of the block."""
    folder = Path(tempfile.mkdtemp(prefix="vp-swift-", dir="/tmp"))
    server = Swift(folder, _free_port())
    try:
        if not _keeps_attributes(folder):
            pytest.skip("needs a file system with extended attributes for /tmp")
        server.make()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def swift(swift_server: Swift, monkeypatch: pytest.MonkeyPatch) -> Swift:
    """With its credentials where the server looks for them."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", USER)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", PASSWORD)
    swift_server.start()
    return swift_server


def _program(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def _user() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name


def _keeps_attributes(folder: Path) -> bool:
    probe = folder / "probe"
    probe.touch()
    try:
        os.setxattr(probe, "user.visualprof", b"1")
    except (OSError, AttributeError):
        return False
    return True


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def _listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0
