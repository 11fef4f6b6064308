"""GPT-2 and Llama in Python, from the operators that Lockstep's models call."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class Weights(nn.Module):
    """A layer's weight and bias. `std` None: the weight of a norm."""

    def __init__(self, shape, bias=0, std=None):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(shape) if std is None else torch.empty(shape).normal_(0, std))
        self.bias = nn.Parameter(torch.zeros(bias)) if bias else None


class Gpt2Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, std = config["n_embd"], config["initializer_range"]
        inner = config.get("n_inner") or 4 * hidden
        self.config, small = config, std / math.sqrt(2 * config["n_layer"])
        self.ln_1 = Weights(hidden, hidden)
        self.attn = nn.Module()
        self.attn.c_attn = Weights((hidden, 3 * hidden), 3 * hidden, std)
        self.attn.c_proj = Weights((hidden, hidden), hidden, small)
        self.ln_2 = Weights(hidden, hidden)
        self.mlp = nn.Module()
        self.mlp.c_fc = Weights((hidden, inner), inner, std)
        self.mlp.c_proj = Weights((inner, hidden), hidden, small)

    def forward(self, x):
        dropout = self.config["resid_pdrop"]
        x = F.dropout(self.attention(norm(self.ln_1, x, self.config)), dropout, self.training) + x
        y = F.gelu(conv1d(self.mlp.c_fc, norm(self.ln_2, x, self.config)), approximate="tanh")
        return x + F.dropout(conv1d(self.mlp.c_proj, y), dropout, self.training)

    def attention(self, x):
        heads = (*x.shape[:2], self.config["n_head"], -1)
        q, k, v = (part.view(heads).transpose(1, 2) for part in conv1d(self.attn.c_attn, x).split(x.shape[2], 2))
        dropout = self.config["attn_pdrop"] if self.training else 0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        return conv1d(self.attn.c_proj, y.transpose(1, 2).flatten(2))


def norm(weights, x, config):
    return F.layer_norm(x, weights.weight.shape, weights.weight, weights.bias, config["layer_norm_epsilon"])


def conv1d(weights, x):
    return torch.addmm(weights.bias, x.flatten(0, -2), weights.weight).view(*x.shape[:2], -1)


