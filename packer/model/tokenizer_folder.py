"""Read the files of a tokenizer folder, and check that the ids of its `tokenizer.json` are reliable.

Only regular files of a plausible size are read. The same text must always give the same ids, and each id must belong
to one token.
"""

import base64
import errno
import functools
import os
import unicodedata
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from packer.errors import InputError, PackerError, did_you_mean, near_paths
from packer.host.files import FETCH_LFS, LFS_POINTER, open_regular, out_of, path_within

MAX_TOKENIZER_BYTES = 64 * 2**20
"""Limit for `tokenizer.json`. The largest published ones have some forty million bytes."""

MAX_FILE_BYTES = 32 * 2**20
"""Limit for any other file."""

MAX_TEMPLATE_BYTES = 2**20
"""Limit for a chat template. The largest published ones have some forty thousand bytes."""


def read_folder(tokenizer: Path, name: str, others: Mapping[str, str]) -> dict[str, bytes]:
    """Read the files of a tokenizer folder that exist, as bytes by name.

    Args:
        tokenizer: folder, or the path of its main file alone.
        name: the main file, which must exist.
        others: optional files, each with the name to return it under; of equal names the last one is taken.
    """
    try:
        if not tokenizer.is_dir():
            return {name: read_main_file(tokenizer, tokenizer)}
        main = tokenizer / name
        if not os.path.lexists(main):
            found = sorted(path.name for path in tokenizer.iterdir())[:8]
            raise InputError(
                f"tokenizer {tokenizer}: no {name} in this folder (found: {', '.join(found) or 'nothing'})",
                hint="AutoTokenizer.from_pretrained(...).save_pretrained(DIR) in transformers writes one",
            )
        files = {name: read_main_file(path_within(tokenizer, name), tokenizer)}
        for file, other in others.items():
            if os.path.lexists(tokenizer / file):
                place = path_within(tokenizer, file)
                files[other] = read_regular(place, max_bytes=MAX_FILE_BYTES, what=f"tokenizer {tokenizer}")
    except OSError as error:
        raise _unreadable(f"tokenizer {tokenizer}", Path(error.filename or tokenizer), error) from error
    return files


def read_main_file(path: Path, tokenizer: Path) -> bytes:
    """Read a `tokenizer.json`; `tokenizer` names it in errors."""
    if not os.path.lexists(path):
        raise InputError(
            f"tokenizer {tokenizer}: no such file or folder",
            hint=did_you_mean(
                near_paths(tokenizer),
                "pass the folder with the model's tokenizer.json, or that file itself; a model of the Hugging Face Hub "
                "is named ORG/NAME or ORG/NAME@REVISION, or hf://ORG/NAME where a folder ORG is here",
            ),
        )
    return _first_equal(read_regular(path, max_bytes=MAX_TOKENIZER_BYTES, what=f"tokenizer {tokenizer}"))


@functools.lru_cache(maxsize=2)
def _first_equal(content: bytes) -> bytes:
    """Return the first of equal contents: a build reads the file several times, and keeps what it made by content."""
    return content


def read_regular(path: Path, *, max_bytes: int, what: str) -> bytes:
    """Read a regular file, without blocking on pipes or devices.

    `what` it belongs to is for errors.
    """
    try:
        with open_regular(path) as file:
            num_bytes = os.fstat(file.fileno()).st_size
            if num_bytes > max_bytes:
                raise InputError(
                    f"{what}: {path.name} has {num_bytes} bytes; packer takes up to {max_bytes}",
                    hint="check whether it is what its name says",
                )
            content = file.read()
    except OSError as error:
        raise _unreadable(what, path, error) from error
    if content.startswith(LFS_POINTER):
        raise InputError(f"{what}: {path.name} is a pointer of Git LFS in place of the file", hint=FETCH_LFS)
    return content


def _unreadable(what: str, path: Path, error: OSError) -> PackerError:
    if (limit := out_of(error, f"{what}: {path.name} cannot be read")) is not None:
        return limit
    if error.errno == errno.ENXIO:
        return InputError(f"{what}: {path.name} is not a regular file", hint="replace it with the file itself")
    return InputError(
        f"{what}: {path.name} cannot be read: {error.strerror or error}",
        hint="the path must lead to a regular file that this user can read",
    )


