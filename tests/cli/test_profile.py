"""`packer build --profile` says where the time went."""

import pytest
from command_line import fields, run

PARTS = ["plan", "documents", "blocks", "commit"]


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_profile_has_every_part(starter, tmp_path, jobs):
    told = fields("build", "-c", starter / "recipe.yaml", "-o", tmp_path / "cache", "-j", jobs, "--profile")
    assert list(told["profile"]) == PARTS
    assert 0 < sum(told["profile"].values()) <= told["seconds"] + 0.01


def test_the_profile_is_printed_where_it_is_asked_for(starter, tmp_path):
    asked = ("build", "-c", starter / "recipe.yaml", "-o", tmp_path / "cache", "-j", 1)
    printed = run(*asked, "--profile").stdout
    for name in PARTS:
        assert f"\n  {name} " in printed
    assert all(len(line) <= 80 for line in printed.partition("\ntime\n")[2].splitlines())
    assert "\ntime" not in run(*asked, "--force", "--set", "pack.block_len=512").stdout


def test_a_build_that_has_nothing_to_do_has_no_profile(starter, tmp_path):
    asked = ("build", "-c", starter / "recipe.yaml", "-o", tmp_path / "cache", "-j", 1, "--profile")
    run(*asked)
    assert run(*asked).stdout.endswith("\ntime: nothing was built\n")
    assert fields(*asked)["profile"] == {}
