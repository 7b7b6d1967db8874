"""A callback for Ray Train (2.49 or newer): the controller observes the run from outside, and ends it when it hangs.

    TorchTrainer(train, run_config=RunConfig(callbacks=[HangdocCallback()]), ...)

This module must be importable in the controller's process: beside the script, in PYTHONPATH, or in the `runtime_env`.
Nothing is added to the ranks. The controller needs access to them (docs/attaching.md), and reaches ranks on other nodes over ssh.
It takes each look in a thread, so that it continues to poll its workers.
"""

import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ray
from ray.train.v2._internal.execution.callback import WorkerGroupCallback

import hangdoc


class HangError(RuntimeError):
    """The run hangs; the message is the finding."""


class HangdocCallback(WorkerGroupCallback):
    """Takes a look every `every` seconds. A hang that two looks in a row find, and that is `patience` seconds old, ends the
    attempt with HangError. Ray's FailureConfig decides whether it is restarted. Bundle and page go into `output`."""

    def __init__(self, every: float = 30.0, patience: float = 60.0, output: str = "hangs") -> None:
        self._every, self._patience, self._output = every, patience, Path(output).absolute()
        self._places: set[tuple[str, int]] = set()
        self._thread: ThreadPoolExecutor | None = None
        self._look: Future[hangdoc.Result] | None = None
        self._next = 0.0
        self._before: set[str] = set()

    def after_worker_group_training_start(self, worker_group: Any) -> None:
        """A new attempt has new processes."""
        self._places = {(worker.metadata.node_ip, worker.metadata.pid) for worker in worker_group.get_workers()}
        self._before, self._look, self._next = set(), None, time.monotonic() + self._every

    def after_worker_group_poll_status(self, worker_group_status: Any) -> None:
        """About once a second."""
        if self._look is None and time.monotonic() >= self._next:
            self._thread = self._thread or ThreadPoolExecutor(1, "hangdoc")
            self._look = self._thread.submit(self._diagnose)
        if self._look is not None and self._look.done():
            look, self._look = self._look, None
            self._next = time.monotonic() + self._every
            try:
                result = look.result()
            except hangdoc.DiagnoseError as error:
                print(f"hangdoc: {error}")
                return
            self._judge(result)

    def _diagnose(self) -> hangdoc.Result:
        hosts = {ip for ip, _ in self._places}
        if hosts == {ray.util.get_node_ip_address()}:
            return hangdoc.diagnose(run_of=min(pid for _, pid in self._places), patience=self._patience)
        return hangdoc.diagnose(hosts=sorted(hosts), patience=self._patience)

    def _judge(self, result: hangdoc.Result) -> None:
        pids = {pid for _, pid in self._places}
        ours = [job for job in result.jobs if job.verdict == "hung" and pids & {view.pid for view in job.ranks}]
        errors = {finding.id: finding for job in ours for finding in job.findings if finding.severity == "error"}
        confirmed = [finding for name, finding in errors.items() if name in self._before]
        self._before = set(errors)
        if confirmed:
            self._output.mkdir(parents=True, exist_ok=True)
            result.save(self._output / f"{confirmed[0].id}.hangdoc")
            (self._output / f"{confirmed[0].id}.html").write_text(result.html())
            raise HangError(
                f"{confirmed[0].code} {confirmed[0].name}: {confirmed[0].summary} (evidence in {self._output})"
            )
