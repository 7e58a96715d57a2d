"""Whatever strangers wrote into names, manifests and messages is shown: nothing of it reaches a terminal as an order."""

import io
import json
import logging
import re
import shutil
import sys
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path

import click.testing
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from packer.recipe.recipe import load_recipe
from packer_cli.main import cli
from packer_cli.output import Output, guarded_streams

# An operating system command, movements, a C1 introducer, marks of direction, other ends of lines, markup, a forged line.
EVIL = (
    "\x1b]0;pwned\x07\x1b[2J\x1b[7m\x9b1;1H\u202eevil\u2066\u200f\u061c\x08\x7f\u2028\x85\v[red]m[/red]\r\nok: forged"
)
SHOWN = r"\x1b]0;pwned\x07\x1b[2J"
EVIL_NAME = EVIL.replace("/", "|")
NO_TEXT = f"{EVIL_NAME}\udcff.arrow"
FORBIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
STYLES = re.compile(r"\x1b\[(?:0|(?:[12];)?3[1236]|[12])m")
BARS = re.compile(r"\x1b\[(?:\?25[lh]|2K|1A|[0-9;]*m)|\r")


@pytest.fixture(params=["pipe", "terminal"])
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Runs a command, and looks at all it prints."""
    is_terminal = request.param == "terminal"
    monkeypatch.setattr(click.testing._NamedTextIOWrapper, "isatty", lambda _: is_terminal)

    def run(*words: object, is_bug: bool = False) -> str:
        done = CliRunner(env={"COLUMNS": "80", "TERM": "xterm"}).invoke(cli, [*map(str, words)])
        shown, told = STYLES.sub("", done.stdout), STYLES.sub("", done.stderr)
        if is_terminal:
            told = BARS.sub("", told)
        else:
            assert "\x1b" not in done.stdout + done.stderr
        for text in (shown, told):
            assert FORBIDDEN.search(text) is None, (words, text)
            assert not any(line.startswith("ok: forged") for line in text.splitlines()), (words, text)
            assert "evilm" not in text, "markup was obeyed"
        assert (done.exit_code == 70) == is_bug, (words, told)
        return shown + told

    return run


def test_no_name_of_a_file_steers_a_terminal(starter: Path, tmp_path: Path, run: Callable[..., str]) -> None:
    folder = tmp_path / EVIL_NAME
    folder.mkdir()
    rows = folder / f"{EVIL_NAME}.jsonl"
    shutil.copy(starter / "data" / "chat.jsonl", rows)
    tokenizer = Path(shutil.copytree(starter / "tokenizer", folder / "tokenizer"))
    (folder / "empty.jsonl").write_text("")
    pattern = tmp_path / "*" / "*.jsonl"
    count = 0
    for words in (
        ("preview", rows, "--tokenizer", tokenizer, "-v"), ("preview", rows, "--tokenizer", tokenizer, "--row", f"{rows}:20"),
        ("preview", rows, "--tokenizer", folder), ("preview", "--tokenizer", tokenizer, "-v"),
        ("build", pattern, "--tokenizer", tokenizer, "-o", folder / "cache", "-j", "1", "-v"),
        ("build", pattern, "--tokenizer", tokenizer, "-o", folder / "cache"), ("inspect", folder / "cache"),
        ("inspect", folder / "cache", "--row", f"{rows}:20"), ("verify", folder / "cache", "--sources", "/", "--full", "-v"),
        ("export", folder / "cache", "--to", "datasets", "-o", folder / "saved", "-v"), ("verify", "--foreign", folder / "saved", "--tokenizer", tokenizer),
        ("init", folder / "new", "-v"), ("build", pattern, "--tokenizer", tokenizer, "-o", folder / "packed", "--block-len", "256", "--fail-above", "1"),
        ("diff", folder / "cache", folder / "packed"), ("verify", folder), ("stats", rows), ("build", "-c", rows, "-o", "x"),
        ("verify", folder / NO_TEXT), ("build", folder / NO_TEXT, "--tokenizer", tokenizer, "-o", folder / "cache"),
    ):  # fmt: skip
        text = run(*words)
        count += SHOWN in text or SHOWN in text.replace("\n", "")
    assert count > 15


def test_no_argument_configuration_or_message_steers_a_terminal(
    starter: Path, starter_cache: Path, tmp_path: Path, run: Callable[..., str]
) -> None:
    config = tmp_path / "c.json"
    entry = {"path": "data.jsonl", "type": EVIL, EVIL: EVIL}
    for number, values in enumerate(
        ({"datasets": [entry], "base_model": EVIL, EVIL: EVIL}, {EVIL: {"file_name": EVIL, EVIL: 1}})
    ):
        config.write_text(json.dumps(values))
        run("init", tmp_path / f"new{number}", "--from", config, "-v")
    assert load_recipe(tmp_path / "new0" / "recipe.yaml"), "YAML has no room for control characters, in comments either"
    recipe = tmp_path / "recipe.yaml"
    for text in (
        f"{json.dumps(EVIL)}: 1",
        f"sources: [{{path: {json.dumps(EVIL)}, split: {json.dumps(EVIL)}}}]",
        "a: \x1b",
    ):
        recipe.write_text(text)
        run("build", "-c", recipe, "-o", tmp_path / "x")
    template = tmp_path / "template.jinja"
    for source in (
        f"{{{{ raise_exception({json.dumps(EVIL)}) }}}}",
        f"{{% {EVIL} %}}",
        f"{EVIL}{{{{ messages[0].content }}}}",
    ):
        template.write_text(source)
        for name in ("preview", "build"):
            out = () if name != "build" else ("-o", tmp_path / "x")
            run(name, starter / "data/chat.jsonl", "--tokenizer", starter / "tokenizer", "--template", template, *out)
    for words in ((EVIL,), (f"--{EVIL}",), ("verify", f"--{EVIL}"), ("build", "--schema", EVIL), ("preview", "--set", EVIL, starter / "data/chat.jsonl"),
                  ("inspect", starter_cache, "--block", EVIL), ("export", starter_cache, "--to", EVIL),
                  ("preview", "--set", f"sources.{EVIL}=1", starter / "data/chat.jsonl"),
                  ("verify", starter_cache, EVIL)):  # fmt: skip
        assert SHOWN in run(*words).replace("\n", ""), words


def test_what_others_print_does_not_steer_a_terminal(
    starter_cache: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., str]
) -> None:
    """Warnings, loggers, tracebacks, and `print`."""

    def stats(_: Path) -> None:
        line = EVIL.replace("\n", "")
        sys.stderr.write(
            warnings.formatwarning(line, UserWarning, "a.py", 1)
        )  # as it is done where nobody records them
        logging.lastResort.handle(logging.makeLogRecord({"msg": line, "levelno": logging.ERROR}))
        print(line)
        raise RuntimeError(EVIL)

    monkeypatch.setattr("packer.audit.stats.stats", stats)
    assert run("stats", "-v", starter_cache, is_bug=True).count(SHOWN) == 5


def test_json_says_it_in_escapes(run: Callable[..., str]) -> None:
    assert EVIL in json.loads(run("verify", "--json", "-q", EVIL))["error"]["message"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@given(st.text(st.characters(codec=None), max_size=20), st.sampled_from(["", "red", "green bold"]))
def test_any_text_is_one_line_and_comes_back_from_json(text: str, style: str) -> None:
    stream = Terminal()
    Output(stream).line((text, style))
    shown = STYLES.sub("", stream.getvalue())
    assert shown.endswith("\n") and "\n" not in shown[:-1] and FORBIDDEN.search(shown) is None
    stream = Terminal()
    Output(stream).json({"text": text})
    assert FORBIDDEN.search(stream.getvalue()) is None
    assert json.loads(stream.getvalue())["text"].encode("utf-16", "surrogatepass") == text.encode(
        "utf-16", "surrogatepass"
    )
    stream = Terminal()
    with redirect_stderr(stream), guarded_streams():
        sys.stderr.write(f"note {text}")
    assert FORBIDDEN.search(stream.getvalue()) is None


def test_bars_of_libraries_may_go_back_to_the_beginning_of_their_line() -> None:
    stream = io.StringIO()
    with redirect_stderr(stream), guarded_streams():
        for text in ("\rfile: 10%", "\n\n", "\x1b[A\x1b[A", "\x1b[A now", "a\rb"):
            sys.stderr.write(text)
    assert stream.getvalue() == "\rfile: 10%\n\n\x1b[A\x1b[A\\x1b[A nowa\\rb"