class Gpt2(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, std = config["n_embd"], config["initializer_range"]
        self.config = config
        self.wte = Weights((config["vocab_size"], hidden), std=std)
        self.wpe = Weights((config["n_positions"], hidden), std=std)
        self.h = nn.ModuleList(Gpt2Layer(config) for _ in range(config["n_layer"]))
        self.ln_f = Weights(hidden, hidden)

    def forward(self, ids):
        positions = torch.arange(ids.shape[1])[None]
        x = F.embedding(ids, self.wte.weight) + F.embedding(positions, self.wpe.weight)
        x = F.dropout(x, self.config["embd_pdrop"], self.training)
        for layer in self.h:
            x = layer(x)
        return norm(self.ln_f, x, self.config)


class LlamaLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, inner, std = config["hidden_size"], config["intermediate_size"], config["initializer_range"]
        self.config, self.head = config, config.get("head_dim") or hidden // config["num_attention_heads"]
        q, kv = config["num_attention_heads"] * self.head, config["num_key_value_heads"] * self.head
        bias = config.get("attention_bias", False)
        qkv_bias = bias or config["model_type"] == "qwen2"
        self.self_attn = nn.Module()
        self.self_attn.q_proj = Weights((q, hidden), q * qkv_bias, std)
        self.self_attn.k_proj = Weights((kv, hidden), kv * qkv_bias, std)
        self.self_attn.v_proj = Weights((kv, hidden), kv * qkv_bias, std)
        self.self_attn.o_proj = Weights((hidden, q), hidden * bias, std)
        self.mlp = nn.Module()
        self.mlp.gate_proj = Weights((inner, hidden), std=std)
        self.mlp.up_proj = Weights((inner, hidden), std=std)
        self.mlp.down_proj = Weights((hidden, inner), std=std)
        self.input_layernorm = Weights(hidden)
        self.post_attention_layernorm = Weights(hidden)

    def forward(self, x, mask, cos, sin):
        x = x + self.attention(rms_norm(self.input_layernorm, x, self.config), mask, cos, sin)
        y = rms_norm(self.post_attention_layernorm, x, self.config)
        return x + linear(self.mlp.down_proj, F.silu(linear(self.mlp.gate_proj, y)) * linear(self.mlp.up_proj, y))

    def attention(self, x, mask, cos, sin):
        names = (self.self_attn.q_proj, self.self_attn.k_proj, self.self_attn.v_proj)
        q, k, v = (linear(name, x).view(*x.shape[:2], -1, self.head).transpose(1, 2) for name in names)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        dropout = self.config["attention_dropout"] if self.training else 0
        grouped = {"enable_gqa": q.shape[1] != k.shape[1]}
        y = F.scaled_dot_product_attention(q, k, v, mask, dropout, is_causal=mask is None, **grouped)
        return linear(self.self_attn.o_proj, y.transpose(1, 2).flatten(2))


def rms_norm(weights, x, config):
    return F.rms_norm(x, weights.weight.shape, weights.weight, config["rms_norm_eps"])


def linear(weights, x):
    return F.linear(x, weights.weight, weights.bias)


def rotate(x, cos, sin):
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


def frequencies(config, size):
    plain = 1.0 / (config["rope_theta"] ** (torch.arange(0, size, 2, dtype=torch.float) / size))
    scaling = config.get("rope_scaling")
    if not scaling:
        return plain
    if scaling["rope_type"] == "linear":
        return plain / scaling["factor"]
    length, low, high = (
        scaling[name] for name in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor")
    )
    waves = 2 * math.pi / plain
    scaled = torch.where(waves > length / low, plain / scaling["factor"], plain)
    share = (length / waves - low) / (high - low)
    mixed = (1 - share) * scaled / scaling["factor"] + share * scaled
    return torch.where((waves > length / low) | (waves < length / high), scaled, mixed)


class Llama(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embed_tokens = Weights((config["vocab_size"], config["hidden_size"]), std=config["initializer_range"])
        self.layers = nn.ModuleList(LlamaLayer(config) for _ in range(config["num_hidden_layers"]))
        self.norm = Weights(config["hidden_size"])
        self.frequencies = frequencies(config, self.layers[0].head)

    def forward(self, ids):
        x = F.embedding(ids, self.embed_tokens.weight)
        position = torch.arange(ids.shape[1])
        angles = position[:, None].float() * self.frequencies
        angles = torch.cat((angles, angles), -1)
        back, window, mask = position[:, None] - position, self.config.get("sliding_window"), None
        if window and window < ids.shape[1]:
            mask = (back >= 0) & (back < window)
        for layer in self.layers:
            x = layer(x, mask, angles.cos(), angles.sin())
        return rms_norm(self.norm, x, self.config)


class CausalLM(nn.Module):
    """`config`: a config.json as a dict, with every field that the family has."""

    def __init__(self, config):
        super().__init__()
        if config["model_type"] == "gpt2":
            self.transformer = Gpt2(config)
            embedding = self.transformer.wte
        else:
            self.model = Llama(config)
            embedding = self.model.embed_tokens
        self.head = [embedding]
        if not config["tie_word_embeddings"]:
            self.lm_head = Weights(embedding.weight.shape, std=config["initializer_range"])
            self.head = [self.lm_head]

    def forward(self, ids):
        body = self.transformer if hasattr(self, "transformer") else self.model
        return F.linear(body(ids), self.head[0].weight)


def train(config, batches, accumulation, max_norm, autocast, fused):
    """Returns the parameters before and after, each micro-batch's loss, and each step's norm."""
    torch.manual_seed(11)
    net = CausalLM(config)
    initial = {name: parameter.detach().clone() for name, parameter in net.named_parameters()}
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.1, fused=fused)
    losses, norms = [], []
    for step in range(len(batches) // accumulation):
        optimizer.zero_grad()
        for batch in batches[step * accumulation : (step + 1) * accumulation]:
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                ids, targets = batch[:, :-1], batch[:, 1:]
                targets = targets.masked_fill(ids == 0, -100)
                loss = F.cross_entropy(net(ids).flatten(0, 1).float(), targets.flatten()) / accumulation
            loss.backward()
            losses.append(loss.item())
        norms.append(nn.utils.clip_grad_norm_(net.parameters(), max_norm).item())
        optimizer.step()
    final = {name: parameter.detach() for name, parameter in net.named_parameters()}
    return {"initial": initial, "losses": losses, "norms": norms, "final": final}
