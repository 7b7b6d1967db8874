"""The prose linter finds odd words and long sentences where a person reads them, and nowhere else."""

from pathlib import Path

import pytest

from docs.prose import LONGEST, faults, main, of_file, sentences, strings


def found(text: str) -> list[int]:
    return [line for line, _ in faults(text)]


@pytest.mark.parametrize(
    "odd",
    [
        "rank 1 all stands still",
        "who stands behind `for step in ...`",
        "which calls it in vain (HD404)",
        "what could not be seen is said",
        "Everybody waits in one operation",
        "and how to mend it",
        "Rank 1 is through and waits",
        "why it does not come",
    ],
)
def test_samples_of_the_issue_are_found(odd: str) -> None:
    assert found(odd) == [1]


@pytest.mark.parametrize(
    "plain",
    [
        "Rank 1 left the loop after 3 batches; rank 0 is waiting for it in all_reduce (DDP backward).",
        "Evidence goes through the filter, and is read through the store.",
        "Run `told --mend` and read [the page](said.md).",
        "```\nrank 1 all stands still, in vain\n```",
        "A word that contains one: unfoldings, historic, amended.",
    ],
)
def test_plain_texts_and_code_pass(plain: str) -> None:
    assert found(plain) == []


def test_a_long_sentence_is_found_at_its_line_also_where_it_is_wrapped() -> None:
    words = ["word"] * (LONGEST + 1)
    assert found("Short.\n\n" + " ".join(words[:20]) + "\n" + " ".join(words[20:])) == [3]
    assert found(" ".join(words[1:]) + ". " + " ".join(words[1:]) + ".") == []


def test_cells_and_items_end_a_sentence() -> None:
    half = " ".join(["word"] * (LONGEST - 5))
    assert found(f"| {half} | {half} |\n") == []
    assert found(f"- {half}\n- {half}\n") == []
    assert [line for line, _ in sentences("one\n\n| two | three |\n- four\n  goes on")] == [1, 3, 3, 4]


def test_strings_of_a_program_are_read_and_its_names_are_not(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text('"""A page."""\n\nsaid = told("said")\nprint(f"rank {said} stands still here")\n')
    assert next(strings(path.read_text())) == (4, "rank code stands still here")
    assert [(line, "stands still" in fault) for _, line, fault in of_file(path)] == [(4, True)]


def test_what_is_clean_stays_clean(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0, capsys.readouterr().out


def test_a_file_with_faults_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("Fine.\n\nRank 1 waits in vain.\n")
    assert main([str(page)]) == 1
    assert "page.md:3: 'in vain' is odd" in capsys.readouterr().out
