"""vLLM's worker for CPUs with two bugs, as a user's own worker class has them (--worker-cls vllm_worker.CustomWorker).

Each bug depends on the request, and happens on rank 1 only.
"""

from typing import Any

from vllm.v1.worker.cpu_worker import CPUWorker

TOO_RARE, EMPTY = 21, 22
"""A token that the table of penalties of rank 1 does not hold, and one with an empty replacement."""


class CustomWorker(CPUWorker):
    """Counts the tokens of new requests on rank 1 before it executes the model."""

    def execute_model(self, scheduler_output: Any) -> Any:
        """Count, then execute."""
        if self.rank == 1:
            for request in scheduler_output.scheduled_new_reqs:
                self.count(list(request.prompt_token_ids))
        return super().execute_model(scheduler_output)

    def count(self, tokens: list[int]) -> int:
        """The number of tokens after replacement."""
        penalties = [0.0] * TOO_RARE
        count = 0
        while tokens:
            if tokens[0] != EMPTY:
                penalties[tokens[0]] += 1
                tokens = tokens[1:]
                count += 1
        return count
