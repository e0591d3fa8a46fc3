"""Small models of PyTorch, of the kinds that people import, with seeded weights and odd sizes.

Each function returns a module and the arguments of a call. `needs` names the library it is of.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional


class Sample(NamedTuple):
    """How a module and its arguments are made, and the library that it is of.

    Channels and features are `width` times those of the smallest.
    """

    make: Callable[[int], tuple[Any, tuple[Any, ...]]]
    needs: str

    def seeded(self, width: int = 1, *, train: bool = False) -> tuple[Any, tuple[Any, ...]]:
        """The module and its arguments, with weights and statistics from a seed.

        It drops nothing out, also where it is for training.
        """
        torch.manual_seed(0)
        module, args = self.make(width)
        module.train(train)
        for part in module.modules():
            for name in ("p", "dropout", "dropout_prob", "attention_dropout"):
                if isinstance(getattr(part, name, None), float):
                    setattr(part, name, 0.0)
        for key, buffer in module.named_buffers():
            if key.endswith("running_var"):
                buffer.uniform_(0.5, 1.5)
            elif key.endswith("running_mean"):
                buffer.normal_(0, 0.1)
        return module, args


MODULES: dict[str, Sample] = {}


def sample(name: str, needs: str = "torch") -> Callable[..., Any]:
    def decorate(make: Callable[[int], tuple[Any, tuple[Any, ...]]]) -> Any:
        assert name not in MODULES
        MODULES[name] = Sample(make, needs)
        return make

    return decorate


class Of(nn.Module):  # type: ignore[misc]
    """A module that calls a function of its parts, which it holds."""

    def __init__(self, forward: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self.call = forward

    def forward(self, *args: Any) -> Any:
        return self.call(self, *args)


def image(height: int = 33, width: int = 29, channels: int = 3) -> Any:
    return torch.randn(1, channels, height, width)


def conv(
    inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1, dilation: int = 1
) -> Any:
    edge = dilation * (kernel // 2)
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, edge, dilation, groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


@sample("mlp")
def mlp(k: int) -> Any:
    wide = 31 * k
    layers = nn.Linear(13 * k, wide), nn.GELU(), nn.LayerNorm(wide), nn.Linear(wide, 7 * k)
    return nn.Sequential(*layers, nn.Softmax(-1)), (torch.randn(5, 13 * k),)


def _block(inputs: int, outputs: int, stride: int) -> Any:
    """Two convolutions, and what is added to them."""

    def forward(m: Any, x: Any) -> Any:
        return functional.relu(m.body(x) + m.side(x))

    body = [conv(inputs, outputs, 3, stride), *list(conv(outputs, outputs))[:2]]
    side = nn.Identity() if stride == 1 else nn.Sequential(*list(conv(inputs, outputs, 1, 2))[:2])
    return Of(forward, body=nn.Sequential(*body), side=side)


@sample("resnet18")
def resnet(k: int) -> Any:
    widths = [8 * k, 12 * k, 16 * k, 24 * k]
    stages = [_block(8 * k, 8 * k, 1), _block(8 * k, 8 * k, 1)]
    for inputs, outputs in pairwise(widths):
        stages += [_block(inputs, outputs, 2), _block(outputs, outputs, 1)]
    stem = conv(3, 8 * k, 7, 2), nn.MaxPool2d(3, 2, 1)
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24 * k, 10)
    return nn.Sequential(*stem, *stages, *head), (image(97, 61),)


def _inverted(inputs: int, outputs: int, kernel: int, stride: int, *, squeeze: bool) -> Any:
    """An inverted bottleneck, whose channels are weighted if `squeeze`."""
    wide = 4 * inputs

    def forward(m: Any, x: Any) -> Any:
        y = m.deep(x)
        if squeeze:
            y = y * m.squeeze(y.mean((2, 3), keepdim=True))
        y = m.last(y)
        return x + y if x.shape == y.shape else y

    return Of(
        forward,
        deep=nn.Sequential(conv(inputs, wide, 1), conv(wide, wide, kernel, stride, wide)),
        last=nn.Sequential(*list(conv(wide, outputs, 1))[:2]),
        squeeze=nn.Sequential(
            nn.Conv2d(wide, 4, 1), nn.SiLU(), nn.Conv2d(4, wide, 1), nn.Sigmoid()
        ),
    )


@sample("mobilenet_v2")
def mobilenet(k: int) -> Any:
    blocks = [
        _inverted(8 * k, 8 * k, 3, 1, squeeze=False),
        _inverted(8 * k, 12 * k, 3, 2, squeeze=False),
        _inverted(12 * k, 12 * k, 3, 1, squeeze=False),
    ]
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(12 * k, 10)
    return nn.Sequential(conv(3, 8 * k, 3, 2), *blocks, nn.ReLU6(), *head), (image(97, 61),)


@sample("unet")
def unet(k: int) -> Any:
    def forward(m: Any, x: Any) -> Any:
        first = m.first(x)
        second = m.second(functional.max_pool2d(first, 2))
        third = m.third(functional.max_pool2d(second, 2))
        up = functional.interpolate(third, size=second.shape[-2:], mode="nearest")
        up = m.up(torch.cat([up, second], 1))
        up = functional.interpolate(up, size=first.shape[-2:], mode="bilinear")
        return m.last(torch.cat([up, first], 1))

    parts = {
        "first": conv(3, 4 * k),
        "second": conv(4 * k, 8 * k),
        "third": conv(8 * k, 8 * k),
        "up": conv(16 * k, 8 * k),
        "last": nn.Conv2d(12 * k, 2, 1),
    }
    return Of(forward, **parts), (image(97, 61),)


@sample("vit")
def vit(k: int) -> Any:
    """Patches of an image, a token of the class, and learned places."""

    def forward(m: Any, x: Any) -> Any:
        patches = m.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([m.token.expand(len(x), -1, -1), patches], 1) + m.places
        return m.head(m.norm(m.encoder(tokens))[:, 0])

    wide = 16 * k
    layer = nn.TransformerEncoderLayer(
        wide, 2, 2 * wide, activation="gelu", batch_first=True, norm_first=True
    )
    parts = {
        "patches": nn.Conv2d(3, wide, 7, 7),
        "token": nn.Parameter(torch.randn(1, 1, wide)),
        "places": nn.Parameter(torch.randn(1, 17, wide)),
        "encoder": nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
        "norm": nn.LayerNorm(wide),
        "head": nn.Linear(wide, 10),
    }
    return Of(forward, **parts), (image(28, 28),)


@sample("encoder")
def encoder(k: int) -> Any:
    layer = nn.TransformerEncoderLayer(16 * k, 4, 24 * k, batch_first=True, norm_first=True)
    module = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return module, (torch.randn(2, 9 * k, 16 * k),)


@sample("decoder_with_cache")
def decoder_with_cache(k: int) -> Any:
    """One new token, whose key and value are written into a cache."""
    wide = 16 * k

    def forward(m: Any, x: Any, keys: Any, values: Any, place: Any) -> Any:
        q, key, v = (t.reshape(1, 1, 2, 8 * k).transpose(1, 2) for t in m.qkv(x).chunk(3, -1))
        keys, values = keys.index_copy(2, place, key), values.index_copy(2, place, v)
        seen = torch.arange(12 * k) <= place
        y = functional.scaled_dot_product_attention(q, keys, values, seen[None, None, None])
        x = x + m.out(y.transpose(1, 2).reshape(1, 1, wide))
        return x + m.mlp(x), keys, values

    layers = nn.LayerNorm(wide), nn.Linear(wide, 2 * wide), nn.SiLU(), nn.Linear(2 * wide, wide)
    parts = {"qkv": nn.Linear(wide, 3 * wide), "out": nn.Linear(wide, wide)}
    module = Of(forward, **parts, mlp=nn.Sequential(*layers))
    cache = torch.randn(2, 1, 2, 12 * k, 8 * k)
    return module, (torch.randn(1, 1, wide), cache[0], cache[1], torch.tensor([5]))


@sample("lstm")
def lstm(k: int) -> Any:
    def forward(m: Any, tokens: Any) -> Any:
        return m.head(m.lstm(m.table(tokens))[0])

    parts = {
        "table": nn.Embedding(17, 6 * k),
        "lstm": nn.LSTM(6 * k, 5 * k, 2, batch_first=True, bidirectional=True),
        "head": nn.Linear(10 * k, 17),
    }
    return Of(forward, **parts), (torch.randint(0, 17, (2, 7)),)


@sample("gru")
def gru(k: int) -> Any:
    def forward(m: Any, x: Any) -> Any:
        y, last = m.gru(x)
        return y.mean(1), last

    return Of(forward, gru=nn.GRU(5 * k, 6 * k, batch_first=True)), (torch.randn(3, 8, 5 * k),)


@sample("mixture_of_experts")
def mixture(k: int) -> Any:
    """Two experts, of which a token takes the likelier one."""

    def forward(m: Any, x: Any) -> Any:
        share, chosen = m.gate(x).softmax(-1).max(-1, keepdim=True)
        results = torch.stack([m.first(x), m.second(x)], -2)
        at = chosen[..., None].expand(*chosen.shape, x.shape[-1])
        return x + share * results.gather(-2, at).squeeze(-2)

    def expert() -> Any:
        return nn.Sequential(nn.Linear(8 * k, 16 * k), nn.ReLU(), nn.Linear(16 * k, 8 * k))

    module = Of(forward, gate=nn.Linear(8 * k, 2), first=expert(), second=expert())
    return module, (torch.randn(2, 5 * k, 8 * k),)


class ChannelsLast(nn.Module):  # type: ignore[misc]
    """A layer norm of the channels of images."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels, eps=1e-6)

    def forward(self, x: Any) -> Any:
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


