"""Networks of transformers for zoo.py, with random weights and so small that a core trains them in seconds."""

import functools

import torch
import transformers as hf
from torch import nn
from program import CLASSES, ROWS, Program, image_program

TOKENS, LENGTH, HIDDEN = 64, 12, 32

LAYERS = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": HIDDEN, "intermediate_size": 64}
DECODER = {**LAYERS, "num_key_value_heads": 1, "vocab_size": TOKENS, "max_position_embeddings": 32, "use_cache": False}
ENCODER = {**LAYERS, "vocab_size": TOKENS, "max_position_embeddings": 32, "num_labels": CLASSES, "pad_token_id": 0}
IMAGES = {**LAYERS, "image_size": 32, "patch_size": 8, "num_labels": CLASSES}

# Networks that give each token's successor: the configuration's class and its arguments.
DECODERS = {
    "gpt2": (hf.GPT2Config, {"n_layer": 2, "n_head": 2, "n_embd": HIDDEN, "vocab_size": TOKENS, "n_positions": 32, "use_cache": False}),
    "llama": (hf.LlamaConfig, DECODER),
    "llama_tied": (hf.LlamaConfig, {**DECODER, "tie_word_embeddings": True}),
    "mistral": (hf.MistralConfig, {**DECODER, "sliding_window": 8}),
    "qwen2": (hf.Qwen2Config, DECODER),
    "qwen3": (hf.Qwen3Config, {**DECODER, "head_dim": 16}),
    "gemma": (hf.GemmaConfig, {**DECODER, "head_dim": 16}),
    "phi": (hf.PhiConfig, {**DECODER, "num_key_value_heads": 2}),
    "gpt_neox": (hf.GPTNeoXConfig, {**LAYERS, "vocab_size": TOKENS, "max_position_embeddings": 32, "use_cache": False}),
    "opt": (hf.OPTConfig, {**LAYERS, "ffn_dim": 64, "word_embed_proj_dim": HIDDEN, "vocab_size": TOKENS, "use_cache": False}),
    "bloom": (hf.BloomConfig, {"n_layer": 2, "n_head": 2, "hidden_size": HIDDEN, "vocab_size": TOKENS, "use_cache": False}),
    "mixtral": (hf.MixtralConfig, {**DECODER, "num_local_experts": 4, "num_experts_per_tok": 2}),
}  # fmt: skip

