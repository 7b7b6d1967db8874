"""A made-up worker for vLLM (--worker-cls vllm_gloo_worker.GlooWorker), where its wheel has no kernels for the CPU.

Everything else is vLLM's own: server, engine, scheduler, executor, worker processes with their loop, queues,
groups. The worker has no model: it adds numbers up in the tensor-parallel group (Gloo), and always answers the
same token.
"""

from typing import Any

import torch
from token_count import count_tokens
from vllm.distributed import tensor_model_parallel_all_reduce
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.worker.gpu_worker import init_worker_distributed_environment
from vllm.v1.worker.worker_base import CompilationTimes, WorkerBase

LAYERS = 2


class GlooWorker(WorkerBase):
    """The methods that vLLM's executor calls."""

    def init_device(self) -> None:
        """Create vLLM's groups."""
        self.device = torch.device("cpu")
        init_worker_distributed_environment(
            self.vllm_config, self.rank, self.distributed_init_method, self.local_rank, "gloo"
        )

    def load_model(self, **_options: Any) -> None:
        """A model is not needed."""

    def get_supported_tasks(self) -> tuple[str, ...]:
        """Completions."""
        return ("generate",)

    def get_kv_cache_spec(self) -> dict[str, FullAttentionSpec]:
        """One layer, because the scheduler needs one."""
        spec = FullAttentionSpec(block_size=16, num_kv_heads=1, head_size=64, dtype=torch.bfloat16)
        return {"model.layers.0.self_attn.attn": spec}

    def get_supported_kv_cache_layouts(self) -> list[str]:
        """Any; there is no attention."""
        from vllm.v1.attention.backends.utils import get_supported_kv_cache_layouts

        return [layout.name for layout in get_supported_kv_cache_layouts([])]

    def determine_available_memory(self) -> int:
        """Enough for a few requests."""
        return 64 << 20

    def initialize_from_config(self, kv_cache_config: Any) -> None:
        """Nothing is stored."""

    def compile_or_warm_up_model(self) -> CompilationTimes:
        """Nothing to compile."""
        return CompilationTimes(0.0, 0.0)

    def supports_draft_weight_updates(self) -> bool:
        """There is no draft model."""
        return False

    def execute_model(self, scheduler_output: Any) -> ModelRunnerOutput:
        """Add up in the group, twice for each layer, and answer one token for each request."""
        if self.rank == 1:
            for request in scheduler_output.scheduled_new_reqs:
                count_tokens(list(request.prompt_token_ids))
        hidden = torch.ones(scheduler_output.total_num_scheduled_tokens, 64)
        for _ in range(2 * LAYERS):
            hidden = tensor_model_parallel_all_reduce(hidden) / self.parallel_config.tensor_parallel_size
        requests = list(scheduler_output.num_scheduled_tokens)
        return ModelRunnerOutput(
            req_ids=requests,
            req_id_to_index={request: index for index, request in enumerate(requests)},
            sampled_token_ids=[[7] for _ in requests],
        )