MAX_GROWTH = 256
"""Limit for how many times as long the components of a `tokenizer.json` may make a text.

Those of a SentencePiece model may reach 72: a character that stands for eighteen, and spaces.
"""


def refuse_growth(definition: Any) -> None:
    """Refuse a `tokenizer.json` that can multiply a text: `tokenizers` would take all memory, and abort the process.

    The growth of each step of the normalizer and the pre-tokenizer is the length of what it writes for one character.
    One step after the other multiplies it.

    Raises:
        ValueError: more than `MAX_GROWTH`.
    """
    if not isinstance(definition, Mapping):
        return
    forward = [*steps(definition.get("normalizer")), *steps(definition.get("pre_tokenizer"))]
    model = definition.get("model")
    unknown = model.get("unk_token") if isinstance(model, Mapping) else None
    for what, growth in (
        ("normalizer and pre_tokenizer make of one character", prod(map(_growth, forward))),
        ("decoder makes of one character", prod(map(_growth, steps(definition.get("decoder"))))),
        ("model writes for an unknown one", len(str(unknown))),
        ("post_processor adds to a text", sum(map(_num_added, steps(definition.get("post_processor"))))),
    ):
        if growth > MAX_GROWTH:
            raise ValueError(f"what its {what} may have the length {growth}; packer takes up to {MAX_GROWTH}")


MAX_PIECE_LENGTH = 1024
"""Limit for the text of a token, which a text of ids may repeat. The longest of published tokenizers have 128."""

MAX_PIECE_BYTES = 4 * 2**20
"""Limit for all pieces of a Unigram model together, as `tokenizers` takes up to 340 bytes of memory for each of theirs.
A quarter of a million pieces of published ones have some two million."""


def refuse_long_pieces(definition: Any) -> None:
    """Refuse tokens that stand for so much text, or a Unigram model of so many pieces, that they would take gigabytes.

    Raises:
        ValueError: more than `MAX_PIECE_LENGTH`, or `MAX_PIECE_BYTES`.
    """
    if not isinstance(definition, Mapping):
        return
    model = definition.get("model")
    pieces = model.get("vocab") if isinstance(model, Mapping) else None
    if isinstance(pieces, list):
        pieces = [piece[0] for piece in pieces if isinstance(piece, list) and piece and isinstance(piece[0], str)]
        if (size := sum(len(text.encode("utf-8", "surrogatepass")) for text in pieces)) > MAX_PIECE_BYTES:
            raise ValueError(f"its pieces have {size} bytes together; packer takes up to {MAX_PIECE_BYTES}")
    added = [str(token.get("content")) for token in definition.get("added_tokens") or () if isinstance(token, Mapping)]
    if (length := max(map(len, [*(pieces or ()), *added]), default=0)) > MAX_PIECE_LENGTH:
        raise ValueError(f"one of its tokens has the length {length}; packer takes up to {MAX_PIECE_LENGTH}")


_SEQUENCES = ("normalizers", "pretokenizers", "processors", "decoders")


