"""All stacks as one tree, and all settings side by side."""

from hypothesis import given
from hypothesis import strategies as st

from hangdoc.detail import Branch
from hangdoc.reasoning.engine import examine
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.views.detail import compare_settings, merge_stacks
from tests.unit.builders import frame, rank, snapshot


def run_of(*stacks: tuple[str, ...], **more: object) -> Run:
    """A run whose ranks stand in these functions, the outermost first."""
    processes = (
        rank(n, *(frame(name) for name in reversed(stack)), world=len(stacks), **more)  # type: ignore[arg-type]
        for n, stack in enumerate(stacks)
    )
    (run,) = examine(snapshot(*processes))[1]
    return run


def shape(branch: Branch) -> object:
    """Ranks, functions and branches, to be compared."""
    return branch.ranks, [f.function for f in branch.frames], [shape(below) for below in branch.branches]


def test_ranks_are_together_as_long_as_their_stacks_are() -> None:
    run = run_of(("main", "train", "step"), ("main", "train", "load", "open"), ("main", "train", "step"))
    assert shape(merge_stacks(run.ranks.values())) == (
        (0, 1, 2),
        [],
        [((0, 1, 2), ["main", "train"], [((0, 2), ["step"], []), ((1,), ["load", "open"], [])])],
    )


def test_a_rank_may_stand_where_others_go_on() -> None:
    run = run_of(("main",), ("main", "train"), ())
    assert shape(merge_stacks(run.ranks.values())) == ((0, 1, 2), [], [((0, 1), ["main"], [((1,), ["train"], [])])])


@given(st.lists(st.lists(st.sampled_from("abc"), max_size=5).map(tuple), min_size=1, max_size=8))
def test_every_stack_is_a_path_of_the_tree(stacks: list[tuple[str, ...]]) -> None:
    run = run_of(*stacks)
    tree = merge_stacks(run.ranks.values())

    def paths(branch: Branch, above: list[str]) -> dict[int, list[str]]:
        here = above + [f.function for f in branch.frames]
        found = dict.fromkeys(branch.ranks, here)
        for below in branch.branches:
            assert set(below.ranks) <= set(branch.ranks)
            found |= paths(below, here)
        return found

    assert paths(tree, []) == {n: list(stack) for n, stack in enumerate(stacks)}


def test_what_differs_comes_first_and_the_gravest_of_it() -> None:
    environments = (
        {"NCCL_ALGO": "Ring", "MY_FLAG": "1", "RANK": "0"},
        {"NCCL_ALGO": "Tree", "MY_FLAG": "1", "RANK": "1"},
    )
    processes = (
        rank(
            n,
            frame("main"),
            environment=environments[n],
            argv=("python", "-u", "train.py", f"cfg_node{n}.yaml", "imagenet", "--batch-size", str(8 + n)),
        )
        for n in range(2)
    )
    (run,) = examine(snapshot(*processes))[1]
    found = [(one.shown_name, one.standing, one.differs) for one in compare_settings(run)]
    assert found == [  # and no `-u`, which is Python's
        ("--batch-size", "must agree", True),
        ("argument 1", "unknown", True),
        ("NCCL_ALGO", "inert", True),  # under Gloo
        ("RANK", "may differ", True),
        ("argument 2", "unknown", False),
        ("MY_FLAG", "unknown", False),
    ]
    assert compare_settings(run)[0].values.values == (("8", (0,)), ("9", (1,)))


def test_of_thousands_of_words_the_first_ones_are_settings() -> None:
    """A shell has written them in place of `*.tar`."""
    argv = ("python", "train.py", *(f"/data/{number}.tar" for number in range(3000)), "--lr", "3")
    (run,) = examine(snapshot(*(rank(n, frame("main"), argv=argv) for n in range(2))))[1]
    names = [each.shown_name for each in compare_settings(run) if each.origin == "argument"]
    assert sorted(names) == sorted(["--lr", *(f"argument {number}" for number in range(1, 33))])
