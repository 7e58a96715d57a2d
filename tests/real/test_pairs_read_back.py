"""Real pairs, read back by somebody who has the row and the trained ids, and knows nothing of how they were made."""

import json
import re
from collections import Counter
from itertools import pairwise, takewhile
from pathlib import Path

import numpy as np
import pytest
from single_documents import read_document
from tokenizers import Tokenizer

from packer.layout import MASKED
from packer.pipeline.from_python import build
from packer.recipe.recipe import make_recipe
from packer.store.cache import Cache
from packer.store.row_tables import read_rejected

pytestmark = pytest.mark.real

TURN = re.compile(r"\n\n(Human|Assistant):")


def answers_of(row: dict[str, str]) -> list[list[str]]:
    """What only one of the two conversations says in the words of the assistant, chosen before rejected."""
    sides = []
    for name in ("chosen", "rejected"):
        _, *parts = TURN.split(row[name])
        sides.append(list(zip(parts[::2], (text.strip() for text in parts[1::2]), strict=True)))
    shared = len(list(takewhile(lambda both: both[0] == both[1], zip(*sides, strict=False))))
    return [[text for speaker, text in side[shared:] if speaker == "Assistant"] for side in sides]


def trained(ids: np.ndarray, labels: np.ndarray, tokenizer: Tokenizer) -> list[str]:
    """The texts of the stretches that are trained."""
    edges = np.flatnonzero(np.diff(labels != MASKED, prepend=False, append=False))
    return [
        tokenizer.decode(ids[a:b].tolist(), skip_special_tokens=True).strip() for a, b in list(pairwise(edges))[::2]
    ]


@pytest.mark.parametrize(
    ("name", "number"),
    [("minimind", 100), *(pytest.param("qwen3", number, marks=pytest.mark.slow) for number in (100, 1500))],
)
def test_what_is_trained_of_a_side_is_what_only_that_side_answers(
    name: str, number: int, real: Path, tmp_path: Path
) -> None:
    source = real / "corpora" / "preference" / "hh_harmless_pairs_raw_1500.jsonl"
    rows = [json.loads(line) for line in source.read_text("utf-8").splitlines()[:number]]
    folder = real / "tokenizers" / name
    recipe = make_recipe({"sources": [{"path": str(source), "limit": number}], "tokenizer": str(folder)})
    build(recipe, tmp_path / "cache", jobs=1)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    with Cache.open(tmp_path / "cache") as cache:
        documents = cache.documents("train")
        of_row = dict(zip(documents.file_rows()[::2].tolist(), range(0, len(documents), 2), strict=True))
        codes = Counter(line.code for line in read_rejected(cache.folder, cache.manifest) if line.document is None)
        assert len(of_row) + codes.total() == number
        assert len(of_row) > 0.98 * number, codes
        for row, first in of_row.items():
            for side, answers in enumerate(answers_of(rows[row])):
                document = read_document(documents, first + side)
                found = trained(document.input_ids, document.labels, tokenizer)
                assert found == answers, (row, side)