def steps(component: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the steps of a component: itself, or those of a sequence."""
    if isinstance(component, list):
        for member in component:
            yield from steps(member)
    elif isinstance(component, Mapping):
        lists = [component[name] for name in _SEQUENCES if name in component]
        yield from steps(lists) if lists else iter([component])


def has_step(component: Any, kind: str) -> bool:
    """Whether a component, or a sequence of some, has a step of a type."""
    return any(step.get("type") == kind for step in steps(component))


def _growth(step: Mapping[str, Any]) -> int:
    """Return the number of characters that a step writes for one.

    Unicode's own forms count as one: they only decompose a character, once, and what a step writes is counted as
    decomposed here.
    """
    written = unicodedata.normalize("NFKD", str(step.get("content") or step.get("prepend") or ""))
    match step.get("type"):
        case "Replace" if "String" in step["pattern"]:
            return max(len(written), 1)
        case "Replace" | "Prepend":  # a regular expression may match between two characters
            return len(written) + 1
        case "Precompiled":  # the texts behind the trie, each closed by a zero
            charsmap = base64.b64decode(step["precompiled_charsmap"] or "")
            texts = charsmap[4 + int.from_bytes(charsmap[:4], "little") :].decode(errors="replace")
            return max(len(unicodedata.normalize("NFKD", text)) for text in [*texts.split("\0"), "?"])
        case "ByteLevel":
            return 4
        case "BertNormalizer":  # spaces around a Chinese character
            return 3
        case "Metaspace":
            return 2
    return 1


def _num_added(step: Mapping[str, Any]) -> int:
    """Return the number of ids that a step of a post-processor adds to a text."""
    names = [piece["SpecialToken"]["id"] for piece in step.get("single") or () if "SpecialToken" in piece]
    return sum(len(step["special_tokens"][name]["ids"]) for name in names)


MAX_IDS = 2**24
"""Limit for the vocabulary, as tables have one entry per id. The largest published ones have a fiftieth of this."""


def checked_vocab_size(definition: Mapping[str, Any], backend: Tokenizer, where: Path) -> int:
    """Check that the ids of a `tokenizer.json` are reliable, and return one more than the largest id."""
    _refuse_dropout(definition, where)
    _refuse_lost_text(definition.get("post_processor"), where)
    written = definition["model"].get("vocab")
    if isinstance(written, dict):  # what the backend would say, without waiting for it to say it
        added = backend.get_added_tokens_decoder()
        vocabulary: dict[str, int] = {**written, **{token.content: token_id for token_id, token in added.items()}}
    else:
        vocabulary = backend.get_vocab(with_added_tokens=True)
    ids = set(vocabulary.values())
    if not ids:
        raise InputError(f"tokenizer {where}: tokenizer.json has no tokens")
    if max(ids) >= MAX_IDS:
        raise InputError(
            f"tokenizer {where}: tokenizer.json has the id {max(ids)} among {len(ids)} tokens; "
            f"packer takes ids below {MAX_IDS}"
        )
    if len(ids) < len(vocabulary):
        seen: dict[int, str] = {}
        first, second, shared = next(
            (seen[i], token, i) for token, i in sorted(vocabulary.items()) if seen.setdefault(i, token) != token
        )
        raise InputError(
            f"tokenizer {where}: tokenizer.json gives '{first[:40]}' and '{second[:40]}' the same id {shared}",
            hint="every token has its own id; use the tokenizer.json that its authors published",
        )
    _refuse_moved_ids(definition, backend, where)
    return max(ids) + 1


def _refuse_dropout(definition: Mapping[str, Any], where: Path) -> None:
    """Refuse BPE dropout: it is part of the file and cannot be turned off in `encode`, so ids would be random."""
    dropout = definition["model"].get("dropout")
    if dropout:
        raise InputError(
            f"tokenizer {where}: tokenizer.json has a dropout of {dropout}: the same text gets other ids every time",
            hint="set model.dropout to null in tokenizer.json; dropout is for training, inference runs without it",
        )


def _refuse_lost_text(post_processor: Any, where: Path) -> None:
    """Refuse post-processors whose template drops the text, which they do even if no special tokens are requested."""
    if not isinstance(post_processor, dict):
        return
    for member in post_processor.get("processors") or ():
        _refuse_lost_text(member, where)
    if post_processor.get("type") != "TemplateProcessing":
        return
    if sum("Sequence" in piece for piece in post_processor["single"]) != 1:
        raise InputError(
            f"tokenizer {where}: the post_processor of tokenizer.json does not write a text exactly once",
            hint="its template `single` must contain one Sequence",
        )


def _refuse_moved_ids(definition: Mapping[str, Any], backend: Tokenizer, where: Path) -> None:
    """Refuse added tokens with ids that `tokenizers` would change: it silently renumbers them from the vocabulary size
    on.
    """
    for token in definition.get("added_tokens") or ():
        given = backend.token_to_id(token["content"])
        if token["content"] and given != token["id"]:
            raise InputError(
                f"tokenizer {where}: tokenizer.json gives the added token '{token['content']}' id {token['id']}, "
                f"but tokenizers reads it as {given}",
                hint="ids of added tokens must continue those of the vocabulary without a gap and without a repeat",
            )
