"""Makes the model of the vLLM servers: a Llama of two layers with random weights, and a tokenizer of two dozen words.

The Python of a vLLM environment runs it: python -m hangbench.serving.make_model FOLDER.
"""

import sys
from pathlib import Path

from hangbench.foreign.inputs import tokenizer


def main() -> None:
    """Write the model and its tokenizer into the folder."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = Path(sys.argv[1])
    torch.manual_seed(0)
    # Two heads of size 64: each of the two tensor-parallel workers gets one. vLLM's attention on CPUs needs 32 or more.
    config = LlamaConfig(vocab_size=128, hidden_size=128, intermediate_size=256, num_hidden_layers=2,
                         num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=256)  # fmt: skip
    LlamaForCausalLM(config).bfloat16().save_pretrained(folder)
    tokenizer(folder)


if __name__ == "__main__":
    main()
