"""What is kept of source files between polls: nothing that has changed, nothing of ended processes, and a bounded amount."""

import os
import time
from pathlib import Path

import pytest

from hangdoc import redact
from hangdoc.observe.access.process_files import Root, files_of
from hangdoc.observe.stacks import source_files
from hangdoc.observe.stacks.source_files import SourceFiles
from hangdoc.procfs import ProcFS

NOW = time.time()


def written(path: Path, text: str, ago: float = 3600) -> str:
    path.write_text(text)
    os.utime(path, (NOW - ago, NOW - ago))
    return str(path)


def read(files: SourceFiles, file: str, started: float = NOW, *, library: bool = False) -> str:
    proc = ProcFS()
    with files_of(proc, os.getpid(), proc.stat("self").start_ticks) as own:
        return files.lines(own, started, file, library=library)[1].text


@pytest.fixture
def filtered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts whose secrets were filtered."""
    texts: list[str] = []
    real = redact.source

    def source(text: str) -> str:
        texts.append(text)
        return real(text)

    monkeypatch.setattr(redact, "source", source)
    return texts


@pytest.mark.parametrize("older_first", [True, False])
def test_of_two_processes_only_the_one_newer_than_the_file_uses_it(tmp_path: Path, older_first: bool) -> None:
    """An old run and a new run of one script, which was changed in between."""
    file, files = written(tmp_path / "train.py", "a = 1\n", ago=60), SourceFiles()
    expected = {NOW - 3600: "", NOW: "a = 1\n"}
    for started in sorted(expected, reverse=not older_first):
        assert read(files, file, started) == expected[started]


def test_a_file_that_did_not_change_is_filtered_once(tmp_path: Path, filtered: list[str]) -> None:
    file, files = written(tmp_path / "train.py", "a = 1\n"), SourceFiles()
    for _ in range(3):
        assert read(files, file) == "a = 1\n"
        files.renew()
    assert len(filtered) == 1


def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    file, files = written(tmp_path / "train.py", "a = 1\n"), SourceFiles()
    assert read(files, file) == "a = 1\n"
    written(tmp_path / "train.py", "b = 2\n", ago=1800)
    files.renew()
    assert read(files, file) == "b = 2\n"


def test_a_file_first_read_for_a_library_is_filtered_for_a_script(tmp_path: Path, filtered: list[str]) -> None:
    """A checkout may be a library of one run and the code of another."""
    file, files = written(tmp_path / "tool.py", 'password = "hunter2hunter2"\n'), SourceFiles()
    read(files, file, library=True)
    assert "hunter2" not in read(files, file)


def test_the_files_of_many_runs_are_not_all_kept(
    tmp_path: Path, filtered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_files, "_MAX_KEPT", 1000)
    files = SourceFiles()
    names = [written(tmp_path / f"train{number}.py", f"a = {number}\n" + "b = 1\n" * 15) for number in range(50)]
    for name in names:
        read(files, name)
        files.renew()
    read(files, names[-1])
    assert len(filtered) == 50  # the last one was kept
    read(files, names[0])
    assert len(filtered) == 51
    assert sum(len(file.lines.text) for file in (*files._files.values(), *files._earlier.values()) if file) <= 1100


def test_a_file_system_that_answers_again_is_read_after_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, files = written(tmp_path / "train.py", "a = 1\n"), SourceFiles()
    with monkeypatch.context() as patch:
        patch.setattr(source_files, "_BOUND_SECONDS", 0.05)
        patch.setattr(Root, "read", lambda *_: time.sleep(0.5))
        assert read(files, file) == ""
    assert read(files, file) == ""
    files.renew()
    assert read(files, file) == "a = 1\n"