@sample("convnext")
def convnext(k: int) -> Any:
    def block(channels: int) -> Any:
        def forward(m: Any, x: Any) -> Any:
            y = m.deep(m.depthwise(x).permute(0, 2, 3, 1)) * m.scale
            return x + y.permute(0, 3, 1, 2)

        wide = 4 * channels
        deep = [nn.LayerNorm(channels, 1e-6), nn.Linear(channels, wide), nn.GELU()]
        return Of(
            forward,
            depthwise=nn.Conv2d(channels, channels, 7, padding=3, groups=channels),
            deep=nn.Sequential(*deep, nn.Linear(wide, channels)),
            scale=nn.Parameter(torch.rand(channels)),
        )

    first, last = 8 * k, 16 * k
    layers = [nn.Conv2d(3, first, 4, 4), ChannelsLast(first), block(first), ChannelsLast(first)]
    layers += [nn.Conv2d(first, last, 2, 2), block(last), nn.AdaptiveAvgPool2d(1), nn.Flatten(1)]
    return nn.Sequential(*layers, nn.LayerNorm(last), nn.Linear(last, 5)), (image(97, 61),)


@sample("efficientnet")
def efficientnet(k: int) -> Any:
    widths = [(8 * k, 8 * k, 3, 1), (8 * k, 16 * k, 5, 2)]
    blocks = [_inverted(*each, squeeze=True) for each in widths]
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16 * k, 5)
    return nn.Sequential(conv(3, 8 * k, 3, 2), *blocks, nn.Hardswish(), *head), (image(97, 61),)


