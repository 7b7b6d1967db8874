"""The foreign programs: how each is started, its faults, and the right diagnoses."""

from hangbench.foreign.program import Program, healthy, hung

_NODE = "torchrun --nnodes 2 --nproc-per-node 1 --master-addr 127.0.0.1 --master-port {port} --node-rank {rank}"


def nodes(tail: str, first: str = "", second: str = "", *, port: str = "$PORT") -> tuple[str, str]:
    """A torchrun line for each of two nodes of one rank; `first` and `second` are arguments of only one of them."""
    return (
        f"{_NODE.format(port='$PORT', rank=0)} {tail} {first}".strip(),
        f"{_NODE.format(port=port, rank=1)} {tail} {second}".strip(),
    )


_TRL = ("--model_name_or_path $IN/model --per_device_train_batch_size 4 --output_dir $OUT/run --use_cpu --bf16 false "
        "--gradient_checkpointing false --logging_steps 1 --max_length 32 --report_to none --save_strategy no")  # fmt: skip
_SFT = f"-m trl.scripts.sft {_TRL} --eos_token '</s>'"
_SFT_LONG = f"{_SFT} --dataset_name $IN/data --num_train_epochs 100000"
_STOP = "kill -STOP $RANK1"

TRL_SFT = Program(
    "trl-sft", "trl", "python -m trl.scripts.sft", ("hf", "trl", "datasets", "peft"),
    inputs="trl",
    situations=(
        healthy(f"torchrun --standalone --nproc-per-node 2 {_SFT_LONG}"),
        hung("stopped", "Rank 1 was stopped (SIGSTOP) in mid-training.", 1, "HD302",
             f"nohup torchrun --nproc-per-node 2 --master-port $PORT {_SFT_LONG}", act=_STOP),
        hung("eval-on-one", "Node 0 alone was started with --eval_strategy steps, so it prepares a second data set.",
             ((0,), (0, 1)), "HD501 HD203", *nodes(_SFT_LONG, "--eval_strategy steps --eval_steps 5")),
        hung("fewer-data", "Node 1's data set holds 40 lines and node 0's 400, so rank 1 evaluates while rank 0 still trains.",
             1, "HD101", *nodes(f"{_SFT} --num_train_epochs 3 --eval_strategy epoch", "--dataset_name $IN/data",
                                "--dataset_name $IN/short")),
    ),
)  # fmt: skip

_DPO = f"-m trl.scripts.dpo {_TRL} --dataset_name $IN/pairs --num_train_epochs 100000"
TRL_DPO = Program(
    "trl-dpo", "trl", "python -m trl.scripts.dpo", ("hf", "trl", "datasets", "peft"),
    inputs="trl",
    situations=(
        healthy(f"setsid nohup torchrun --standalone --nproc-per-node 2 {_DPO} &"),
        hung("worker-stopped", "A DataLoader worker of rank 1 was stopped (SIGSTOP).", 1, "HD103",
             f"torchrun --standalone --nproc-per-node 2 {_DPO} --dataloader_num_workers 1 --dataloader_persistent_workers true",
             act="kill -STOP $(pgrep -P $RANK1)"),
        hung("full-pipe", "The log goes into a pipe whose reader no longer reads (a paused pager), so rank 0 waits in write().",
             0, "HD303", f"torchrun --standalone --nproc-per-node 2 {_DPO} 2>&1 | (head -c 40000; sleep 100000)"),
    ),
)  # fmt: skip

_EMBED = ("-m FlagEmbedding.finetune.embedder.encoder_only.base --model_name_or_path $IN/model --train_data $IN/data/train.jsonl "
          "--train_group_size 3 --query_max_len 16 --passage_max_len 16 --output_dir $OUT/run --num_train_epochs 100000 "
          "--per_device_train_batch_size 4 --logging_steps 1 --use_cpu --temperature 0.02 --sentence_pooling_method cls "
          "--normalize_embeddings True --report_to none --knowledge_distillation False --save_strategy no")  # fmt: skip
