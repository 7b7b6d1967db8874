"""Frameworks on top of torch, and libraries that training programs use: their files, functions, classes and attributes.

Each row says with which version it was tried.
"""

from typing import NamedTuple

from hangdoc.torch_facts.file_names import PIPELINE_STEP, Function

TRAINING_THREADS = (
    Function("/ray/train/v2/_internal/execution/worker_group/thread_runner.py", "_run_target"),
    Function("/ray/air/_internal/util.py", "run"),
)
"""Functions that Ray Train's workers run in a thread, and that call the user's training function (Ray 2.60: V2 and V1)."""


class Meeting(NamedTuple):
    """A function in which each rank waits until all ranks of the run have called it, outside of torch's process groups."""

    function: Function
    call: str
    """What leads there in a program."""
    counter: str
    """The title of the process that counts the ranks that have come."""
    versions: str


_RAY_TRAIN, _COUNTER = "/ray/train/v2/_internal/execution/", "ray::SynchronizationActor"
MEETINGS = (
    Meeting(
        Function(f"{_RAY_TRAIN}context.py", "_sync_checkpoint_dir_name_across_ranks"),
        "ray.train.report", _COUNTER, "2.60",
    ),
    Meeting(
        Function(f"{_RAY_TRAIN}collective_impl.py", "barrier"), "ray.train.collective.barrier", _COUNTER, "2.60"
    ),
    Meeting(
        Function(f"{_RAY_TRAIN}collective_impl.py", "broadcast_from_rank_zero"),
        "ray.train.collective.broadcast_from_rank_zero", _COUNTER, "2.60",
    ),
)  # fmt: skip
ENGINE_LOOPS = (
    Function("/vllm/v1/engine/core.py", "run_busy_loop"),
    Function("/vllm/v1/engine/core.py", "process_input_sockets"),
)
"""Functions in which a serving engine takes requests from outside and gives them to its workers (vLLM 0.32, 0.33)."""
ENGINE_REPLIES = (Function("/vllm/v1/executor/multiproc_executor.py", "get_response"),)
"""Functions in which a serving engine waits for the reply of a worker (vLLM 0.32, 0.33)."""
SERVERS = ("/socketserver.py", "/asyncio/base_events.py")
"""Files of Python whose functions wait for requests (3.9 to 3.13)."""


class TaskLoop(NamedTuple):
    """A function in which a worker waits for its next task."""

    function: Function
    sender: str
    """Who gives it tasks."""
    versions: str


TASK_LOOPS = (TaskLoop(Function("/ray/_private/worker.py", "main_loop"), "the Ray driver", "2.60"),)
TASK_RESULTS = (Function("/ray/_private/worker.py", "get_objects"), Function("/ray/_private/worker.py", "wait"))
"""Functions that wait for the results of tasks that were given to other workers (Ray 2.60)."""
REQUEST_LOOPS = (
    Function("/vllm/v1/executor/multiproc_executor.py", "worker_busy_loop"),
    *(loop.function for loop in TASK_LOOPS),
)
"""Functions that execute one request after another (vLLM 0.32, 0.33; Ray 2.60)."""
RAYLET = "RAY_RAYLET_PID"
"""What a raylet sets for each worker (Ray 2.60). Ray Train's workers set their ranks later, in `os.environ`."""

ACCELERATE_LOADER = Function("/accelerate/data_loader.py", "__iter__")
"""The generator of a dataloader (accelerate 1.15)."""
TQDM = "/tqdm/std.py"
"""The generator of a progress bar (tqdm 4.70)."""
FILELOCK = "/filelock/"
FILELOCK_PATHS = ("canonical_path", "lock_filename")
"""Variables of filelock with the path, the absolute one first. The first is in filelock 4.2, the other one in older versions."""
SOFT_FILELOCK = "SoftFileLock"
"""The lock that is held as long as the file exists."""


class ClassCount(NamedTuple):
    """Where a framework keeps the number of its step in an object."""

    framework: str
    module: str
    """How the name of the module of its class begins."""
    name: str
    """The class."""
    done: str
    """Path of attributes."""
    total: str | None
    shown: str
    versions: str
    """Tried with."""


class FunctionCount(NamedTuple):
    """Where a framework keeps the number of its step in a variable of a function that runs."""

    framework: str
    function: Function
    done: str
    """A variable of the function, and a path of attributes from it. So is `total`."""
    total: str | None
    shown: str
    versions: str
    batches_from: Function | None = None
    """The function that has the iterator of this pass over the data, if it counts the batches of that; else None. An evaluation
    in the pass has another iterator."""
    first: int | None = None
    """Its value in the first batch, if it changes when a batch begins; None if it changes when one is completed."""
    loops: int = 0
    """So many `for` loops of the function are around what it does with a batch."""
    passes: str | None = None
    """As `done`, the number of the pass over the data."""
    first_pass: int = 1
    """Its value in the first pass."""
    fetched: str | None = None
    """As `done`, the batches that its iterator has given, those that were read ahead included."""
    ended: str | None = None
    """As `done`, whether that iterator has given all."""