@sample("swin")
def swin(k: int) -> Any:
    """Attention within windows that are shifted, of an image that they do not divide."""
    side, heads, width = 3, 2, 8 * k

    def forward(m: Any, x: Any) -> Any:
        x = m.patches(x).permute(0, 2, 3, 1)
        _, rows, columns, _ = x.shape
        y = functional.pad(m.norm(x), (0, 0, 0, -columns % side, 0, -rows % side))
        y = torch.roll(y, (-1, -1), (1, 2))
        down, across = y.shape[1] // side, y.shape[2] // side
        y = y.reshape(down, side, across, side, width).transpose(1, 2)
        y = y.reshape(down * across, side * side, width)
        q, key, v = m.qkv(y).reshape(*y.shape[:2], 3, heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ key.transpose(-2, -1) * (width // heads) ** -0.5
        scores = scores + m.bias[m.places.reshape(-1)].reshape(9, 9, heads).permute(2, 0, 1)
        y = m.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(y.shape))
        y = y.reshape(down, across, side, side, width).transpose(1, 2)
        y = torch.roll(y.reshape(1, down * side, across * side, width), (1, 1), (1, 2))
        x = x + y[:, :rows, :columns]
        merged = torch.cat([x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)], -1)
        return m.merge(merged)

    at = torch.cartesian_prod(torch.arange(side), torch.arange(side))
    between = at[:, None] - at + side - 1
    parts = {
        "patches": nn.Conv2d(3, width, 4, 4),
        "norm": nn.LayerNorm(width),
        "qkv": nn.Linear(width, 3 * width),
        "out": nn.Linear(width, width),
        "bias": nn.Parameter(torch.randn((2 * side - 1) ** 2, heads)),
        "places": nn.Buffer(between[..., 0] * (2 * side - 1) + between[..., 1]),
        "merge": nn.Linear(4 * width, 2 * width, bias=False),
    }
    return Of(forward, **parts), (image(33, 57),)


