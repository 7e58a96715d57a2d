"""Uploads files to a dataset on the Hub in one commit.

The client's `create_commit` uploads large files first, by content hash, and then commits everything at once: an
interrupted push is invisible to readers, and the next one uploads only what is missing. `upload_large_folder` can also
be resumed, but splits its work into many commits: a reader could see half of a cache.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from packer.credentials import masked
from packer.errors import InputError
from packer.hub.fetch import UnreachableError, client_request, quiet_client
from packer.hub.names import HubName


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """The current state of a dataset."""

    name: HubName
    """The name with the branch's current commit as its revision."""

    is_private: bool
    address: str
    """URL of its page."""


@contextmanager
def _uncached_request(name: HubName) -> Iterator[None]:
    """Handle errors as :func:`client_request` does, for requests that the client's cache cannot answer."""
    try:
        with client_request(name):
            yield
    except UnreachableError as error:
        hint = "nothing was committed; push again when it answers: what was already uploaded is not uploaded again"
        raise InputError(f"{name.label}: {error.reason}", hint=hint) from error


def data_set(name: HubName, *, private: bool) -> DataSet:
    """Look up a dataset; if it does not exist, create it, private or public.

    Raises:
        InputError: the Hub refuses, or does not answer.
    """
    from huggingface_hub import HfApi, constants, errors  # noqa: PLC0415 - a third of a second

    api = HfApi(library_name="packer")
    with _uncached_request(name):
        try:
            found = api.dataset_info(name.repository, revision=name.revision)
        except errors.RepositoryNotFoundError:
            api.create_repo(name.repository, repo_type="dataset", private=private)
            found = api.dataset_info(name.repository, revision=name.revision)
    return DataSet(
        name=replace(name, revision=found.sha),
        is_private=bool(found.private),
        address=masked(f"{constants.ENDPOINT}/datasets/{name.repository}"),
    )


def upload(
    name: HubName, files: Mapping[str, Path | bytes], *, gone: Sequence[str], parent: str | None, message: str
) -> HubName:
    """Commit files (a file or its content, by path) and delete those that are `gone`, atomically, on a branch.

    `parent` is the commit that this one follows. Returns the name with the new commit.

    Raises:
        BusyError: the branch has moved on to another commit.
        InputError: the Hub refuses, or does not answer.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi  # noqa: PLC0415 - as above

    added = [CommitOperationAdd(path_in_repo=path, path_or_fileobj=content) for path, content in files.items()]
    deleted = [CommitOperationDelete(path_in_repo=path, is_folder=False) for path in gone]
    with _uncached_request(name), quiet_client():
        found = HfApi(library_name="packer").create_commit(
            name.repository,
            [*added, *deleted],
            commit_message=message,
            repo_type=name.kind,
            revision=name.revision,
            parent_commit=parent,
        )
    return replace(name, revision=found.oid)