EMBEDDER = Program(
    "flag-embedding", "FlagEmbedding", "python -m FlagEmbedding.finetune.embedder.encoder_only.base",
    ("flag", "FlagEmbedding", "transformers==5.23.0"),
    inputs="embedder",
    situations=(
        healthy(f"torchrun --standalone --nproc-per-node 2 {_EMBED}"),
        hung("missing-node", "Two nodes are asked for and node 1 was never started.", None, "HD401", nodes(_EMBED)[0], world=0),
        hung("wrong-port", "Node 1 was started with another --master-port, where no process listens.", None, "HD406",
             *nodes(_EMBED, port="$PORT2"), world=0),
    ),
)  # fmt: skip


def _terminal(line: str) -> str:
    """The command in a terminal, in which Lightning shows its progress."""
    return f"script -qfec '{line}' /dev/null"


_CHEM = ("chemprop train -i {data} -o $OUT/run{rank} --task-type regression --accelerator cpu --devices 2 --epochs 100000 "
         "--message-hidden-dim 16 --ffn-hidden-dim 16 -b 8 --patience 100000")  # fmt: skip


def _chem_rank(rank: int, data: str) -> str:
    return f"MASTER_ADDR=127.0.0.1 MASTER_PORT=$PORT NODE_RANK=0 LOCAL_RANK={rank} " + _CHEM.format(
        data=data, rank=rank
    )


CHEMPROP = Program(
    "chemprop", "chemprop", "chemprop train (Lightning)", ("chemprop", "chemprop"),
    inputs="chemprop", progress=r"Epoch \d+",
    situations=(
        healthy(_terminal(_CHEM.format(data="$IN/data.csv", rank=0))),
        hung("fifo", "Rank 1's table is a FIFO without a writer (a file system that hangs).",
             1, "HD303 HD401", _chem_rank(0, "$IN/data.csv"), f"mkfifo $OUT/pipe.csv; {_chem_rank(1, '$OUT/pipe.csv')}"),
        hung("fewer-data", "Rank 1's table has 60 lines and rank 0's 400, so rank 1 ends its epoch first.", 1, "HD101",
             _chem_rank(0, "$IN/data.csv"), _chem_rank(1, "$IN/short.csv")),
    ),
)  # fmt: skip

_RAY = "python -m ray.train.examples.pytorch.torch_linear_example --num-workers 2 --epochs 100000 --address auto"
_RAY_HEAD = "ray start --head --num-cpus 4 --port $PORT --disable-usage-stats --include-dashboard false >/dev/null"
RAY = Program(
    "ray-train", "ray", "python -m ray.train.examples.pytorch.torch_linear_example", ("ray", "ray[train]", "pandas"),
    progress=r"(?i)checkpoint", environment={"RAY_DEDUP_LOGS": "0", "RAY_raylet_start_wait_time_s": "300"},
    situations=(
        healthy(f"{_RAY_HEAD}; {_RAY}"),
        hung("stopped", "One of the two worker processes was stopped (SIGSTOP).", ((0,), (1,)), "HD302", f"{_RAY_HEAD}; {_RAY}",
             act="kill -STOP $(pgrep -f '^ray::.*TrainWorker' | tail -1)"),
    ),
)  # fmt: skip

_TEST = "accelerate.test_utils.scripts.test_script"
_ACCELERATE = "accelerate launch --multi_gpu --num_processes 2 --num_machines {machines} {more} --module " + _TEST
ACCELERATE = Program(
    "accelerate-test", "accelerate", f"accelerate launch --module {_TEST}", ("base", "accelerate"),
    progress=r"\*\*[A-Z]",
    situations=(
        healthy(_ACCELERATE.format(machines=1, more="--main_process_port $PORT"), begun=1),
        hung("stopped", "Rank 1 was stopped (SIGSTOP).", 1, "HD302",
             "setsid " + _ACCELERATE.format(machines=1, more="--main_process_port $PORT"), act=_STOP, begun=1),
        hung("rank-0-stopped", "Rank 0 was stopped (SIGSTOP).", 0, "HD302",
             "nohup " + _ACCELERATE.format(machines=1, more="--main_process_port $PORT"), act="kill -STOP $RANK0", begun=1),
    ),
)  # fmt: skip

