"""What images cost, in CPU time of one process, beside what cannot be saved.

Photos of 1024 x 768 and some 144 KB, each with bytes of its own, and such of as many sizes as there are photos; one in a
row. A build must read and hash each (if it keeps the bytes, also in the shard that they are written to), and runs the
processor on one in 128: that is the floor. Each figure is the difference between 600 and 200 images, so that neither
the start nor the first 32 rows, which are all compared, count.
A reader must decode and process: its share of that is what it adds to nothing else.
"""

import io
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from PIL import Image
from rich.table import Table

import packer
from packer.load import PackedLoader
from packer.media.images import decode
from packer.media.processor import _PROCESSORS, Processor, processor_of
from packer.store.cache import Cache

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from image_models import answer, model_folder, user, write_rows

_FEW, _MANY, _READ = 200, 600, 24
_PROVED = 128
_VISION = "without" if find_spec("torchvision") is None else "with"
_LINES = (("one size", "header", "reference"), ("one size", "header", "bytes"), ("new sizes", "header", "reference"),
          ("new sizes", "header", "bytes"), ("one size", "decode", "reference"))  # fmt: skip


def images_tables() -> list[Table]:
    """Builds, and the reader."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = model_folder(folder / "model", max_pixels=12_845_056)
        files = {"one size": _photos(folder, 0), "new sizes": _photos(folder, 1)}
        return [_built(folder, model, files), _read(folder, model, files["one size"])]


def _photos(folder: Path, step: int) -> list[Path]:
    """Write photos, each `step` pixels wider than the last, 300 times, and then higher."""
    noise = Image.effect_noise((160, 120), 90).resize((1344, 1008)).convert("RGB")
    made, files = b"", []
    for number in range(_MANY):
        if step or not number:
            file = io.BytesIO()
            box = (0, 0, 1024 + step * (number % 300), 768 + step * (number // 300))
            noise.crop(box).save(file, "JPEG", quality=95)
            made = file.getvalue().ljust(144_000, b"\0")
        files.append(folder / f"{step}-{number}.jpg")
        files[-1].write_bytes(made + str(number).encode())
    return files


def _built(folder: Path, model: Path, files: dict[str, list[Path]]) -> Table:
    table = Table(
        title=f"build of rows with a photo each, CPU time, {_VISION} torchvision",
        box=None,
        pad_edge=False,
        title_justify="left",
    )
    for column in ("sizes", "check", "keep"):
        table.add_column(column)
    for column in ("us", "images/s", "read + sha256, us", "1 in 128 proved, us", "floor, images/s"):
        table.add_column(column, justify="right")
    processor = processor_of({file.name: file.read_bytes() for file in model.iterdir()})
    for sizes, check, keep in _LINES:
        build = partial(_build, folder, model, files[sizes], check, keep)
        spent = (_cpu(partial(build, _MANY)) - _cpu(partial(build, _FEW))) / (_MANY - _FEW)
        reading = _cpu(partial(_hashed, files[sizes], 2 if keep == "bytes" else 1)) / _MANY
        proof = _cpu(partial(_proved, processor, files[sizes][0])) / _PROVED
        figures = (spent * 1e6, 1 / spent, reading * 1e6, proof * 1e6, 1 / (reading + proof))
        table.add_row(sizes, check, keep, *(f"{figure:,.0f}" for figure in figures))
    return table


def _build(folder: Path, model: Path, files: list[Path], check: str, keep: str, number: int) -> None:
    chats = [[user(f"@{file.name}", f"What is {file.name}?"), answer("A photo of a street.")] for file in files]
    rows = write_rows(folder / f"{number}.jsonl", [{"messages": chat} for chat in chats[:number]])
    media = {"images": "read", "check": check, "keep": keep}
    options = {"tokenizer": str(model), "jobs": 1, "engine": "reference", "progress": None}
    shutil.rmtree(folder / f"{number}", ignore_errors=True)
    _PROCESSORS.clear()  # it knows what is written for the sizes of the build before
    packer.build(str(rows), folder / f"{number}", media=media, **options)


def _hashed(files: list[Path], times: int) -> None:
    for content in map(Path.read_bytes, files):
        for _ in range(times):
            sha256(content).digest()


def _proved(processor: Processor, file: Path) -> list[int]:
    return processor.ids(processor.token, [decode(file.read_bytes())])


def _read(folder: Path, model: Path, files: list[Path]) -> Table:
    table = Table(title="reader of the same photos, one micro-batch after another, CPU time", box=None, pad_edge=False)
    for column in ("photos a micro-batch", "decode + processor alone, ms", "reader, ms", "share"):
        table.add_column(column, justify="right")
    own = processor_of({file.name: file.read_bytes() for file in model.iterdir()}).own.image_processor
    _build(folder, model, files, "header", "reference", _FEW)

    kept: dict[str, object] = {}

    def alone(size: int) -> None:
        for first in range(0, _READ, size):  # a batch is there until the next one is, as in training
            kept["batch"] = own(
                [decode(file.read_bytes()) for file in files[first : first + size]], return_tensors="pt"
            )

    def read(size: int) -> None:
        for _, step in zip(range(_READ // size), steps[size], strict=False):
            assert all("pixel_values" in each for each in step)

    for size in (1, 4):
        cache = Cache.open(folder / str(_FEW), sources=folder)
        loader = PackedLoader(cache, batching="padded", micro_batch_size=size, prefetch=0, order="sequential")
        steps = {size: loader.endless()}
        read(size)
        pairs = [(_once(lambda: alone(size)), _once(lambda: read(size))) for _ in range(3)]  # noqa: B023 - run here
        expected, found = (min(column) / _READ * 1e3 for column in zip(*pairs, strict=True))
        table.add_row(str(size), f"{expected:.1f}", f"{found:.1f}", f"{expected / found:.2f}")
    return table


def _cpu(work: Callable[[], object]) -> float:
    return min(_once(work) for _ in range(2))


def _once(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start
