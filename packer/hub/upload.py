"""Puts files into a data set of the Hub, in one commit.

The client's `create_commit` uploads the large files first, each by its content, and then names all of them at once: a
push that is stopped is seen by nobody, and the next one uploads what is missing. `upload_large_folder` goes on after a
stop, too, but commits in many pieces: a reader could meet half of a cache.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from packer.errors import InputError
from packer.hub.fetch import UnreachableError, asking, without_chatter
from packer.hub.names import HubName


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """A data set as it is now."""

    name: HubName
    """With the commit in place of its branch."""

    is_private: bool
    address: str
    """Of its page."""


@contextmanager
def _sending(name: HubName) -> Iterator[None]:
    """Questions whose answer no cache of the client has."""
    try:
        with asking(name):
            yield
    except UnreachableError as error:
        hint = "nothing was committed; push again when it answers, and what was uploaded is not uploaded again"
        raise InputError(f"{name.label}: {error.reason}", hint=hint) from error


def data_set(name: HubName, *, private: bool) -> DataSet:
    """Look at a data set, which is made where there is none, for its owner alone or for everybody.

    Raises:
        InputError: the Hub says no, or does not answer.

    """
    from huggingface_hub import HfApi, constants, errors  # noqa: PLC0415 - a third of a second

    api = HfApi(library_name="packer")
    with _sending(name):
        try:
            found = api.dataset_info(name.repository, revision=name.revision)
        except errors.RepositoryNotFoundError:
            api.create_repo(name.repository, repo_type="dataset", private=private)
            found = api.dataset_info(name.repository, revision=name.revision)
    return DataSet(
        name=replace(name, revision=found.sha),
        is_private=bool(found.private),
        address=f"{constants.ENDPOINT}/datasets/{name.repository}",
    )


def upload(
    name: HubName, files: Mapping[str, Path | bytes], *, gone: Sequence[str], parent: str | None, message: str
) -> HubName:
    """Commit files, and that others are gone: all of it or nothing; returns the name with the new commit.

    Args:
        name: of the data set, with the branch.
        files: path in the data set → the file, or its bytes.
        gone: paths in the data set.
        parent: the commit that this one follows.
        message: of the commit.

    Raises:
        BusyError: the branch has another commit by now.
        InputError: the Hub says no, or does not answer.

    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi  # noqa: PLC0415 - as above

    added = [CommitOperationAdd(path_in_repo=path, path_or_fileobj=content) for path, content in files.items()]
    deleted = [CommitOperationDelete(path_in_repo=path, is_folder=False) for path in gone]
    with _sending(name), without_chatter():
        found = HfApi(library_name="packer").create_commit(
            name.repository,
            [*added, *deleted],
            commit_message=message,
            repo_type=name.kind,
            revision=name.revision,
            parent_commit=parent,
        )
    return replace(name, revision=found.oid)
