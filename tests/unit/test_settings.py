"""What is known of arguments and variables: names in every spelling, and command lines of every form."""

import pytest

from hangdoc import settings
from hangdoc.parse import are_opposite, denied, negated, parsed_expression, write_condition
from hangdoc.reasoning.runs import launch


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("grad-accum", "collectives"),
        ("gradient_accumulation_steps", "collectives"),
        ("gradientAccumulationSteps", "collectives"),
        ("train.grad_accum", "collectives"),
        ("device-batch-size", "collectives"),
        ("max_train_samples", "collectives"),
        ("train_size", "collectives"),
        ("num_return_samples", None),
        ("max_steps", "collectives"),
        ("eval-every", "collectives"),
        ("depth", "collectives"),
        ("max-seq-len", "collectives"),
        ("bf16", "collectives"),
        ("lr", "numbers"),
        ("num-workers", "tuning"),
        ("seed", "differs"),
        ("local-rank", "differs"),
        ("node_rank", "differs"),
        ("output-dir", "differs"),
        ("data-dir", "data"),
        ("datasets", "data"),
        ("train_path", "data"),
        ("data.path", "data"),
        ("trainer.root", None),
        ("favourite-colour", None),
    ],
)
def test_arguments(name: str, kind: str | None) -> None:
    found = settings.argument(name)
    assert (found.kind if found else None) == kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("TORCH_DISTRIBUTED_DEBUG", "collectives"),
        ("NCCL_ALGO", "collectives"),
        ("NCCL_IB_DISABLE", "numbers"),
        ("NANOCHAT_DATA_DIR", "data"),
        ("OMP_NUM_THREADS", "tuning"),
        ("LOCAL_RANK", "differs"),
        ("HOME", None),
    ],
)
def test_variables(name: str, kind: str | None) -> None:
    found = settings.variable(name)
    assert (found.kind if found else None) == kind


def test_the_number_of_a_node_tells_nodes_apart() -> None:
    """On one node it is the same for all ranks, and was said to tell them apart."""
    whys = [setting.why for name in ("GROUP_RANK", "LOCAL_RANK") if (setting := settings.variable(name)) is not None]
    assert whys == ["tells nodes apart", "tells ranks apart"]


def test_nccl_is_inert_under_gloo_alone() -> None:
    assert settings.inert("NCCL_ALGO", "gloo")
    assert not settings.inert("NCCL_ALGO", "nccl")
    assert not settings.inert("TORCH_DISTRIBUTED_DEBUG", "gloo")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("python -u /x/train.py /data/imgs --lr 1 more", ["/data/imgs", "more"]),
        ("python train.py imgs --lr=1 more data.path=x", ["imgs", "more"]),
        ("python -m pkg.train imgs", ["imgs"]),
        ("python -c pass --multiprocessing-fork", []),
    ],
)
def test_words_that_belong_to_no_option(line: str, words: list[str]) -> None:
    argv = tuple(line.split())
    assert list(settings.positionals(argv, launch.program(argv)).values()) == words


def test_command_lines() -> None:
    line = "python train.py pos --depth 12 --lr=-1e-3 --warm -x 3 --shift -2 +model.size=7 data=x --flag"
    assert settings.options(tuple(line.split())) == {
        "depth": "12", "lr": "-1e-3", "warm": "(set)", "x": "3", "shift": "-2", "model.size": "7", "data": "x", "flag": "(set)",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("test", "opposite"),
    [
        ("rank == 0", "rank != 0"),
        ("rank != 0", "rank == 0"),
        ("not is_main", "is_main"),
        ("self.rank != self.verbose_rank", "self.rank == self.verbose_rank"),
        ("a and b", "not (a and b)"),
        ("not (a and b)", "a and b"),
        ("not torch.isfinite(loss)", "torch.isfinite(loss)"),
        ("torch.isfinite(loss)", "not torch.isfinite(loss)"),
        ("(a) and (b)", "not ((a) and (b))"),
        ("not (a) and (b)", "not (not (a) and (b))"),
        ("except OSError", "not (except OSError)"),
        ("key in seen", "key not in seen"),
    ],
)
def test_the_opposite_of_a_condition(test: str, opposite: str) -> None:
    assert negated(test) == opposite
    assert are_opposite(test, opposite)
    assert are_opposite(opposite, test)


@pytest.mark.parametrize(
    ("test", "shown"),
    [
        ("not (not deep and (not seen.any()))", "not deep and not seen.any()"),
        ("not (step < 3)", "step < 3"),
        ("not (x if a else b)", None),
        ("not is_main", None),
        ("rank == 0", None),
        ("not (cut and", None),
    ],
)
def test_what_a_condition_denies_is_shown_as_the_source_has_it(test: str, shown: str | None) -> None:
    assert denied(test) == shown


@pytest.mark.parametrize(
    "source",
    ["not a and i == n and not c", "(a or b) and not (c and d)", "a or b and not c", "(x if a else b) and (n := f())"],
)
def test_a_condition_is_written_without_needless_parentheses(source: str) -> None:
    node = parsed_expression(source)
    assert node is not None
    assert write_condition(node) == source
