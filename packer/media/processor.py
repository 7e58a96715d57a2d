"""A model's processor: what it writes for images of given sizes, by transformers' own code.

The processor is the definition of what a placeholder becomes. What it writes depends on the size alone, so it runs once
on an empty image of each size. If a trial shows that the number of patches decides it, further sizes are only counted.

Which models transformers gets wrong when documents with images are packed is told by what they do, not by their names.
`tests/media/test_families.py` holds this against each family: one that transformers starts to get right fails there.
"""

import hashlib
import json
import logging
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from math import prod
from typing import Any, NamedTuple, TypeAlias

from packer.errors import InputError
from packer.media.loading import loaded_processor

Size: TypeAlias = tuple[int, int]
"""Height and width, upright."""

PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json", "config.json")
"""Files of a model's folder that its processor is loaded from, besides those of its tokenizer."""

_SIZES_ALONE = {"resample": 0, "do_rescale": False, "do_normalize": False}
"""Leave out what takes most of a processor's time, and decides the values of pixels alone: for blank images."""

_OF_TEXT = frozenset({"input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids"})
_PROBED: tuple[Size, ...] = (*((8 + 97 * i % 1900, 8 + 263 * i % 1900) for i in range(1, 48)), (1, 1), (30, 3000))
_TRIED: tuple[Size, ...] = (
    *(size for size in _PROBED if prod(size) < 2**18),
    *((1, 150), (4100, 20), (1201, 1453), (1801, 433)),
)
"""Sizes that a trial runs: without tensors on `meta`, few of them take long."""

WORTH_COUNTING = 16
"""Number of sizes that take about as long as it takes to try whether others can be counted."""


class RefusedSizesError(Exception):
    """The processor refuses images of these sizes; the text is its own."""


class Replacement(NamedTuple):
    """What the processor writes in place of one placeholder."""

    text: str
    """With every run of a repeated token written once."""

    runs: tuple[int, ...]
    """How often each repeated token in `text` is repeated, in order."""

    pixels: int
    """Values that the vision tower reads for the image, over three."""