@sample("depthwise_separable")
def separable(k: int) -> Any:
    layers = [conv(3, 8 * k, 3, 2), conv(8 * k, 8 * k, 5, 1, 8 * k), conv(8 * k, 12 * k, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d((3, 2))), (image(97, 61),)


@sample("feature_pyramid")
def pyramid(k: int) -> Any:
    def forward(m: Any, x: Any) -> Any:
        first = m.first(x)
        second = m.second(first)
        top = m.top(second)
        up = functional.interpolate(top, size=first.shape[-2:], mode="nearest")
        return {"fine": m.fine(m.side(first) + up), "coarse": top}

    parts = {
        "first": conv(3, 6 * k, 3, 2),
        "second": conv(6 * k, 8 * k, 3, 2),
        "top": nn.Conv2d(8 * k, 4 * k, 1),
        "side": nn.Conv2d(6 * k, 4 * k, 1),
        "fine": conv(4 * k, 4 * k),
    }
    return Of(forward, **parts), (image(97, 61),)


@sample("dilated_segmentation")
def segmentation(k: int) -> Any:
    """Convolutions of several dilations, and the means of images, side by side."""

    def forward(m: Any, x: Any) -> Any:
        y = m.stem(x)
        mean = m.mean(y.mean((2, 3), keepdim=True))
        wide = functional.interpolate(mean, size=y.shape[-2:], mode="bilinear")
        y = m.head(torch.cat([*(branch(y) for branch in m.branches), wide], 1))
        y = functional.interpolate(y, size=x.shape[-2:], mode="bilinear", align_corners=True)
        return y.argmax(1), y

    wide, narrow = 8 * k, 4 * k
    dilated = (conv(wide, narrow, 3, dilation=d) for d in (2, 4))
    branches = nn.ModuleList([conv(wide, narrow, 1), *dilated])
    head = nn.Conv2d(4 * narrow, 3, 1)
    parts = {"stem": conv(3, wide, 3, 4), "mean": conv(wide, narrow, 1), "head": head}
    return Of(forward, **parts, branches=branches), (torch.randn(2, 3, 97, 61),)


@sample("audio")
def audio(k: int) -> Any:
    layers = [
        nn.Conv1d(1, 8 * k, 11, 4, 5), nn.BatchNorm1d(8 * k), nn.GELU(), nn.MaxPool1d(3, 2),
        nn.Conv1d(8 * k, 16 * k, 3, dilation=2, groups=2), nn.PReLU(16 * k),
        nn.AdaptiveMaxPool1d(5), nn.Flatten(), nn.Linear(80 * k, 4),
    ]  # fmt: skip
    return nn.Sequential(*layers), (torch.randn(2, 1, 331),)


@sample("masked_attention")
def masked_attention(k: int) -> Any:
    length = 7 * k

    def forward(m: Any, x: Any, padding: Any) -> Any:
        causal = torch.ones(length, length, dtype=torch.bool).triu(1)
        return m.attention(x, x, x, key_padding_mask=padding, attn_mask=causal)

    attention = nn.MultiheadAttention(12 * k, 3, batch_first=True)
    padding = torch.arange(length)[None] >= torch.tensor([[length], [4 * k]])
    return Of(forward, attention=attention), (torch.randn(2, length, 12 * k), padding)


def _llama(k: int) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=31, hidden_size=16 * k, intermediate_size=24 * k, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, use_cache=False,
    )  # fmt: skip
    return LlamaForCausalLM(config)


@sample("llama", "transformers")
def llama(k: int) -> Any:
    def forward(m: Any, tokens: Any) -> Any:
        return m.model(input_ids=tokens).logits

    return Of(forward, model=_llama(k)), (torch.randint(0, 31, (2, 9 * k)),)


@sample("llama_float16", "transformers")
def llama_float16(k: int) -> Any:
    module, args = llama(k)
    return module.half(), args


@sample("bert", "transformers")
def bert(k: int) -> Any:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=31, hidden_size=16 * k, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=24 * k, max_position_embeddings=16 * k,
    )  # fmt: skip

    def forward(m: Any, tokens: Any, mask: Any) -> Any:
        return m.model(input_ids=tokens, attention_mask=mask).last_hidden_state

    mask = (torch.arange(9 * k)[None] < torch.tensor([[9 * k], [5 * k]])).long()
    return Of(forward, model=BertModel(config)), (torch.randint(0, 31, (2, 9 * k)), mask)


