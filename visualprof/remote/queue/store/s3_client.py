"""Create clients of S3-compatible services."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from visualprof.errors import VisualprofError
from visualprof.messages import msg
from visualprof.remote.queue.store.bucket_url import BucketLocation


def create_client(location: BucketLocation, endpoint: str) -> Any:
    """Create a client. Credentials come from the environment, the usual files or the machine's role."""
    boto3: Any
    botocore_config: Any
    try:
        boto3, botocore_config = import_module("boto3"), import_module("botocore.config")
        boto_error: Any = import_module("botocore.exceptions").BotoCoreError
    except ImportError as error:
        raise VisualprofError(
            msg("queue.store_needs_boto3", "a store needs boto3"),
            msg("queue.pip_install_visualprof_team", "pip install 'visualprof[team]'"),
        ) from error
    config = botocore_config.Config(
        signature_version="s3v4",
        s3={"addressing_style": "virtual" if location.virtual else "path"},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        connect_timeout=5,
        read_timeout=60,
        retries={"total_max_attempts": 2},
        max_pool_connections=32,
    )
    try:
        session = boto3.Session()
        if session.get_credentials() is None:
            hint = msg("queue.set_aws_access_key", "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE")
            raise VisualprofError(msg("queue.there_no_credentials", f"there are no credentials for {location}"), hint)
        return session.client("s3", endpoint_url=endpoint, region_name=location.region, config=config)
    except boto_error as error:
        raise VisualprofError(
            msg("queue.store_cannot_used", f"the store {location} cannot be used: {error}")
        ) from error
