"""What a shell completes: asked as the scripts of bash, zsh and fish ask, and by bash itself."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from packer.rejections import CODES
from packer.starter import FAMILIES
from packer_cli.main import COMMANDS, cli


def completed(*words: str) -> list[tuple[str, str]]:
    *before, begun = words
    found = ShellComplete(cli, {}, "packer", "_PACKER_COMPLETE").get_completions(before, begun)
    return [(item.type, item.value) for item in found]


def test_commands_options_codes_and_names_are_completed() -> None:
    assert [value for _, value in completed("")] == [*COMMANDS]
    assert completed("bu") == [("plain", "build")]
    assert ("plain", "--block-len") in completed("build", "--b")
    assert [value for _, value in completed("init", "--for", "")] == [*FAMILIES]
    assert completed("explain", "unknown_r") == [("plain", "unknown_role")]
    assert {*CODES} <= {value for _, value in completed("explain", "")}
    assert ("plain", "datasets") in completed("export", "c", "--to", "d")
    for words in (["build", "x"], ["build", "--tokenizer", "x"], ["build", "--template", "x"], ["verify", "x"]):
        assert completed(*words) == [("file", "x")], words


@pytest.mark.skipif(shutil.which("bash") is None, reason="BASH MISSING: its completion is not tried")
def test_bash_completes() -> None:
    script = """eval "$(_PACKER_COMPLETE=bash_source packer)"
COMP_WORDS=(packer explain unknown_r); COMP_CWORD=2; _packer_completion packer
echo ${COMPREPLY[@]}"""
    own = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    found = subprocess.run(["bash", "-c", script], check=False, env=own, capture_output=True, text=True)
    assert (found.stdout, found.stderr) == ("unknown_role\n", "")