class Processor:
    """Loads the processor of a model's files."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.own, self._config = loaded_processor(files)
        """The processor of transformers."""

        self.token: str = self.own.image_token
        """The placeholder that templates write for an image."""

        self._cache: dict[tuple[Size, ...], list[Replacement] | str] = {}

    @cached_property
    def repeated(self) -> Mapping[str, int]:
        """Ids of the tokens that the processor writes many times over for one image, by text."""
        texts = "".join(self._texts(((64, 48),))[0] + self._texts(((480, 640),))[0])
        tokens = {token.content: number for number, token in self.own.tokenizer.added_tokens_decoder.items()}
        found = {match[1] for match in re.finditer(rf"({_either(tokens)})\1+", texts)}
        return {token: tokens[token] for token in sorted(found)}

    @cached_property
    def prefix(self) -> tuple[str, tuple[int, ...]]:
        """The text and ids that the processor puts before a text that does not begin with them."""
        return self.own.tokenizer.bos_token or "", tuple(self.own.tokenizer("")["input_ids"])

    def replacements(self, sizes: Sequence[Size]) -> list[Replacement]:
        """Return what is written for the images of one conversation, in order; RefusedSizesError if one is refused."""
        groups = [(size,) for size in sizes] if self.is_alone else [tuple(sizes)] if sizes else []
        made: list[Replacement] = []
        for group in groups:
            if group not in self._cache:
                counted = self._counted(group[0]) if len(self._cache) >= WORTH_COUNTING else None
                self._cache[group] = counted or self._replacements(group)
            known = self._cache[group]
            if isinstance(known, str):
                raise RefusedSizesError(known)
            made += known
        return made

    def ids(self, text: str, images: Sequence[Any]) -> list[int]:
        """Return the ids of a rendered text with these images, as `apply_chat_template(tokenize=True)` has them."""
        begins = bool(self.prefix[0]) and text.startswith(self.prefix[0])
        with self.tried():
            made = self.own(text=[text], images=[list(images)], **({"add_special_tokens": False} if begins else {}))
        return [int(number) for number in made["input_ids"][0]]

    @contextmanager
    def tried(self) -> Iterator[None]:
        """Run what fails, with an InputError, only if the processor has no way for images that packer knows."""
        try:
            yield
        except MemoryError:
            raise
        except Exception as error:  # each processor has its own code
            raise InputError(
                f"packer cannot read images for {type(self.own).__name__}: {type(error).__name__}: {error}",
                hint="install torchvision if it is not there: some processors work only with it",
            ) from error

    def tensors(self, images: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """Return a model's tensors for decoded images, nested by document, as the processor's own batch has them."""
        return self._alone(images) if self._needs_no_text else self._with_texts(images)

    @cached_property
    def _needs_no_text(self) -> bool:
        """Whether the tensors are the same without a text, whose ids would take a sixth of the time of a photo."""
        from PIL import Image  # noqa: PLC0415 - part of the extra

        shown = Image.linear_gradient("L").convert("RGB")
        images = [[shown.resize((64, 48))], [shown.resize((90, 60)), shown.resize((64, 64))]]
        try:
            return bool(_plain(self._alone(images)) == _plain(self._with_texts(images)))
        except (TypeError, ValueError):  # Gemma 3 makes up texts of different lengths, InternVL counts in them
            return False

    def _alone(self, images: Sequence[Sequence[Any]]) -> dict[str, Any]:
        return dict(self.own(images=[list(each) for each in images], return_tensors="pt"))

    def _with_texts(self, images: Sequence[Sequence[Any]]) -> dict[str, Any]:
        tokenizer = self.own.tokenizer
        if tokenizer.pad_token is None:  # texts are padded, and of no further use
            tokenizer.pad_token = tokenizer.eos_token or tokenizer.convert_ids_to_tokens(0)
        texts = [self.token * len(each) for each in images]
        made = self.own(text=texts, images=[list(each) for each in images], padding=True, return_tensors="pt")
        return {name: value for name, value in made.items() if name not in _OF_TEXT}

    @property
    def wrong_when_packed(self) -> str | None:
        """What the model does for which packed documents with images must be padded, or None."""
        return wrong_when_packed(self.own.model_input_names, self._config)

    @cached_property
    def probe(self) -> str:
        """A digest of what this processor, in this version of transformers, makes of images of fixed sizes."""
        said = [known if isinstance(known, str) else repr(known) for known in map(self._replacements, zip(_PROBED))]
        return hashlib.sha256("\0".join(said).encode()).hexdigest()

    @cached_property
    def is_alone(self) -> bool:
        """Whether what is written for an image does not depend on the others; for LLaVA-OneVision it does."""
        one, other = (64, 200), (300, 90)
        return self._texts((one, other))[0] == [self._texts((one,))[0][0], self._texts((other,))[0][0]]

    def _counted(self, size: Size) -> list[Replacement] | None:
        """Return what is written for an image by its number of patches, in no time; None if that may be wrong."""
        with suppress(ArithmeticError, ValueError):  # the processor says why it refuses this size
            return None if self._unit is None else [self._times(size, *self._unit)]
        return None

    @cached_property
    def _unit(self) -> tuple[int, Replacement] | None:
        """A number of patches, and what is written for it, if for others it is so many times as much; None if not.

        Processors such as Qwen's say how many patches they make of a size; LLaVA's makes the same of all. Whether that
        decides how long the only run of a token is, and the size decides nothing else, is tried. Rows that are compared
        with the processor's own ids show it again.
        """
        if not self.is_alone:
            return None
        first, *sizes = _TRIED
        try:
            known = self._replacements((first,))
            if isinstance(known, str):
                return None
            unit = self._num_patches(first), known[0]
            for size in sizes:
                with suppress(ValueError):
                    if [self._times(size, *unit)] != self._replacements((size,)):
                        return None
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):  # each has its own code
            return None
        return unit

    def _times(self, size: Size, num_patches: int, known: Replacement) -> Replacement:
        (run,), number = known.runs, self._num_patches(size)
        return Replacement(known.text, (run * number // num_patches,), known.pixels * number // num_patches)

    def _num_patches(self, size: Size) -> int:
        counted = getattr(self.own.image_processor, "get_number_of_image_patches", None)
        return 1 if counted is None else int(counted(*size, self._kwargs))

    def _replacements(self, sizes: tuple[Size, ...]) -> list[Replacement] | str:
        try:
            texts, pixels = self._texts(sizes)
        except ValueError as error:
            return str(error)
        return [Replacement(*_compact(text, self._run), pixels) for text in texts]

    @cached_property
    def _run(self) -> re.Pattern[str]:
        return re.compile(rf"({_either(self.repeated)})\1*")

    @cached_property
    def _kwargs(self) -> dict[str, Any]:
        merged = self.own._merge_kwargs(tokenizer_init_kwargs=self.own.tokenizer.init_kwargs)  # noqa: SLF001 - no other way
        return {**merged["images_kwargs"], **_SIZES_ALONE}

    def _texts(self, sizes: tuple[Size, ...]) -> tuple[list[str], int]:
        """Return the text for each image, and the processed pixels of an image on average."""
        with _quiet():
            data, texts = self.own._process_images([self._empty(sizes)], **self._kwargs)  # noqa: SLF001 - as above
        return texts, _num_values(data["pixel_values"]) // 3 // len(sizes)

    def _empty(self, sizes: tuple[Size, ...]) -> list[Any]:
        """Return empty images: tensors of torch's device `meta`, which have no values at all, if they are taken."""
        if self._takes_meta:
            torch = import_module("torch")
            return [torch.empty((3, *size), dtype=torch.uint8, device="meta") for size in sizes]
        from PIL import Image  # noqa: PLC0415 - part of the extra

        return [Image.new("RGB", (width, height)) for height, width in sizes]

    @cached_property
    def _takes_meta(self) -> bool:
        """Whether the processor works on tensors without values, as those made with torchvision mostly do."""
        if type(self.own.image_processor).__name__.endswith("Pil") or find_spec("torchvision") is None:
            return False
        self.__dict__["_takes_meta"] = True  # while it is tried
        try:
            self._texts(((64, 48),))
        except (NotImplementedError, RuntimeError, TypeError, ValueError):
            return False
        return True


