"""Files whose rows match no schema, built by the steps that the hints name, letter by letter."""

import csv
import json
import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import twins
from foreign_rows import TEMPLATE, read_back
from hints import arguments_in

import packer
from packer.errors import InputError
from packer.questions.conversations import PAGE

REPOSITORY = Path(__file__).resolve().parent.parent.parent


EDITED = {"other-keys", "lists-of-conversations", "beside-messages"}
"""Headings of commands that are edited: a hint that names one says what rows need, and nobody can follow it."""


def write(path: Path, value: Any) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(value), path)
    elif path.suffix == ".csv":
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, [*value[0]], delimiter=";")
            writer.writeheader()
            writer.writerows(value)
    elif path.suffix == ".json":
        path.write_text(json.dumps(value, indent=1), "utf-8")
    else:
        path.write_text("".join(json.dumps(each) + "\n" for each in value), "utf-8")
    return path


def commands_of_page() -> dict[str, str]:
    """The commands of the page, by the anchors of their headings."""
    sections = re.findall(
        r"^## (.*?)\n.*?```sh\n(.*?)```", (REPOSITORY / PAGE).read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    return {heading.lower().replace(" ", "-"): command for heading, command in sections}


def made_by_page(anchor: str, path: Path) -> Path:
    """Run the command of the page with the names of another input and its output."""
    words = shlex.split(commands_of_page()[anchor])
    files = [path.parent / "*.jsonl"] if "*" in words[-3] else [path]
    assert words[0] == "jq" and words[-2:] == [">", "rows.jsonl"]
    command = f"{shlex.join(words[:-3])} {' '.join(map(str, files))} > made_rows"
    subprocess.run(["bash", "-euc", command], check=True, cwd=path.parent)
    return (path.parent / "made_rows").rename(path.parent / "made_rows.jsonl")


def follow(path: Path, tokenizer: Path, cache: Path) -> tuple[Path, list[str]]:
    """Build by what the hints say, each letter by letter; return the file that was built, and the hints."""
    followed: list[str] = []
    options: dict[str, Any] = {}
    while len(followed) < 4:
        try:
            packer.build(path, cache, tokenizer=tokenizer, progress=False, **options)
        except InputError as error:
            hint = error.hint or ""
            assert "FIELD" not in hint and "NAME" not in hint
            followed.append(hint)
            if (found := re.search(rf"{PAGE}#(\S+)", hint)) and found[1] not in EDITED:
                path = made_by_page(found[1], path)
            elif found := re.search(r": (jq -c .*?> \S+_lines\.jsonl)", hint):
                subprocess.run(["bash", "-euc", found[1]], check=True, cwd=path.parent)
                path = path.parent / shlex.split(found[1])[-1]
            else:
                options |= arguments_in(hint)
            continue
        return path, followed
    raise AssertionError(followed)


class Shape(NamedTuple):
    """Rows in a shape of another tool, and what a build of them has of the first once its hints are followed."""

    value: Any
    told: Sequence[str]
    """What its first document has, in this order."""

    trained: Sequence[str]
    file: str = "rows.jsonl"


def follow_shape(shape: Shape, folder: Path, most_steps: int = 2) -> None:
    """Assert that who follows the hints trains what is answered."""
    tokenizer = twins.byte_level(folder / "model", template=TEMPLATE)
    path, followed = follow(write(folder / shape.file, shape.value), tokenizer, folder / "cache")
    assert 0 < len(followed) <= most_steps
    ((text, learned),) = read_back(folder / "cache", path.name)
    assert learned == [f"{said}<|im_end|>" for said in shape.trained]
    places = [text.index(each) for each in shape.told]
    assert places == sorted(places)


def refused(source: Any, folder: Path) -> InputError:
    """The error with which a build of these rows or this file ends."""
    with pytest.raises(InputError) as caught:
        packer.build(source, folder / "cache", tokenizer=twins.byte_level(folder / "model"), progress=False)
    return caught.value
