#!/usr/bin/env python3
"""Models and folders of transformers beside Lockstep's: logits, and the same bytes after a way there and back.

  compare_with_transformers.py PROGRAM    # PROGRAM is bazel-bin/models/transformer/peer/transformer_program

For each family and each seed: a model with random sizes and weights is saved by transformers, loaded by C++, and saved
by C++, in one file or in several. Prints the largest difference of the logits divided by the largest logit, in eager
attention, and how many models have equal logits with transformers' "sdpa". Compares the two folders' files, and the
inverse frequencies. transformers then loads the folder from C++, and must have the same rope_parameters and give the
same logits. Ends with 1 if a difference is larger than 1e-5, or if bytes differ. Needs torch 2.11, transformers and safetensors.
"""

import pathlib
import random
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).absolute().parents[3] / "tools"))
import required_packages  # noqa: E402

required_packages.check("torch", "transformers", "safetensors")
import torch  # noqa: E402
import transformers  # noqa: E402

SEEDS = 10
ALLOWED = 1e-5


def gpt2(draw):
    heads = draw.choice([1, 2, 4])
    return transformers.GPT2Config(
        vocab_size=draw.randint(20, 90), n_embd=heads * draw.choice([8, 12]), n_layer=draw.randint(1, 4), n_head=heads,
        n_inner=draw.choice([None, 40]), n_positions=32, activation_function=draw.choice(["gelu_new", "gelu_pytorch_tanh"]),
        tie_word_embeddings=draw.choice([True, False]), initializer_range=0.2, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip


def llama(draw, config=transformers.LlamaConfig, rope=None, **more):
    kv = draw.choice([1, 2])
    heads = kv * draw.choice([1, 2, 3])
    return config(
        vocab_size=draw.randint(20, 90), hidden_size=heads * draw.choice([8, 12]), intermediate_size=draw.randint(16, 70),
        num_hidden_layers=draw.randint(1, 4), num_attention_heads=heads, num_key_value_heads=kv,
        max_position_embeddings=32, rms_norm_eps=draw.choice([1e-5, 1e-6]), tie_word_embeddings=draw.choice([True, False]),
        rope_parameters={"rope_theta": draw.choice([1e4, 5e5]), **(rope or {"rope_type": "default"})},
        initializer_range=0.2, bos_token_id=1, eos_token_id=2, **more,
    )  # fmt: skip


def llama3(draw):
    """Texts of the first training are short, so that heads have high, mixed and low frequencies."""
    return {
        "rope_type": "llama3", "factor": draw.choice([2.0, 8.0, 32.0]), "low_freq_factor": draw.choice([0.5, 1.0]),
        "high_freq_factor": draw.choice([2.0, 4.0]), "original_max_position_embeddings": draw.choice([12, 24]),
    }  # fmt: skip


CONFIGS = {
    "gpt2": gpt2,
    "llama": lambda draw: llama(draw, attention_bias=draw.choice([True, False]), mlp_bias=draw.choice([True, False])),
    "llama with head_dim": lambda draw: llama(draw, head_dim=draw.choice([4, 10])),
    "llama with llama3's rope": lambda draw: llama(draw, rope=llama3(draw), head_dim=draw.choice([8, 16])),
    "llama with linear rope": lambda draw: llama(draw, rope={"rope_type": "linear", "factor": draw.choice([1.5, 4.0])}),
    "qwen2": lambda draw: llama(draw, transformers.Qwen2Config),
    "mistral": lambda draw: llama(draw, transformers.MistralConfig, sliding_window=draw.choice([None, 4, 9])),
}


def disturbed(config):
    """A model whose biases and norms have other weights than the initial ones."""
    net = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.dim() == 1:
                parameter.uniform_(0.3, 1.5)
    return net


def weights(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.glob("model*"))}


def compare(program, config, draw, folder):
    """Returns the relative difference, whether sdpa's logits are equal, and what differs in the files or None."""
    net, ids = disturbed(config), torch.randint(config.vocab_size, (3, 20))
    shard_bytes = draw.choice([10**9, 20000, 3000])
    ours, theirs = folder / "ours", folder / "theirs"
    net.save_pretrained(theirs, max_shard_size=shard_bytes)
    torch.save(ids, folder / "ids.pt")
    command = [program, theirs, folder / "ids.pt", folder / "results.pt", ours, shard_bytes]
    subprocess.run([str(argument) for argument in command], check=True)
    with torch.no_grad():
        expected, results = net(ids).logits, torch.load(folder / "results.pt", weights_only=True)
        found = results["logits"]
        again = transformers.AutoModelForCausalLM.from_pretrained(ours, attn_implementation="eager").eval()
        problem = None if torch.equal(again(ids).logits, expected) else "logits of the model that C++ saved differ"
        if config.model_type != "gpt2":
            if not torch.equal(net.model.rotary_emb.inv_freq, results["inverse_frequencies"]):
                problem = "inverse frequencies differ"
            if again.config.rope_parameters != config.rope_parameters:
                problem = f"rope_parameters are {again.config.rope_parameters}, expected {config.rope_parameters}"
        again.set_attn_implementation("sdpa")
        equal = torch.equal(again(ids).logits, found)
    before, after = weights(theirs), weights(ours)
    different = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return ((found - expected).abs().max() / expected.abs().max()).item(), equal, different or problem


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    worst, problems = {}, []
    for name, make in CONFIGS.items():
        equal = 0
        for seed in range(SEEDS):
            torch.manual_seed(seed)
            draw = random.Random(seed)
            with tempfile.TemporaryDirectory() as folder:
                difference, same, problem = compare(sys.argv[1], make(draw), draw, pathlib.Path(folder))
            worst[name] = max(worst.get(name, 0), difference)
            equal += same
            if problem:
                problems.append(f"{name}, seed {seed}: {problem}")
        print(
            f"{name}: {SEEDS} models, largest difference / largest logit {worst[name]:.2g}; {equal} equal", flush=True
        )
    print("\n".join(problems) or "all files have the same bytes")
    sys.exit(bool(problems) or max(worst.values()) > ALLOWED)


if __name__ == "__main__":
    main()