_DEEPSPEED = f"deepspeed --num_gpus 2 --master_port $PORT --module {_SFT_LONG.removeprefix('-m ')}"
DEEPSPEED = Program(
    "deepspeed-launcher", "deepspeed", "deepspeed --module trl.scripts.sft", ("deepspeed", "deepspeed", "trl", "datasets"),
    inputs="trl", environment={"DS_ACCELERATOR": "cpu"},
    situations=(
        healthy(_DEEPSPEED),
        hung("stopped", "Rank 1 was stopped (SIGSTOP).", 1, "HD302", _DEEPSPEED, act=_STOP),
        hung("rank-0-stopped", "Rank 0 was stopped (SIGSTOP).", 0, "HD302", f"nohup {_DEEPSPEED}", act="kill -STOP $RANK0"),
    ),
)  # fmt: skip

_BORING = ("python $IN/main.py fit --trainer.accelerator cpu --trainer.max_epochs {epochs} "
           "--trainer.default_root_dir $OUT/run{rank} {more}")  # fmt: skip
_LIT = _BORING.format(epochs=1000000, rank=0, more="--trainer.devices 2 --trainer.strategy ddp")


def _lit_rank(rank: int, more: str) -> str:
    variables = f"MASTER_ADDR=127.0.0.1 MASTER_PORT=$PORT WORLD_SIZE=2 RANK={rank} NODE_RANK=0 LOCAL_RANK={rank} "
    return variables + _BORING.format(epochs=1000, rank=rank, more=f"--trainer.devices 2 --trainer.strategy ddp {more}")


LIGHTNING = Program(
    "lightning-cli", "pytorch-lightning", "LightningCLI(DemoModel, BoringDataModule) of pytorch_lightning.demos",
    ("lit", "pytorch-lightning", "jsonargparse[signatures]", "tensorboardX", "tqdm==4.67.1"), inputs="lightning",
    progress=r"Epoch \d+",
    situations=(
        healthy(_terminal(_LIT)),
        healthy(f"setsid -f {_terminal(_LIT)}", name="healthy-detached"),
        hung("stopped", "The process that the user started, which Lightning makes rank 0, was stopped (SIGSTOP).", 0, "HD302",
             _terminal(_LIT), act="kill -STOP $(pgrep -f '^python .*main.py fit')"),
        hung("limit-differs", "Rank 1 alone was started with --trainer.limit_train_batches 3, so it ends its epoch first.",
             ((1,), (0, 1)), "HD501 HD101 HD102", _lit_rank(0, ""), _lit_rank(1, "--trainer.limit_train_batches 3")),
    ),
)  # fmt: skip

_LM = ("-m lm_eval --model hf --model_args pretrained=$IN/model,dtype=float32 --tasks made_up --include_path $IN/tasks "
       "--device cpu --batch_size 1")  # fmt: skip
LM_EVAL = Program(
    "lm-eval", "lm_eval", "accelerate launch -m lm_eval", ("lmeval", "lm_eval[hf]", "accelerate"),
    inputs="lm_eval", progress=r"\d+/\d+ \[",
    situations=(
        healthy(f"accelerate launch --multi_gpu --num_processes 2 --main_process_port $PORT {_LM}"),
        hung("stopped", "Rank 1 was stopped (SIGSTOP); rank 0 ends its share and waits for it.", 1, "HD302",
             f"accelerate launch --multi_gpu --num_processes 2 --main_process_port $PORT {_LM} --limit 200", act=_STOP),
        hung("rank-0-stopped", "Rank 0 was stopped (SIGSTOP); rank 1 ends its share and waits for it.", 0, "HD302",
             f"nohup accelerate launch --multi_gpu --num_processes 2 --main_process_port $PORT {_LM} --limit 200",
             act="kill -STOP $RANK0"),
    ),
)  # fmt: skip