@sample("t5", "transformers")
def t5(k: int) -> Any:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=31, d_model=16 * k, d_kv=8 * k, d_ff=24 * k, num_layers=2, num_heads=2,
        use_cache=False, feed_forward_proj="gated-gelu",
    )  # fmt: skip

    def forward(m: Any, tokens: Any, decoded: Any) -> Any:
        return m.model(input_ids=tokens, decoder_input_ids=decoded).logits

    args = torch.randint(0, 31, (1, 9 * k)), torch.randint(0, 31, (1, 4 * k))
    return Of(forward, model=T5ForConditionalGeneration(config)), args


@sample("whisper", "transformers")
def whisper(k: int) -> Any:
    from transformers import WhisperConfig, WhisperModel

    config = WhisperConfig(
        vocab_size=31, num_mel_bins=8, d_model=16 * k, encoder_layers=1, decoder_layers=1,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=24 * k,
        decoder_ffn_dim=24 * k, max_source_positions=25, max_target_positions=16 * k,
        use_cache=False,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip

    def forward(m: Any, features: Any, tokens: Any) -> Any:
        return m.model(input_features=features, decoder_input_ids=tokens).last_hidden_state

    args = torch.randn(1, 8, 50), torch.randint(0, 31, (1, 5 * k))
    return Of(forward, model=WhisperModel(config)), args


@sample("clip", "transformers")
def clip(k: int) -> Any:
    from transformers import CLIPConfig, CLIPModel

    text = {
        "vocab_size": 31, "hidden_size": 16 * k, "intermediate_size": 24 * k,
        "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 16 * k,
        "projection_dim": 8 * k, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    vision = {
        "hidden_size": 16 * k, "intermediate_size": 24 * k, "num_hidden_layers": 1,
        "image_size": 28, "num_attention_heads": 2, "patch_size": 7, "projection_dim": 8 * k,
    }  # fmt: skip
    config = CLIPConfig(text_config=text, vision_config=vision, projection_dim=8 * k)

    def forward(m: Any, tokens: Any, pixels: Any) -> Any:
        found = m.model(input_ids=tokens, pixel_values=pixels)
        return found.logits_per_image, found.text_embeds

    args = torch.randint(0, 31, (2, 7 * k)), torch.randn(2, 3, 28, 28)
    return Of(forward, model=CLIPModel(config)), args


@sample("super_resolution")
def super_resolution(k: int) -> Any:
    layers = [nn.Conv2d(1, 8 * k, 5, padding=2), nn.Tanh(), nn.Conv2d(8 * k, 9, 3, padding=1)]
    return nn.Sequential(*layers, nn.PixelShuffle(3)), (image(25, 19, 1),)


@sample("generator")
def generator(k: int) -> Any:
    layers = [
        nn.ConvTranspose2d(7 * k, 8 * k, (4, 3)), nn.BatchNorm2d(8 * k), nn.LeakyReLU(0.2),
        nn.ConvTranspose2d(8 * k, 6 * k, 4, 2, 1, groups=2),
        nn.InstanceNorm2d(6 * k, affine=True), nn.ReLU(),
        nn.ConvTranspose2d(6 * k, 3, 3, 2, 1, output_padding=1), nn.Tanh(),
    ]  # fmt: skip
    return nn.Sequential(*layers), (torch.randn(2, 7 * k, 1, 1),)


@sample("normalising_flow")
def flow(k: int) -> Any:
    """A coupling layer, and the logarithm of its determinant."""

    def forward(m: Any, x: Any) -> Any:
        left, right = x.chunk(2, -1)
        scale, shift = m.net(left).chunk(2, -1)
        scale = torch.tanh(scale)
        y = torch.cat([left, right * scale.exp() + shift], -1)
        density = torch.distributions.Normal(0.0, 1.0, validate_args=False).log_prob(y).sum(-1)
        return y.flip(-1), scale.sum(-1) + density

    net = nn.Sequential(nn.Linear(3 * k, 16 * k), nn.ReLU(), nn.Linear(16 * k, 6 * k))
    return Of(forward, net=net), (torch.randn(5 * k, 6 * k),)
