"""packer's ids are those others publish and compute: test vectors of real tokenizers, and transformers' chat ids."""

import functools
import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import transformers
from conformance.conversations import DAY, SHAPES
from supervision_stages import aliased, assistant, user

from packer.audit.preview import as_llama_tokenizer
from packer.model.model import load_model
from packer.render.environment import ChatTemplate, RenderError
from packer.tokenize.reference_encoder import ReferenceEncoder

pytestmark = pytest.mark.real

TOKENIZERS = ("deepseek-coder", "gpt-2", "llama-2", "llama-3", "minimind", "phi-3", "qwen3")
WITH_VECTORS = tuple(name for name in TOKENIZERS if name != "minimind")
LARGE = ("deepseek-coder", "llama-3", "qwen3")
"""Byte-level as others are: `make deep` asks them."""

REBUILT = ("llama-2", "phi-3")
"""Folders whose pre-tokenizer transformers 5 replaces by one of its own, since they name `LlamaTokenizer`."""

UNICODE = {
    "unicode": {"messages": [user("é e\u0301 你好 👩‍👩‍👧 שלום\u200d"), assistant("ü\t42 000\r\n\n\n世界 ½")]},
}


def vectors(folder: Path) -> list[tuple[str, list[int]]]:
    rows = [json.loads(line) for line in (folder / "vectors.jsonl").read_text("utf-8").splitlines()]
    return [(row["text"], row["ids"]) for row in rows]


class Loaded:
    """A folder as packer and as transformers read it, each loaded when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @functools.cached_property
    def encoder(self) -> ReferenceEncoder:
        return ReferenceEncoder((self.folder / "tokenizer.json").read_bytes())

    @functools.cached_property
    def theirs(self) -> Any:
        return transformers.AutoTokenizer.from_pretrained(str(self.folder))

    def encoded(self, texts: list[str]) -> list[list[int]]:
        ids, offsets = self.encoder.encode(texts)
        return [ids[start:stop].tolist() for start, stop in itertools.pairwise(offsets)]


@pytest.fixture(scope="module")
def loaded(request: pytest.FixtureRequest, real: Path) -> Loaded:
    return Loaded(real / "tokenizers" / request.param)


def of_each(names: Iterable[str]) -> pytest.MarkDecorator:
    """All tests of one folder run one after the other, so that large tokenizers are loaded once, and one at a time."""
    folders = [pytest.param(name, marks=[pytest.mark.slow] * (name in LARGE)) for name in names]
    return pytest.mark.parametrize("loaded", folders, indirect=True, scope="module")


@of_each(WITH_VECTORS)
def test_published_vectors_come_out_equal(loaded: Loaded) -> None:
    texts, ids = zip(*vectors(loaded.folder), strict=True)
    assert loaded.encoded(list(texts)) == list(ids)
    assert len(texts) == 47


@of_each(REBUILT)
def test_where_transformers_replaces_the_pre_tokenizer_the_vectors_agree_with_the_file(loaded: Loaded) -> None:
    """Which of the two a server uses is for the server to say; packer takes the file at its word.

    transformers 5 keeps vocabulary and merges of a folder that names `LlamaTokenizer`, and puts a dummy space before the
    first word of a text alone; these files, as those of transformers 4, put one after every special token too.
    """
    theirs = loaded.theirs
    assert type(theirs.backend_tokenizer.pre_tokenizer).__name__ == "Metaspace"
    assert json.loads((loaded.folder / "tokenizer.json").read_text("utf-8"))["pre_tokenizer"] is None
    texts = ["Hello", "<s>Hello", "</s> Hello"]
    ours = loaded.encoded(texts)
    rebuilt = [theirs.encode(text, add_special_tokens=False) for text in texts]
    assert [a == b for a, b in zip(ours, rebuilt, strict=True)] == [True, False, False]


@of_each(TOKENIZERS)
@pytest.mark.usefixtures("stopped_clock")
def test_rendered_and_encoded_chats_are_those_of_transformers(loaded: Loaded, real: Path) -> None:
    folder, name = loaded.folder, loaded.folder.name
    without_own = real / "templates" / "axolotl__chatml.jinja"  # gpt-2 has no template
    model = load_model(folder, template=without_own if name == "gpt-2" else None)
    assert model.template is not None
    theirs = transformers.TokenizersBackend.from_pretrained(str(folder)) if name in REBUILT else loaded.theirs
    template = ChatTemplate(model.template, date=DAY, variables=model.named_tokens, max_bytes=2**26)
    compared = raised = 0
    for shape, arguments in (SHAPES | UNICODE).items():
        tools = arguments.get("tools")
        messages = [aliased(message) for message in arguments["messages"]]
        for prompt in (False, True):
            try:
                text = template.render(messages, tools=tools, add_generation_prompt=prompt)
            except RenderError:
                with pytest.raises(Exception, match=r"."):
                    apply(theirs, model.template, arguments, prompt=prompt)
                raised += 1
                continue
            (ours,) = loaded.encoded([text])
            assert ours == apply(theirs, model.template, arguments, prompt=prompt), shape
            compared += 1
    assert compared + raised == 2 * len(SHAPES | UNICODE)
    assert compared >= 2 * 4


def apply(tokenizer: Any, template: str, arguments: dict[str, Any], *, prompt: bool) -> list[int]:
    ids: list[int] = tokenizer.apply_chat_template(
        arguments["messages"],
        tools=arguments.get("tools"),
        chat_template=template,
        add_generation_prompt=prompt,
        return_dict=False,
    )
    return ids


@of_each(TOKENIZERS)
def test_packer_knows_how_transformers_reads_each_folder(loaded: Loaded) -> None:
    """`as_llama_tokenizer` gives what transformers makes of the file, and None where transformers leaves it alone."""
    folder = loaded.folder
    definition = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    other = as_llama_tokenizer(definition, json.loads((folder / "tokenizer_config.json").read_text("utf-8")))
    assert (other is not None) == (folder.name in REBUILT)
    if other is not None:
        taken = json.loads(loaded.theirs.backend_tokenizer.to_str())
        assert (taken["normalizer"], taken["pre_tokenizer"]) == (other["normalizer"], other["pre_tokenizer"])
        assert taken["pre_tokenizer"] != definition["pre_tokenizer"]
