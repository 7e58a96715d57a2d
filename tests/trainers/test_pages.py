"""The pages of docs/how-to/trainers: what they show runs, block after block."""

import re
from functools import partial
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="TORCH MISSING: trainers are not tested")
transformers = pytest.importorskip("transformers", reason="TRANSFORMERS MISSING: trainers are not tested")

from tiny_models import tiny_config  # noqa: E402

FOLDER = Path(__file__).resolve().parent.parent.parent / "docs" / "how-to" / "trainers"
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
PAGES = {"transformers.md": 3, "trl.md": 1}

pytestmark = pytest.mark.filterwarnings("ignore")  # trainers use what their libraries deprecated


@pytest.fixture(scope="module")
def short_blocks(starter_cache, tmp_path_factory):
    """The starter's documents in blocks of a length that a tiny model on a CPU reads in no time."""
    from packer.build import repack

    folder = tmp_path_factory.mktemp("pages") / "cache"
    repack(starter_cache, folder, {"block_len": 96}, jobs=1)
    return folder


@pytest.fixture
def place(starter, short_blocks, tmp_path, monkeypatch):
    """A folder with a cache, where a model and its tokenizer have the names the pages give them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cache").symlink_to(short_blocks)
    torch.manual_seed(0)

    def model(_, **options):
        return transformers.AutoModelForCausalLM.from_config(tiny_config(vocab_size=4096, **options))

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", model)
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(starter / "tokenizer")
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", lambda _: tokenizer)
    trl = pytest.importorskip("trl", reason="TRL MISSING: its page is not run")
    monkeypatch.setattr(trl, "SFTConfig", partial(trl.SFTConfig, use_cpu=True))
    return tmp_path


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_shows_runs_block_after_block(page, place):
    blocks = PYTHON.findall((FOLDER / page).read_text("utf-8"))
    assert len(blocks) == PAGES[page]
    names = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)
    if "trainer" in names:
        state = names["trainer"].state
        assert state.global_step == state.max_steps > 2
    if "poison_test" in names:
        report = names["poison_test"](names["model"], names["micro_batch"])
        assert report and "borders hold" in str(report)
        assert list((place / "run").glob("checkpoint-*/trainer_state.json"))


def test_every_page_is_run_and_linked():
    entry = (FOLDER.parent / "train.md").read_text("utf-8")
    assert {path.name for path in FOLDER.glob("*.md")} == set(PAGES)
    for page in PAGES:
        assert f"trainers/{page}" in entry