_PROGRESS = "epoch_loop.automatic_optimization.optim_progress.optimizer.step.total.completed"
_READY, _FIT_LOOP = "epoch_loop.batch_progress.current.ready", "fit_loop.epoch_loop.batch_progress"
_COMPLETED = "epoch_loop.batch_progress.current.completed"
_EPOCH = Function("/transformers/trainer.py", "_run_epoch")
CLASS_COUNTS = (
    ClassCount(
        "transformers", "transformers.", "TrainerState", "global_step", "max_steps", "TrainerState.global_step", "5.23"
    ),
    # global_step first: the other one begins again in each epoch.
    ClassCount("lightning", "pytorch_lightning.", "_FitLoop", _PROGRESS, "epoch_loop.max_steps", "global_step", "2.6"),
    ClassCount("lightning", "pytorch_lightning.", "_FitLoop", _READY, "max_batches", _FIT_LOOP, "2.6"),
    ClassCount("lightning", "lightning.", "_FitLoop", _PROGRESS, "epoch_loop.max_steps", "global_step", "2.6"),
    ClassCount("lightning", "lightning.", "_FitLoop", _READY, "max_batches", _FIT_LOOP, "2.6"),
    ClassCount("accelerate", "accelerate.", "Accelerator", "step", None, "Accelerator.step", "1.15"),
    ClassCount(
        "deepspeed", "deepspeed.", "DeepSpeedEngine", "global_steps", None, "DeepSpeedEngine.global_steps", "0.19"
    ),
    ClassCount(
        "deepspeed", "deepspeed.", "DeepSpeedEngine", "micro_steps", None, "DeepSpeedEngine.micro_steps", "0.19"
    ),
)
FUNCTION_COUNTS = (
    FunctionCount("torch", PIPELINE_STEP, "fwd_mb_index", "self._n_microbatches", "forward micro-batch", "2.13"),
    FunctionCount("torch", PIPELINE_STEP, "bwd_mb_index", "self._n_microbatches", "backward micro-batch", "2.13"),
    FunctionCount("torch", PIPELINE_STEP, "time_step", None, "action of the schedule", "2.13"),
    *(
        FunctionCount(
            "lightning", Function(f"{folder}/fit_loop.py", "run"), f"self.{_COMPLETED}", "self.max_batches",
            f"{_FIT_LOOP}.completed", "2.6", Function(f"{folder}/training_epoch_loop.py", "run"),
            passes="self.epoch_progress.current.started", fetched="self._data_fetcher.fetched",
            ended="self._data_fetcher.done",
        )
        for folder in ("/pytorch_lightning/loops", "/lightning/pytorch/loops")
    ),
    FunctionCount(
        "transformers", _EPOCH, "step", "steps_in_epoch", "Trainer._run_epoch: step", "5.23", _EPOCH, first=0, loops=2,
        passes="epoch", first_pass=0,
    ),
)  # fmt: skip

_RESULT = "/trainer/connectors/logger_connector/result.py"
LOGGED_METRICS = (
    Function(f"/pytorch_lightning{_RESULT}", "metrics"),
    Function(f"/lightning/pytorch{_RESULT}", "metrics"),
)
"""Lightning's loop over the metrics that were logged: for each with `sync_dist=True`, it reduces the value (lightning 2.6)."""

Class = tuple[str, str]
"""A module and a class in it."""

PASS_ON: dict[Class, str] = {
    ("deepspeed.runtime.dataloader", "RepeatingLoader"): "data_iter",
    ("deepspeed.runtime.dataloader", "DeepSpeedDataLoader"): "data",
}
"""Iterators that give every value of the one in this attribute, and nothing else (deepspeed 0.19)."""
READS_AHEAD: dict[Class, tuple[str, str]] = {
    ("ray.train.torch.train_loop_utils", "_WrappedDataLoader"): ("dataloader_iter", "next_batch"),
}
"""The same, but they keep the next value in a second attribute, None at the end (ray 2.60)."""

_SAMPLER, _DATASET, _ACCELERATE = "torch.utils.data.sampler", "torch.utils.data.dataset", "accelerate.data_loader"
# torch 2.0 to 2.13, accelerate 1.15, transformers 5.23: the class that defines `__len__`
SEQUENTIAL_SAMPLER: Class = (_SAMPLER, "SequentialSampler")
RANDOM_SAMPLER: Class = (_SAMPLER, "RandomSampler")
SUBSET_SAMPLER: Class = (_SAMPLER, "SubsetRandomSampler")
WEIGHTED_SAMPLER: Class = (_SAMPLER, "WeightedRandomSampler")
BATCH_SAMPLER: Class = (_SAMPLER, "BatchSampler")
DISTRIBUTED_SAMPLER: Class = ("torch.utils.data.distributed", "DistributedSampler")
TENSOR_DATASET: Class = (_DATASET, "TensorDataset")
SUBSET: Class = (_DATASET, "Subset")
CONCAT_DATASET: Class = (_DATASET, "ConcatDataset")
STACK_DATASET: Class = (_DATASET, "StackDataset")
DATALOADER: Class = ("torch.utils.data.dataloader", "DataLoader")
ACCELERATE_ADAPTER: Class = (_ACCELERATE, "DataLoaderAdapter")
ACCELERATE_SHARD: Class = (_ACCELERATE, "BatchSamplerShard")
ACCELERATE_SKIP: Class = (_ACCELERATE, "SkipBatchSampler")
GROUPED_SAMPLER: Class = ("transformers.trainer_pt_utils", "LengthGroupedSampler")
