"""Where a cache in a bucket is built: not into a folder with other objects, whatever other builds do meanwhile."""

from pathlib import Path
from typing import Any

import pytest

from packer.errors import UsageError
from packer.store import place
from packer.store.place import build_place


class FakeMirror:
    """A folder of a bucket into which another build may commit while it is looked at."""

    def __init__(self, objects: list[str], committing: list[str]) -> None:
        self.folder, self._objects, self._committing = Path("mirror"), objects, committing

    def refresh(self, name: str) -> tuple[bytes | None, bytes | None]:
        return None, b"{}" if name in self._objects else None

    def listed(self, prefix: str = "") -> Any:
        self._objects += self._committing
        self._committing = []
        return ((name, 1, None) for name in self._objects if name.startswith(prefix))


@pytest.mark.parametrize(
    ("objects", "committing", "is_refused"),
    [
        ([], [], False),
        (["notes.txt"], [], True),
        ([".packer/partitions/a.json", "model/tokenizer.json"], [], False),
        ([], ["model/tokenizer.json", "manifest.json"], False),
    ],
)
def test_only_objects_of_others_are_in_the_way(
    objects: list[str], committing: list[str], is_refused: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mirror = FakeMirror(objects, committing)
    monkeypatch.setenv("PACKER_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(place, "make_mirror", lambda *_: mirror)
    monkeypatch.setattr(place, "Bucket", lambda _: mirror)
    if is_refused:
        with pytest.raises(UsageError, match=r"contains other objects and is not a cache: notes\.txt"):
            build_place("s3://bucket/cache")
    else:
        assert build_place("s3://bucket/cache") == mirror.folder
