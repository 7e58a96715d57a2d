"""A cache whose rows, names and reasons would do something if they were anything but text."""

import json

import pytest
from hostile_rows import FILE_NAME, HOSTILE

from packer.audit import diff, lint
from packer.pipeline import build, repack
from packer.recipe import make_recipe


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


@pytest.fixture(scope="session")
def hostile_diff(hostile_cache, tmp_path_factory):
    """The report of the hostile cache and of one whose rules leave out other rows, in another template."""
    other = tmp_path_factory.mktemp("other") / "cache {{ 7 * 7 }}"
    repack(hostile_cache, other, {"block_len": 256, "overlong": "split"}, ["deduplicate=null"], jobs=1)
    return diff(hostile_cache, other)


@pytest.fixture(scope="session")
def hostile_lint(hostile_cache, starter, tmp_path_factory):
    """Of hostile rows under a hostile template, in a file with such a name."""
    template = tmp_path_factory.mktemp("template") / "<b>&amp;.jinja"
    lines = "".join(text.replace("{", "(") for text in HOSTILE[:5])
    template.write_text(
        "{% for message in messages %}<|im_start|>{{ message.role }}\n"
        f"{lines}{{{{ message.content }}}}<|im_end|>\n{{% endfor %}}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
        "utf-8",
    )
    source = {"path": str(hostile_cache.parent / FILE_NAME).replace("[", "[[]"), "schema": "messages"}
    recipe = {"sources": [source], "tokenizer": str(starter / "tokenizer"), "template": {"file": str(template)}}
    return lint(make_recipe(recipe))
