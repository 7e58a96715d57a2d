"""`packer build --profile` says where the time went."""

import json

import pytest
from click.testing import CliRunner

from packer_cli.main import cli

STAGES = ["load", "read", "render", "tokenize", "supervise", "write"]
PARTS = ["plan", "documents", "blocks", "commit"]


def run(*arguments):
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_profile_has_every_part_and_every_stage(starter, tmp_path, jobs):
    asked = ("build", "-c", starter / "recipe.yaml", "-o", tmp_path / "cache", "-j", jobs, "--profile", "--json")
    told = json.loads(run(*asked))
    profile = told["profile"]
    assert list(profile["parts"]) == PARTS
    assert sorted(profile["stages"]) == sorted(STAGES)
    assert profile["processes"] == jobs
    assert 0 < sum(profile["parts"].values()) <= told["seconds"] + 0.01
    # Stages lie within their processes, and those within the part.
    assert 0 < sum(profile["stages"].values()) <= jobs * profile["parts"]["documents"] + 0.01


def test_the_profile_is_printed_where_it_is_asked_for(starter, tmp_path):
    asked = ("build", "-c", starter / "recipe.yaml", "-o", tmp_path / "cache", "-j", 1)
    printed = run(*asked, "--profile")
    for name in PARTS + STAGES:
        assert f"\n  {name} " in printed
    assert all(len(line) <= 80 for line in printed.partition("\ntime\n")[2].splitlines())
    assert "\ntime" not in run(*asked, "--force", "--set", "pack.block_len=512")


def test_a_build_that_has_nothing_to_do_has_no_profile(starter, tmp_path):
    asked = ("build", "-c", starter / "recipe.yaml", "-o", tmp_path / "cache", "-j", 1, "--profile")
    run(*asked)
    assert run(*asked).endswith("\ntime: nothing was built\n")
    assert json.loads(run(*asked, "--json"))["profile"] == {"parts": {}, "stages": {}, "processes": 0}
