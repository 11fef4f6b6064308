"""Training of each family in Python (transformer_page.py) and in C++: the same bits."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

import torch
from processes import expect_same_bits
from transformer_page import train

PROGRAM = os.path.abspath(sys.argv.pop(1))
VOCABULARY, TIME = 67, 12

SHARED = {"vocab_size": VOCABULARY, "initializer_range": 0.05}
GPT2 = {
    **SHARED, "model_type": "gpt2", "n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": 16,
    "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new", "tie_word_embeddings": True,
    "embd_pdrop": 0.1, "attn_pdrop": 0.1, "resid_pdrop": 0.1,
}  # fmt: skip
LLAMA = {
    **SHARED, "model_type": "llama", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 16, "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False, "attention_dropout": 0.0,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip
NO_DROPOUT = {"embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0}
PLAIN = {"steps": 100, "accumulation": 1, "max_norm": 1.0, "autocast": False, "fused": True}
ACCUMULATED = {**PLAIN, "steps": 50, "accumulation": 2, "max_norm": 0.5}
SHORT = {**PLAIN, "steps": 20}
CASES = {
    "gpt2": ({**GPT2, **NO_DROPOUT}, PLAIN),
    "gpt2 with dropout, accumulation and clipping": (GPT2, ACCUMULATED),
    "gpt2 with autocast": (GPT2, {**PLAIN, "autocast": True}),
    "gpt2 with a head of its own": ({**GPT2, "tie_word_embeddings": False, "n_inner": 96}, {**SHORT, "fused": False}),
    "llama": (LLAMA, PLAIN),
    "llama with dropout, accumulation and clipping": ({**LLAMA, "attention_dropout": 0.1}, ACCUMULATED),
    "llama with autocast": (LLAMA, {**PLAIN, "autocast": True}),
    "llama with biases and tied": (
        {**LLAMA, "attention_bias": True, "head_dim": 10, "tie_word_embeddings": True},
        {**SHORT, "fused": False},
    ),
    "llama with llama3's rope": ({**LLAMA, "head_dim": 16, "rope_scaling": LLAMA3}, SHORT),
    "llama with linear rope": ({**LLAMA, "rope_scaling": {"rope_type": "linear", "factor": 3.0}}, SHORT),
    "qwen2": ({**LLAMA, "model_type": "qwen2"}, {**SHORT, "autocast": True}),
    "mistral": ({**LLAMA, "model_type": "mistral", "sliding_window": 5}, SHORT),
}


def batches(name):
    """Tokens of a sequence that can be learned, 0 among them."""
    _, how = CASES[name]
    count = how["steps"] * how["accumulation"]
    start = torch.arange(count * 4).mul(31).remainder(VOCABULARY).view(count, 4, 1)
    return (start + 5 * torch.arange(TIME + 1)).remainder(VOCABULARY)


class TransformerPeerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        source, result = os.path.join(cls.folder.name, "cases.pt"), os.path.join(cls.folder.name, "results.pt")
        given = [
            {**how, "name": name, "config": json.dumps(config), "batches": batches(name)}
            for name, (config, how) in CASES.items()
        ]
        torch.save(given, source)
        subprocess.run([PROGRAM, source, result], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        cls.results = torch.load(result, weights_only=True)

    def test_training_is_equal(self):
        for name, (config, how) in CASES.items():
            with self.subTest(name):
                how = {key: value for key, value in how.items() if key != "steps"}
                expected, found = train(config, batches(name), **how), self.results[name]
                expect_same_bits(self, expected["initial"], found["initial"], name)
                self.assertEqual(found["losses"], expected["losses"])
                self.assertEqual(found["norms"], expected["norms"])
                expect_same_bits(self, expected["final"], found["final"], name)
                self.assertLess(sum(found["losses"][-5:]), 0.99 * sum(found["losses"][:5]))


if __name__ == "__main__":
    unittest.main(verbosity=2)
