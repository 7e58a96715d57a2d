"""What the documentation shows works: links lead somewhere, keys and codes are all there, Python blocks run."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
import reference
import yaml
from command_line import run

from packer.recipe.recipe import Recipe, make_recipe, to_json

REPOSITORY = Path(__file__).resolve().parent.parent
PAGES = sorted(
    [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md"]
    + [page for folder in ("docs", ".github") for page in (REPOSITORY / folder).rglob("*.md")]
)
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)


def blocks_of(page: str) -> list[str]:
    return PYTHON.findall((REPOSITORY / page).read_text("utf-8"))


def anchors_of(page: Path) -> set[str]:
    """What a page's headings are called in links."""
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_between_pages_lead_to_pages_and_headings() -> None:
    checked = anchors = 0
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text("utf-8")):
            there = page.parent / target if target else page
            assert there.exists(), f"{page.name} links to {target}"
            checked += 1
            if anchor:
                assert anchor in anchors_of(there), f"{page.name} links to {target}#{anchor}"
                anchors += 1
    assert checked > 100
    assert anchors > 10


def test_the_api_page_has_every_public_name() -> None:
    import packer.load
    import packer.load.trainers

    page = (REPOSITORY / "docs" / "reference" / "api.md").read_text("utf-8")
    shown = re.findall(r"^::: (.*)$", page, re.MULTILINE)
    names = {*packer.__all__, *packer.load.__all__, *packer.load.trainers.__all__}
    assert len(names) > 20
    assert names <= {name.rpartition(".")[2] for name in shown}
    for name in shown:
        module, _, attribute = name.rpartition(".")
        if attribute not in names:
            assert importlib.util.find_spec(name if name == "packer.load.attention" else module), name


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    settings = (REPOSITORY / "docs" / "site" / "mkdocs.yml").read_text("utf-8")
    for page in (REPOSITORY / "docs").rglob("*.md"):
        assert f"- {page.relative_to(REPOSITORY / 'docs').as_posix()}\n" in settings, page