_SHEEP = ("sheeprl exp=ppo env=gym env.id=CartPole-v1 fabric.accelerator=cpu fabric.devices=2 fabric.strategy=ddp env.num_envs=1 "
          "env.capture_video=False env.sync_env=True algo.rollout_steps=32 algo.mlp_keys.encoder=[state] algo.run_test=False "
          "algo.total_steps=1000000000 checkpoint.every=1000000000 "
          "metric.log_level=1 metric.log_every=64 buffer.share_data=True")  # fmt: skip


def _sheep_rank(rank: int, more: str) -> str:
    return (f"MASTER_ADDR=127.0.0.1 MASTER_PORT=$PORT NODE_RANK=0 LOCAL_RANK={rank} {_SHEEP} "
            f"hydra.run.dir=$OUT/hydra{rank} {more}")  # fmt: skip


SHEEPRL = Program(
    "sheeprl", "sheeprl", "sheeprl exp=ppo (Lightning Fabric)",
    ("sheeprl", "lightning", "gymnasium", "hydra-core", "tensorboard", "python-dotenv", "torchmetrics", "tensordict",
     "mlflow-skinny", "opencv-python-headless", "moviepy", "pygame", "rich"),
    progress=r"policy_step", alone=("sheeprl",),
    situations=(
        healthy(_SHEEP),
        hung("stopped", "The process that Fabric started for rank 1 was stopped (SIGSTOP).", 1, "HD302", f"nohup {_SHEEP}",
             act="kill -STOP $(pgrep -f '^[^ ]*python.*sheeprl' | sort -n | tail -1)"),
        hung("batch-differs", "Rank 1 alone was started with a smaller batch size, so it makes four times the gradient steps.",
             ((0,), (1,), (0, 1)), "HD501", _sheep_rank(0, ""), _sheep_rank(1, "algo.per_rank_batch_size=8")),
    ),
)  # fmt: skip

_SOCKEYE = ("sockeye-train --dist --use-cpu --shared-vocab --prepared-data {data} -vs $IN/dev.src -vt $IN/dev.trg -o $OUT/model "
            "--num-layers 1 --transformer-model-size 16 --transformer-attention-heads 2 --transformer-feed-forward-num-hidden 32 "
            "--num-embed 16 --batch-type sentence --batch-size 8 --max-num-epochs 100000 --max-num-checkpoint-not-improved -1 "
            "--checkpoint-interval 10 --decode-and-evaluate 0")  # fmt: skip
SOCKEYE = Program(
    "sockeye", "sockeye", "sockeye-train --dist", ("sockeye", "portalocker", "sacrebleu", "numpy", "pyyaml"), alone=("sockeye",),
    inputs="sockeye", progress=r"Checkpoint \[\d+\]",
    situations=(
        healthy("torchrun --standalone --no-python --nproc-per-node 2 " + _SOCKEYE.format(data="$IN/data"), begun=2),
        hung("stopped", "Rank 1 was stopped (SIGSTOP).", 1, "HD302",
             "torchrun --no-python --nproc-per-node 2 --master-port $PORT " + _SOCKEYE.format(data="$IN/data"),
             act=_STOP, begun=2),
        hung("fifo", "The shard of node 1's data is a FIFO without a writer (a file system that hangs).", 1, "HD303",
             f"{_NODE.format(port='$PORT', rank=0)} --no-python {_SOCKEYE.format(data='$IN/data')}",
             "cp -r $IN/data $OUT/data && rm $OUT/data/shard.00000 && mkfifo $OUT/data/shard.00000 && "
             f"{_NODE.format(port='$PORT', rank=1)} --no-python {_SOCKEYE.format(data='$OUT/data')}"),
    ),
)  # fmt: skip

PROGRAMS = (TRL_SFT, TRL_DPO, EMBEDDER, CHEMPROP, RAY, ACCELERATE, DEEPSPEED, LIGHTNING, LM_EVAL, SHEEPRL, SOCKEYE)
