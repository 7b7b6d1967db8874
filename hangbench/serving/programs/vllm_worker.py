"""vLLM's worker for CPUs with two bugs, as a user's own worker class has them (--worker-cls vllm_worker.CustomWorker).

Each bug depends on the request, and happens on rank 1 only.
"""

from typing import Any

from token_count import count_tokens
from vllm.v1.worker.cpu_worker import CPUWorker


class CustomWorker(CPUWorker):
    """Counts the tokens of new requests on rank 1 before it executes the model."""

    def execute_model(self, scheduler_output: Any) -> Any:
        """Count, then execute."""
        if self.rank == 1:
            for request in scheduler_output.scheduled_new_reqs:
                count_tokens(list(request.prompt_token_ids))
        return super().execute_model(scheduler_output)
