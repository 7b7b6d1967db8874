"""How serving engines and Ray name their processes, and the options of their servers.

Tried with vLLM 0.32 and 0.33 and verl 0.9.1 on Ray 2.60; read in the sources of SGLang 0.5.23.
"""

RAY = "Ray"
TITLES = {"VLLM": "vLLM", "sglang": "SGLang", "ray": RAY}
"""How a process title begins, before `::`: `VLLM::Worker_PP1_TP0`, `sglang::scheduler_TP1`, `ray::TrainWorker.update_actor`."""
STARTED_BY_PYTHON = ("VLLM::",)
"""How the titles of processes begin that Python's multiprocessing has started. A title replaces the command line."""
RAY_WORKER = "ray::"
"""How the titles of Ray's workers begin."""
RAY_SERVICES = ("gcs_server", "raylet", "ray::DashboardAgent", "ray::RuntimeEnvAgent")
"""How the names or command lines of the processes begin with which all workers of a cluster are connected."""
RAY_WITHOUT_TASKS = ("ray::IDLE", "ray::DashboardAgent", "ray::RuntimeEnvAgent")
"""The titles of Ray's workers that have no task, and of its own services."""
WORKER = "Worker"
"""What vLLM calls a worker that is the only one of its engine."""
RAY_TRAIN_ACTORS = frozenset({"RayTrainWorker", "_RayTrainWorker__execute"})
"""Actors that Ray Train starts for any program."""
RAY_JOB = "RAY_JOB_ID"
"""The job of an actor: 8 hexadecimal digits."""
FRAMEWORK_VARIABLES = {"RAY_LOCAL_WORLD_SIZE": "verl"}
"""What a framework on Ray sets in the environment of each of its actors, and Ray does not (verl's `RayWorkerGroup`)."""

SERVE = "serve"
"""`vllm serve MODEL`."""
MODEL_OPTIONS = ("served-model-name", "model", "model-path", "model-tag")
"""The name that clients use comes first."""
SIZE_OPTIONS = {
    "DP": ("data-parallel-size", "dp-size", "dp"),
    "PP": ("pipeline-parallel-size", "pp-size", "pp"),
    "TP": ("tensor-parallel-size", "tp-size", "tp"),
}
"""How many parts there are of what a title counts: `_TP1`."""
CACHED_MODEL = "models--"
"""How a directory of Hugging Face's cache begins: `models--Qwen--Qwen2.5-0.5B/snapshots/HASH`."""