_PROCESSORS: dict[tuple[tuple[str, bytes], ...], Processor] = {}


def processor_of(files: Mapping[str, bytes]) -> Processor:
    """Return the processor of a model's files, loaded once in a process."""
    key = tuple(sorted(files.items()))
    if key not in _PROCESSORS:
        _PROCESSORS[key] = Processor(files)
    return _PROCESSORS[key]


def with_loaded_tokenizer(files: Mapping[str, bytes], name: str) -> dict[str, bytes]:
    """Return a model's files with its tokenizer, the file `name`, as transformers loads it.

    Some classes of tokenizers put other parts in place of those of the file; it stays as it is if it means the same.
    What was loaded is loaded from the new file, too, so the processor is that of both, which saves up to a second.
    """
    processor = processor_of(files)
    loaded = processor.own.tokenizer.backend_tokenizer.to_str()
    made = {**files, name: files[name] if _meaning(files[name]) == _meaning(loaded) else loaded.encode()}
    _PROCESSORS[tuple(sorted(made.items()))] = processor
    return made


def _meaning(tokenizer: bytes | str) -> list[Any]:
    """Return what decides the ids of a text without special tokens around it, without settings that are empty."""
    definition = json.loads(tokenizer)
    model = {name: value for name, value in definition["model"].items() if value}
    return [model, *(definition.get(name) for name in ("normalizer", "pre_tokenizer", "added_tokens"))]


def _compact(text: str, run: re.Pattern[str]) -> tuple[str, tuple[int, ...]]:
    """Return a text with each run written once, and the lengths of the runs."""
    runs = tuple(len(match[0]) // len(match[1]) for match in run.finditer(text))
    return run.sub(r"\1", text), runs


def _either(tokens: Mapping[str, int]) -> str:
    return "|".join(map(re.escape, sorted(tokens, key=len, reverse=True)))


def _plain(value: Any) -> Any:
    """Return tensors as lists."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return list(map(_plain, value)) if isinstance(value, list | tuple) else getattr(value, "tolist", lambda: value)()


def _num_values(value: Any) -> int:
    """Return how many numbers an array, a tensor or lists of them hold."""
    return prod(value.shape) if hasattr(value, "shape") else sum(map(_num_values, value))


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave out warnings of transformers about empty images, such as that one of 1 x 1 has ambiguous channels."""
    handlers = logging.getLogger("transformers").handlers  # another level would empty the caches of all loggers
    for handler in handlers:
        handler.addFilter(_is_error)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(_is_error)


def _is_error(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


def text_config(config: Any) -> Any:
    """Return the part of a model's config that is about its language model."""
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def first_with_state(config: Any) -> str:
    """Name the first layer of another kind than attention by a mask; empty if there is none."""
    text = text_config(config)
    kinds = getattr(text, "layer_types", None) or getattr(text, "layers_block_type", None) or ()
    for at, kind in enumerate(kinds):
        if kind == "linear_attention" or not kind.endswith("attention"):
            return f" (layer {at}, {kind})"
    return ""


def wrong_when_packed(names: Collection[str], config: Any) -> str | None:
    """Return what a model does for which its packed documents with images must be padded, or None."""
    if "token_type_ids" in names or getattr(text_config(config), "use_bidirectional_attention", None):
        return "attends to both sides within an image, as Gemma 3: transformers takes packed images for others"
    state = first_with_state(config)
    return f"has layers that carry a state, which packed images disturb{state}" if state else None
