"""Loads a model's processor by transformers: from its files alone, and without what reads videos."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from packer.errors import InputError

LIBRARIES = ("transformers", "PIL")


def missing_library() -> str | None:
    """Return the name of a library of the extra `media` that is not installed, or None."""
    return next((name for name in LIBRARIES if find_spec(name) is None), None)


def loaded_processor(files: Mapping[str, bytes]) -> tuple[Any, Any]:
    """Return a model's processor, and its config, or None; InputError if it, or the extra `media`, cannot be loaded."""
    if (name := missing_library()) is not None:
        raise InputError(
            f"media.images: read needs {name}", hint="pip install 'token-packer[media]' brings what reads images"
        )
    from transformers import AutoConfig, AutoProcessor  # noqa: PLC0415 - takes seconds, and few builds need it

    with tempfile.TemporaryDirectory(prefix="packer-") as folder:
        for name, content in files.items():
            (Path(folder) / name).write_bytes(content)
        config, options = None, {"local_files_only": True, "trust_remote_code": False}
        with suppress(OSError, ValueError, TypeError, ImportError, KeyError, AttributeError):
            config = AutoConfig.from_pretrained(folder, **options)
        try:
            with _without_videos():
                made = AutoProcessor.from_pretrained(folder, **options)
        except (OSError, ValueError, TypeError, ImportError, KeyError, AttributeError) as error:
            raise InputError(f"the processor of this model cannot be loaded: {error}") from error
    if not hasattr(made, "image_processor"):
        raise InputError(
            "media.images: read needs the folder of a model with an image processor; this one has only a tokenizer",
            hint="give the folder that has preprocessor_config.json, or leave media.images at reject",
        )
    if not isinstance(getattr(made, "image_token", None), str) or not made.image_token:
        raise InputError(f"packer cannot read images for {type(made).__name__}: it names no placeholder for them")
    return made, config


@contextmanager
def _without_videos() -> Iterator[None]:
    """Load processors with an empty one of videos: others need torchvision, and packer reads no videos."""
    from transformers import ImageProcessingMixin, processing_utils  # noqa: PLC0415 - as above

    known, classes = processing_utils.MODALITY_TO_AUTOPROCESSOR_MAPPING, processing_utils.MODALITY_TO_BASE_CLASS_MAPPING

    class Empty(ImageProcessingMixin):  # type: ignore[misc]
        model_input_names: tuple[str, ...] = ()

        @classmethod
        def from_pretrained(cls, *_: Any, **__: Any) -> Any:
            return object.__new__(cls)

        def __getattr__(self, name: str) -> None:
            if name.startswith("_"):
                raise AttributeError(name)
            # MiniCPM-V's asks when it is loaded how videos are cut.

    class Loaders(type(known)):  # type: ignore[misc]
        def __getitem__(self, name: str) -> Any:
            return Empty if name == "video_processor" else super().__getitem__(name)

    processing_utils.MODALITY_TO_AUTOPROCESSOR_MAPPING = Loaders()
    processing_utils.MODALITY_TO_BASE_CLASS_MAPPING = {**classes, "video_processor": "ImageProcessingMixin"}
    try:
        yield
    finally:
        processing_utils.MODALITY_TO_AUTOPROCESSOR_MAPPING = known
        processing_utils.MODALITY_TO_BASE_CLASS_MAPPING = classes
