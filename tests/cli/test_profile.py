"""`packer build --json` says where the time went."""

import pytest
from command_line import fields, run

PARTS = ["plan", "documents", "blocks", "commit"]


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_profile_has_every_part(starter, tmp_path, jobs):
    told = fields("build", "-c", starter / "recipe.yaml", "-o", tmp_path / "cache", "-j", jobs)
    assert list(told["profile"]) == PARTS
    assert 0 < sum(told["profile"].values()) <= told["seconds"] + 0.01


def test_a_build_that_has_nothing_to_do_has_no_profile(starter, tmp_path):
    asked = ("build", "-c", starter / "recipe.yaml", "-o", tmp_path / "cache", "-j", 1)
    run(*asked)
    assert fields(*asked)["profile"] == {}