def test_workflows_and_forms_name_targets_and_commands_that_exist() -> None:
    files = sorted((REPOSITORY / ".github").rglob("*.yml"))
    assert len(files) > 2
    texts = {file.name: file.read_text("utf-8") for file in files}
    assert all(isinstance(yaml.safe_load(text), dict) for text in texts.values())
    targets = {target for called in re.findall(r"make ([a-z ]+)", texts["ci.yml"]) for target in called.split()}
    made = re.findall(r"^([a-z]+):", (REPOSITORY / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert {"check", "test"} <= targets <= {*made}


def test_generated_pages_are_what_make_docs_writes(capsys: pytest.CaptureFixture[str]) -> None:
    assert reference.main(["--check"]) == 0, capsys.readouterr().err


def test_the_recipe_page_names_every_key_with_its_default() -> None:
    text = (REPOSITORY / "docs" / "reference" / "recipe.md").read_text("utf-8")
    (example,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    written = yaml.safe_load(example)
    written["sources"] = []
    assert make_recipe(written) == Recipe()
    keys = set(re.findall(r"(\w+):", example))
    groups = [group for group in to_json(Recipe()).values() if isinstance(group, dict)]
    assert {key for group in (to_json(Recipe()), *groups) for key in group} <= keys


def test_the_sessions_of_the_documentation_print_what_the_pages_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody gets these fingerprints. Only time, speed and engine of a build are those of a machine."""
    shown = 0
    for number, page in enumerate(("README.md", "docs/tutorial.md")):
        text = (REPOSITORY / page).read_text("utf-8")
        (tmp_path / str(number)).mkdir()
        monkeypatch.chdir(tmp_path / str(number))
        blocks = re.findall(r"```\n(.*?)```", text, re.DOTALL)
        printed = [block for block in blocks if block.startswith("built ")]
        for block in blocks:
            first, _, told = block.partition("\n")
            if first.startswith("$ packer ") and "error:" not in told:
                assert without_machine(run(*first.split()[2:]).stdout) == without_machine(told), block
                shown += 1
            elif block.startswith("packer init first\n"):
                (expected,) = printed
                outputs = [run(*line.split()[1:]).stdout for line in block.splitlines()]
                assert without_machine(outputs[-1]) == without_machine(expected)
                shown += 1
    assert shown == 4


def without_machine(told: str) -> str:
    return re.sub(r"(?m)^(built \S+) in .*", r"\1", told)


def tiny_model(vocab_size: int):
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=vocab_size, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=1024,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


LOOPS = [
    ("docs/how-to/train.md", ("AutoModelForCausalLM", "torch.save(")),  # train, then save and go on
    ("docs/how-to/train.md", ("block_diagonal_mask",)),
    ("docs/how-to/train.md", ("loader.epoch < 3",)),
    ("docs/tutorial.md", ("for step in",)),
]
"""Page → what stands in the blocks to run, in each block alone."""


@pytest.mark.parametrize(("page", "held"), LOOPS)
def test_training_loops_of_the_documentation_run(
    page: str, held: tuple[str, ...], few_blocks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transformers = pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cache").symlink_to(few_blocks)
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "cache").symlink_to(few_blocks)
    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", lambda _: tiny_model(4096))
    names: dict[str, object] = {}
    for text in held:
        (block,) = (block for block in blocks_of(page) if text in block)
        exec(block, names)
    assert "step" in names


@pytest.mark.filterwarnings("ignore")  # the Trainer uses what its libraries deprecated
def test_the_trainer_of_the_readme_trains(few_blocks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cache").symlink_to(few_blocks)
    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", lambda _: tiny_model(4096))
    (trainer,) = blocks_of("README.md")
    names: dict[str, Any] = {}
    exec(trainer, names)
    assert names["trainer"].state.global_step > 2


def test_the_batchings_and_mixtures_of_the_documentation_open(
    starter_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    for name in ("cache", "chat", "code"):
        (tmp_path / name).symlink_to(starter_cache)
    shown = [block for block in blocks_of("docs/how-to/train.md") if "num_pairs" not in block]  # of another cache
    examples = [block for block in shown if any(word in block for word in ("batching=", "order=", "Mixture("))]
    for code in examples:
        exec(code, {})
    assert len(examples) == 3


def test_the_check_of_a_collator_prints_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("trl")
    (code,) = blocks_of("docs/how-to/check.md")
    exec(code, {})
    printed = capsys.readouterr().out
    assert "✗ mask" in printed
    assert f"```\n{printed}```" in (REPOSITORY / "docs" / "how-to" / "check.md").read_text("utf-8")


def test_the_boundary_check_of_the_documentation_recognizes_a_model_that_leaks(
    few_blocks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cache").symlink_to(few_blocks)
    code = next(block for block in blocks_of("docs/how-to/train.md") if "poison_test" in block)
    model = tiny_model(4096).eval()
    exec(code, {"model": model})

    class Leaky:
        def __call__(self, **arguments):
            return model(**{**arguments, "use_cache": True})

    exec(code, {"model": Leaky()})
    verdicts = [line.split(":")[0] for line in capsys.readouterr().out.splitlines() if line.startswith("boundaries")]
    assert verdicts == ["boundaries hold", "boundaries leak"]


def test_the_search_of_the_site_works_from_the_disk_and_keeps_keys_whole() -> None:
    settings = yaml.safe_load((REPOSITORY / "docs" / "site" / "mkdocs.yml").read_text("utf-8"))
    (search,) = (plugin["search"] for plugin in settings["plugins"] if "search" in plugin and isinstance(plugin, dict))
    words = re.split(search["separator"], "`--set supervision.history_rewrite=exact`, [on_prompt_mismatch](#a)")
    assert {"set", "history_rewrite", "on_prompt_mismatch"} <= set(words)
    assert "offline" in settings["plugins"] and not settings["use_directory_urls"]
    for script in settings["extra"]["polyfills"]:
        assert (REPOSITORY / "docs" / script).is_file(), "the plugin would name one on another server"
