"""Makes tiny inputs for foreign programs: random models, tokenizers and data, for hosts without a model hub.

Run by the foreign program's own Python: python inputs.py KIND FOLDER.
It may import what that environment holds, and nothing of hangbench.
"""

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

_WORDS = [
    "one",
    "rank",
    "waits",
    "for",
    "another",
    "while",
    "the",
    "third",
    "reads",
    "its",
    "data",
    "and",
    "writes",
    "what",
    "it",
    "knows",
    "to",
    "the",
    "disk",
]
_SPECIAL = ["<pad>", "<unk>", "<s>", "</s>"]
_CHAT = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + ' ' }}{% endfor %}"


def _line(chance: random.Random, words: int = 12) -> str:
    return " ".join(chance.choices(_WORDS, k=words))


def rows(path: Path, count: int, row: Callable[[random.Random], dict[str, object]], seed: int = 0) -> None:
    """`count` JSON lines."""
    chance = random.Random(seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row(chance)) + "\n" for _ in range(count)))


def tokenizer(folder: Path) -> None:
    """A word-level tokenizer of a hundred words, as tokenizer.json and its settings."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: i for i, word in enumerate([*_SPECIAL, *dict.fromkeys(_WORDS), "user:", "assistant:"])}
    raw = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        pad_token="<pad>",
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        chat_template=_CHAT,
    )
    fast.save_pretrained(folder)


def causal(folder: Path) -> None:
    """A Llama of two layers that was never trained."""
    from transformers import LlamaConfig, LlamaForCausalLM

    LlamaForCausalLM(
        LlamaConfig(vocab_size=128, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
                    num_key_value_heads=2, max_position_embeddings=256)
    ).save_pretrained(folder)  # fmt: skip
    tokenizer(folder)


def trl(folder: Path) -> None:
    """A model and text, preferences."""
    causal(folder / "model")
    rows(folder / "data" / "train.jsonl", 400, lambda c: {"text": _line(c)})
    rows(folder / "short" / "train.jsonl", 40, lambda c: {"text": _line(c)})
    for name in ("data", "short"):
        rows(folder / name / "test.jsonl", 40, lambda c: {"text": _line(c)})
    rows(folder / "pairs" / "train.jsonl", 400,
         lambda c: {"prompt": _line(c, 4), "chosen": _line(c, 4), "rejected": _line(c, 4)})  # fmt: skip


def litgpt(folder: Path) -> None:
    """A training folder and a validation folder of text files, and a tokenizer."""
    tokenizer(folder / "tokenizer")
    for name, files in (("data", 16), ("few", 4), ("val", 2)):
        for i in range(files):
            (folder / name).mkdir(parents=True, exist_ok=True)
            (folder / name / f"{i:03}.txt").write_text("\n".join(_line(random.Random(i)) for _ in range(200)))


def embedder(folder: Path) -> None:
    """A BERT of two layers that was never trained, and queries with passages."""
    from transformers import BertConfig, BertModel

    BertModel(
        BertConfig(vocab_size=128, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2)
    ).save_pretrained(folder / "model")  # fmt: skip
    tokenizer(folder / "model")
    for name, count in (("data", 400), ("short", 40)):
        rows(folder / name / "train.jsonl", count,
             lambda c: {"query": _line(c, 5), "pos": [_line(c)], "neg": [_line(c) for _ in range(4)]})  # fmt: skip


def chemprop(folder: Path) -> None:
    """Molecules with an invented property, in a large and a small file."""
    for name, count in (("data", 400), ("short", 60)):
        lines = [f"{'C' * (1 + i % 20)}O,{i % 7}" for i in range(count)]
        (folder / f"{name}.csv").write_text("smiles,y\n" + "\n".join(lines) + "\n")


def lightning(folder: Path) -> None:
    """The three lines with which Lightning's manual starts LightningCLI."""
    (folder / "main.py").write_text(
        "from pytorch_lightning.cli import LightningCLI\n"
        "from pytorch_lightning.demos.boring_classes import BoringDataModule, DemoModel\n\n"
        "if __name__ == '__main__':\n    LightningCLI(DemoModel, BoringDataModule)\n"
    )


def lm_eval(folder: Path) -> None:
    """A model, and a task of made-up questions with two answers."""
    causal(folder / "model")
    rows(
        folder / "data.jsonl",
        20000,
        lambda c: {"text": _line(c), "a": _line(c, 3), "b": _line(c, 3), "gold": c.randrange(2)},
    )
    (folder / "tasks").mkdir()
    (folder / "tasks" / "made_up.yaml").write_text(
        "task: made_up\ndataset_path: json\ndataset_kwargs:\n  data_files:\n    test: "
        f"{folder.resolve()}/data.jsonl\n"
        "output_type: multiple_choice\ntest_split: test\ndoc_to_text: '{{text}}'\ndoc_to_choice: '{{[a, b]}}'\n"
        "doc_to_target: '{{gold}}'\nmetric_list:\n  - metric: acc\n"
    )


def sockeye(folder: Path) -> None:
    """Parallel text: a line and its words in reverse order."""
    for name, count in (("train", 400), ("dev", 40)):
        chance = random.Random(count)
        lines = [_line(chance, 8) for _ in range(count)]
        (folder / f"{name}.src").write_text("\n".join(lines) + "\n")
        (folder / f"{name}.trg").write_text("\n".join(" ".join(reversed(line.split())) for line in lines) + "\n")
    text = ["--source", f"{folder}/train.src", "--target", f"{folder}/train.trg", "--output", f"{folder}/data"]
    subprocess.run([sys.executable, "-m", "sockeye.prepare_data", *text, "--shared-vocab"], check=True)


if __name__ == "__main__":
    kind, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    globals()[kind](folder)