# Networks that classify a text.
ENCODERS = {
    "bert": (hf.BertConfig, ENCODER),
    "roberta": (hf.RobertaConfig, ENCODER),
    "electra": (hf.ElectraConfig, {**ENCODER, "embedding_size": 16}),
    "albert": (hf.AlbertConfig, {**ENCODER, "embedding_size": 16}),
    "distilbert": (hf.DistilBertConfig, {"n_layers": 2, "n_heads": 2, "dim": HIDDEN, "hidden_dim": 64, "vocab_size": TOKENS, "max_position_embeddings": 32, "num_labels": CLASSES}),
    "deberta_v2": (hf.DebertaV2Config, {**ENCODER, "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "max_relative_positions": 16}),
}  # fmt: skip

# Networks that classify an image.
VISION = {
    "vit": (hf.ViTConfig, IMAGES),
    "dinov2": (hf.Dinov2Config, {**IMAGES, "mlp_ratio": 2}),
    "convnext_v2": (hf.ConvNextV2Config, {"hidden_sizes": [8, 16, 32, 64], "depths": [1, 1, 1, 1], "num_labels": CLASSES}),
    "swin_v2": (hf.Swinv2Config, {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4, "num_labels": CLASSES}),
    "mobilevit": (hf.MobileViTConfig, {"image_size": 64, "hidden_sizes": [16, 24, 32], "neck_hidden_sizes": [8, 8, 16, 24, 32, 32, 64], "num_labels": CLASSES}),
}  # fmt: skip


class Logits(nn.Module):
    """The logits, with the classes in dimension 1 where cross_entropy expects them."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, inputs):
        return self.net(inputs).logits.movedim(-1, 1)


class LastState(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, inputs):
        return self.net(inputs).last_hidden_state


class Loss(nn.Module):
    """A network that computes its loss itself: the first output."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, inputs, labels):
        return self.net(inputs, labels=labels).loss


def tokens(*shape):
    return torch.randint(1, TOKENS, shape or (ROWS, LENGTH))


def decoder(config, options):
    net = hf.AutoModelForCausalLM.from_config(config(**options))
    return Program(Logits(net), [tokens()], tokens())


def encoder(config, options):
    net = hf.AutoModelForSequenceClassification.from_config(config(**options))
    return Program(Logits(net), [tokens()], torch.randint(CLASSES, (ROWS,)))


def vision(config, options):
    net = hf.AutoModelForImageClassification.from_config(config(**options))
    return image_program(Logits(net), options.get("image_size", 32))


def states(net, inputs, features=HIDDEN):
    with torch.no_grad():
        shape = net(inputs).last_hidden_state.shape
    return Program(LastState(net), [inputs], torch.randn(shape), "mse")


T5 = {
    "d_model": HIDDEN,
    "d_kv": 16,
    "d_ff": 64,
    "num_layers": 2,
    "num_heads": 2,
    "vocab_size": TOKENS,
    "decoder_start_token_id": 0,
}
SPEECH = {"d_model": HIDDEN, "num_mel_bins": 16, "max_source_positions": 16, "max_target_positions": 16, "vocab_size": TOKENS,
          "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 64,
          "decoder_ffn_dim": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}  # fmt: skip


def t5_encoder():
    return states(hf.T5EncoderModel(hf.T5Config(**T5)), tokens())


def t5():
    net = hf.T5ForConditionalGeneration(hf.T5Config(**T5, use_cache=False))
    labels = tokens()
    return Program(Loss(net), [tokens(), labels], labels, "output")


def whisper_encoder():
    net = hf.models.whisper.modeling_whisper.WhisperEncoder(hf.WhisperConfig(**SPEECH))
    return states(net, torch.randn(ROWS, 16, 32))


def bart():
    names = {key: value for key, value in SPEECH.items() if "mel" not in key and "max" not in key}
    net = hf.BartForConditionalGeneration(hf.BartConfig(**names, max_position_embeddings=32, use_cache=False))
    labels = tokens()
    return Program(Loss(net), [tokens(), labels], labels, "output")


def segformer():
    options = {
        "hidden_sizes": [8, 16, 24, 32],
        "depths": [1, 1, 1, 1],
        "num_attention_heads": [1, 2, 2, 4],
        "decoder_hidden_size": 16,
    }
    net = hf.SegformerForSemanticSegmentation(hf.SegformerConfig(**options, num_labels=CLASSES))

    class Scores(Logits):
        def forward(self, inputs):
            return self.net(inputs).logits

    return Program(Scores(net), [torch.rand(ROWS, 3, 32, 32)], torch.randint(CLASSES, (ROWS, 8, 8)))


class Contrast(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, texts, images):
        return self.net(input_ids=texts, pixel_values=images, return_loss=True).loss


def clip():
    text = {**LAYERS, "vocab_size": TOKENS, "max_position_embeddings": 32, "eos_token_id": 2}
    config = hf.CLIPConfig(
        text_config=text, vision_config={**LAYERS, "image_size": 32, "patch_size": 8}, projection_dim=16
    )
    inputs = [tokens(), torch.rand(ROWS, 3, 32, 32)]
    return Program(Contrast(hf.CLIPModel(config)), inputs, torch.zeros(ROWS), "output")


PROGRAMS = {
    **{f"transformers/{name}": functools.partial(decoder, *args) for name, args in DECODERS.items()},
    **{f"transformers/{name}": functools.partial(encoder, *args) for name, args in ENCODERS.items()},
    **{f"transformers/{name}": functools.partial(vision, *args) for name, args in VISION.items()},
    "transformers/t5_encoder": t5_encoder,
    "transformers/t5": t5,
    "transformers/whisper_encoder": whisper_encoder,
    "transformers/bart": bart,
    "transformers/segformer": segformer,
    "transformers/clip": clip,
}
