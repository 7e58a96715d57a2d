"""The address of a store in the environment."""

import os
import re
from urllib.parse import urlsplit

from packer.errors import UsageError

_ENDPOINTS = {"s3": ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT"), "gs": ()}
_AZURE_ENDPOINTS = ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")


def refuse_bad_endpoint(scheme: str) -> None:
    """Refuse an address that is not a URL, for which obstore panics at the first request.

    Raises:
        UsageError: the environment has such an address.
    """
    for name in _ENDPOINTS.get(scheme, _AZURE_ENDPOINTS):
        address = os.environ.get(name)
        if address is None or _is_url(address):
            continue
        hint = "expected http://HOST:PORT or https://HOST"
        if re.fullmatch(r"[\w.-]+(:\d+)?", address):
            hint = f"{name}=http://{address}, or https://"
        shown = "" if "@" in address or "?" in address else f": '{address}'"  # they may hold credentials
        raise UsageError(f"{name} in the environment is not a URL{shown}", hint=f"{hint}; or unset it")


def _is_url(address: str) -> bool:
    try:
        parts = urlsplit(address)
        has_port = parts.port is None or parts.port > 0
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and has_port and not re.search(r"\s", address)
