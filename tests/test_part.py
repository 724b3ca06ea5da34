import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentmill.cache.part import Part, read_part
from latentmill.datasets.errors import UsageError

ARRAY = {"SLURM_ARRAY_TASK_MIN": "5", "SLURM_ARRAY_TASK_MAX": "8", "SLURM_ARRAY_TASK_COUNT": "4"}


@given(st.integers(1, 9), st.integers(0, 60))
def test_parts_share_a_plan_without_gap_or_overlap(count: int, size: int) -> None:
    parts = [Part(number, count) for number in range(1, count + 1)]
    shares = [[place for place in range(size) if part.takes(place)] for part in parts]
    assert sorted(place for share in shares for place in share) == list(range(size))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize(
    ("text", "environment", "part"),
    [
        ("", {"RANK": "1", "WORLD_SIZE": "2"}, None),
        ("2/4", {}, Part(2, 4)),
        ("1/1", {}, Part(1, 1)),
        ("auto", {"RANK": "0", "WORLD_SIZE": "3"}, Part(1, 3)),
        ("auto", {"RANK": "2", "WORLD_SIZE": "3"}, Part(3, 3)),
        ("auto", {"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, Part(2, 2)),
        ("auto", {"SLURM_ARRAY_TASK_ID": "7", **ARRAY}, Part(3, 4)),
        ("auto", {"JOB_COMPLETION_INDEX": "0", "JOB_COMPLETIONS": "5"}, Part(1, 5)),
        # torchrun counts over all nodes, srun starts one torchrun a node.
        (
            "auto",
            {"RANK": "9", "WORLD_SIZE": "16", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"},
            Part(10, 16),
        ),
        (
            "auto",
            {"SLURM_ARRAY_TASK_ID": "5", **ARRAY, "SLURM_PROCID": "0", "SLURM_NTASKS": "1"},
            Part(1, 4),
        ),
    ],
)
def test_a_part_is_as_told_or_as_the_launcher_says(
    text: str, environment: dict[str, str], part: Part | None
) -> None:
    assert read_part(text, environment) == part


@pytest.mark.parametrize(
    ("text", "environment", "said"),
    [
        ("0/2", {}, "no part 0 of 2"),
        ("3/2", {}, "no part 3 of 2"),
        ("1/5000", {}, "no part 1 of 5000"),
        ("half", {}, "not a part"),
        ("1/2/3", {}, "not a part"),
        ("auto", {}, "finds no launcher"),
        ("auto", {"JOB_COMPLETION_INDEX": "1"}, "JOB_COMPLETIONS"),
        ("auto", {"RANK": "x", "WORLD_SIZE": "2"}, "'x' is no number"),
        ("auto", {"RANK": "2", "WORLD_SIZE": "2"}, "no part 3 of 2"),
        ("auto", {"SLURM_ARRAY_TASK_ID": "5", **ARRAY, "SLURM_ARRAY_TASK_MAX": "11"}, "has gaps"),
        (
            "auto",
            {"RANK": "0", "WORLD_SIZE": "2", "SLURM_ARRAY_TASK_ID": "5", **ARRAY},
            "two launchers",
        ),
    ],
)
def test_what_is_no_part_says_so(text: str, environment: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        read_part(text, environment)
    assert "--part 1/2" in caught.value.fix
