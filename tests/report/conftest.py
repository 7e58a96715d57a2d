"""A cache whose rows, names and reasons would do something if they were anything but text."""

import json

import pytest
from hostile_rows import FILE_NAME, HOSTILE

from packer.pipeline.from_python import build
from packer.recipe.recipe import make_recipe


@pytest.fixture(scope="session")
def hostile_cache(starter, tmp_path_factory):
    """Kept, rejected and left-out rows of all kinds of text, in a file with such a name."""
    folder = tmp_path_factory.mktemp("hostile")
    lines = []
    for number, text in enumerate(HOSTILE):
        messages = [{"role": "user", "content": text}, {"role": "assistant", "content": f"{text} indeed"}]
        lines.append(json.dumps({"id": text, "messages": messages}, ensure_ascii=number % 2 == 0).encode())
        lines.append(json.dumps({"messages": messages, "again": text}, ensure_ascii=False).encode())  # a copy
        lines.append(json.dumps({"messages": [{"role": text, "content": text}]}, ensure_ascii=False).encode())
        lines.append(f'{{"broken {text}'.encode())
    lines.append(b'{"messages": "\xff\xfe"}')
    (folder / FILE_NAME).write_bytes(b"\n".join(lines))
    recipe = {
        "sources": [{"path": str(folder / FILE_NAME).replace("[", "[[]"), "schema": "messages"}],
        "tokenizer": str(starter / "tokenizer"),
        "deduplicate": {"exact": "bytes"},
        "pack": {"block_len": 512},
    }
    build(make_recipe(recipe), folder / "cache <b>", jobs=1)
    return folder / "cache <b>"
