"""Compares SentencePieceTokenizer with Python's sentencepiece: the models that both learn, and their tokens and texts."""

import os
import random
import subprocess
import sys
import tempfile
import unittest

import sentencepiece

CASES = int(os.environ.get("TOKENIZER_CASES", "1000"))
WORDS = "the beginning heaven earth without form void darkness upon face deep Spirit moved waters said light naïve façade 日本語 слово".split()
ODD = [
    "\u2581",
    "\u2585",
    "\ufffd",
    "\ufeff",
    "e\u0301",
    "\u212b",
    "ﬁ",
    "\u200d",
    "\0",
    "\r\n",
    "\n\n",
    "\t",
    "   ",
    "<s>",
    "</s>",
    "<unk>",
    "<0x0A>",
]
VOCAB_SIZE = 420


def prose(generator, lines):
    return "".join(" ".join(generator.choices(WORDS, k=generator.randrange(1, 20))) + "\n" for _ in range(lines))


def character(generator):
    code = generator.choice([generator.randrange(128), generator.randrange(0x3000), generator.randrange(0x110000)])
    return chr(code) if not 0xD800 <= code < 0xE000 else "?"


def text(generator):
    parts = [WORDS, ODD, [" "], [character(generator) for _ in range(20)]]
    return "".join(generator.choice(generator.choice(parts)) for _ in range(generator.randrange(60)))


def run(*arguments, lines=()):
    done = subprocess.run([PRINT, *arguments], input="\n".join(lines), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    if done.stderr:
        sys.exit(f"expected silence on stderr, found {done.stderr}")
    return done.stdout.splitlines()


def pieces(processor):
    ids = range(processor.get_piece_size())
    return [
        (processor.id_to_piece(i), processor.get_score(i), processor.is_byte(i), processor.is_control(i)) for i in ids
    ]


class TokenizerPeerTest(unittest.TestCase):
    def setUp(self):
        seed = random.Random().randrange(2**32)
        print("cases are drawn with seed", seed)
        self.generator = random.Random(seed)
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "text")
        with open(self.path, "w", encoding="utf-8", newline="") as file:
            file.write(prose(self.generator, 400))

    def tearDown(self):
        self.folder.cleanup()

    def python_model(self, **flags):
        prefix = os.path.join(self.folder.name, "python")
        sentencepiece.SentencePieceTrainer.train(
            input=self.path, model_prefix=prefix, minloglevel=2, num_threads=1, **flags
        )
        return prefix + ".model"

    def check_same(self, model):
        processor = sentencepiece.SentencePieceProcessor(model_file=model)
        lines, expected = [], []
        for _ in range(CASES):
            drawn = text(self.generator)
            tokens = processor.encode(drawn)
            lines.append("e" + drawn.encode().hex())
            expected.append(" ".join(map(str, tokens)))
            if self.generator.random() < 0.5:
                tokens = [
                    self.generator.randrange(processor.get_piece_size()) for _ in range(self.generator.randrange(20))
                ]
            lines.append("d " + " ".join(map(str, tokens)))
            expected.append(processor.decode(tokens).encode().hex())
        answers = run("run", model, lines=lines)
        self.assertEqual(len(answers), len(lines))
        for line, answer, right in zip(lines, answers, expected):
            self.assertEqual(answer, right, line)

    def test_both_learn_the_same_model(self):
        model = os.path.join(self.folder.name, "ours.model")
        run("train", model, str(VOCAB_SIZE), self.path)
        flags = dict(model_type="bpe", vocab_size=VOCAB_SIZE, byte_fallback=True, normalization_rule_name="identity")
        theirs = self.python_model(**flags, add_dummy_prefix=False, remove_extra_whitespaces=False)
        ours, theirs = (sentencepiece.SentencePieceProcessor(model_file=path) for path in (model, theirs))
        self.assertEqual(pieces(ours), pieces(theirs))
        self.check_same(model)

    def test_models_of_other_kinds(self):
        self.check_same(self.python_model(model_type="unigram", vocab_size=50))
        self.check_same(
            self.python_model(model_type="bpe", vocab_size=VOCAB_SIZE, byte_fallback=True, split_digits=True)
        )

    def test_no_damaged_model_ends_the_process(self):
        with open(self.python_model(model_type="unigram", vocab_size=50), "rb") as file:
            model = file.read()
        damaged = os.path.join(self.folder.name, "damaged.model")
        for _ in range(30):
            bytes_ = bytearray(model)
            for _ in range(self.generator.randrange(1, 30)):
                bytes_[self.generator.randrange(len(bytes_))] = self.generator.randrange(256)
            with open(damaged, "wb") as file:
                file.write(bytes_)
            lines = "\n".join("e" + text(self.generator).encode().hex() for _ in range(20))
            done = subprocess.run([PRINT, "run", damaged], input=lines, capture_output=True, text=True)
            self.assertIn(done.returncode, (0, 1), done.stderr)


if __name__ == "__main__":
    PRINT = sys.argv.pop(1)
    unittest.main()
