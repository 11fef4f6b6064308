"""Networks of torch.nn alone for zoo.py."""

import torch
from torch import nn
from torch.nn import functional as F
from program import CLASSES, ROWS, Program, image_program

TOKENS, LENGTH, HIDDEN = 64, 12, 32


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1, self.down2 = self._convolutions(3, 8), self._convolutions(8, 16)
        self.bottom = self._convolutions(16, 32)
        self.up2, self.up1 = nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)
        self.join2, self.join1 = self._convolutions(32, 16), self._convolutions(16, 8)
        self.head = nn.Conv2d(8, CLASSES, 1)

    @staticmethod
    def _convolutions(inputs, outputs):
        layers = [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
        return nn.Sequential(
            *layers, nn.Conv2d(outputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU(inplace=True)
        )

    def forward(self, images):
        first = self.down1(images)
        second = self.down2(F.max_pool2d(first, 2))
        x = self.up2(self.bottom(F.max_pool2d(second, 2)))
        x = self.up1(self.join2(torch.cat([second, x], 1)))
        return self.head(self.join1(torch.cat([first, x], 1)))


class Recurrent(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, HIDDEN)
        self.recurrent = kind(HIDDEN, HIDDEN, batch_first=True, **options)
        self.head = nn.LazyLinear(TOKENS)

    def forward(self, tokens):
        return self.head(self.recurrent(self.embedding(tokens))[0]).movedim(-1, 1)


def recurrent(kind, **options):
    tokens = torch.randint(TOKENS, (ROWS, LENGTH))
    net = Recurrent(kind, **options)
    net(tokens)
    return Program(net, [tokens], torch.randint(TOKENS, (ROWS, LENGTH)))


class GraphNet(nn.Module):
    """Two rounds of messages along the edges of each row's graph, summed and maximized at their ends."""

    def __init__(self):
        super().__init__()
        self.message1, self.message2 = nn.Linear(8, HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.head = nn.Linear(HIDDEN, CLASSES)

    def forward(self, nodes, edges):
        rows, count, _ = nodes.shape
        edges = edges + count * torch.arange(rows).view(-1, 1, 1)
        source, target = edges.movedim(1, 0).flatten(1)
        x = torch.relu(self.message1(nodes.flatten(0, 1)))
        x = x + torch.zeros_like(x).index_add(0, target, x[source])
        messages = self.message2(x)[source]
        ends = target.unsqueeze(1).expand_as(messages)
        x = torch.full_like(x, -1).scatter_reduce(0, ends, messages, "amax").tanh()
        sums = torch.zeros(rows * count, 1).scatter_add(0, target.unsqueeze(1), messages.mean(1, keepdim=True))
        return self.head((x + sums).view(rows, count, -1).mean(1))


def graph():
    return Program(
        GraphNet(), [torch.randn(ROWS, 6, 8), torch.randint(6, (ROWS, 2, 20))], torch.randint(CLASSES, (ROWS,))
    )


class Autoencoder(nn.Module):
    """A variational one, which computes its loss itself."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(24, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 8))
        self.decoder = nn.Sequential(nn.Linear(4, HIDDEN), nn.ELU(), nn.Linear(HIDDEN, 24))

    def forward(self, x):
        mean, log_variance = self.encoder(x).chunk(2, 1)
        decoded = self.decoder(mean + torch.randn_like(mean) * (0.5 * log_variance).exp())
        divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).mean()
        return F.mse_loss(decoded, x) + divergence, decoded


def autoencoder():
    x = torch.rand(ROWS, 24)
    return Program(Autoencoder(), [x], x, "output")


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, HIDDEN, padding_idx=0)
        layer = nn.TransformerEncoderLayer(HIDDEN, 2, 64, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(HIDDEN, TOKENS, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH), persistent=False)

    def forward(self, tokens):
        return self.head(self.encoder(self.embedding(tokens), mask=self.mask, is_causal=True)).movedim(-1, 1)


def transformer():
    return Program(Transformer(), [torch.randint(1, TOKENS, (ROWS, LENGTH))], torch.randint(TOKENS, (ROWS, LENGTH)))


class Average(nn.Module):
    """Writes to its buffers: a moving average, and a count of the calls."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 4)
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.calls += 1
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0).detach()
        return self.linear(x - self.mean)


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(TOKENS, HIDDEN, mode="mean")
        self.head = nn.utils.parametrizations.weight_norm(nn.Linear(HIDDEN, CLASSES))

    def forward(self, tokens):
        with torch.no_grad():
            scale = tokens.float().mean(1, keepdim=True) / TOKENS
        return self.head(self.bag(tokens) * scale)


class Branch(nn.Module):
    """torch.cond between two layers."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: self.first(x).relu(), lambda x: self.second(x).sin(), (x,))


class MixedPrecision(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(4, 8, 3, padding=1), nn.PReLU(8), nn.Flatten(), nn.LayerNorm(64))
        self.head = nn.Linear(64, CLASSES)

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            x = self.net(x)
        return self.head(x.float())


def vectors(net):
    return Program(net, [torch.randn(ROWS, 8)], torch.randn(ROWS, net(torch.randn(2, 8)).shape[1]), "mse")


PROGRAMS = {
    "plain/unet": lambda: Program(UNet(), [torch.rand(ROWS, 3, 32, 32)], torch.randint(CLASSES, (ROWS, 32, 32))),
    "plain/lstm": lambda: recurrent(nn.LSTM, num_layers=2, dropout=0.1),
    "plain/lstm_bidirectional": lambda: recurrent(nn.LSTM, bidirectional=True),
    "plain/gru": lambda: recurrent(nn.GRU),
    "plain/rnn": lambda: recurrent(nn.RNN, nonlinearity="relu"),
    "plain/graph": graph,
    "plain/autoencoder": autoencoder,
    "plain/transformer": transformer,
    "plain/average": lambda: vectors(Average()),
    "plain/cond": lambda: vectors(Branch()),
    "plain/embedding_bag": lambda: Program(
        Bag(), [torch.randint(TOKENS, (ROWS, LENGTH))], torch.randint(CLASSES, (ROWS,))
    ),
    "plain/autocast": lambda: Program(MixedPrecision(), [torch.randn(ROWS, 4, 8)], torch.randint(CLASSES, (ROWS,))),
    "plain/mlp": lambda: image_program(
        nn.Sequential(nn.Flatten(), nn.Linear(192, 32), nn.GELU(), nn.Linear(32, CLASSES)), 8
    ),
}
