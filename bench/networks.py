"""Networks of the training benchmark, in the shapes of well-known ones and written out plainly."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


def conv_norm(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1
) -> list[nn.Module]:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(outputs)]


# ---- ResNet-18 -----------------------------------------------------------------------------------


class BasicBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *conv_norm(inputs, outputs, 3, stride), nn.ReLU(), *conv_norm(outputs, outputs, 3)
        )
        changes = stride != 1 or inputs != outputs
        self.shortcut = nn.Sequential(*(conv_norm(inputs, outputs, 1, stride) if changes else []))

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.body(x) + self.shortcut(x))


def resnet18(classes: int = 100) -> nn.Module:
    layers = [*conv_norm(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, width in enumerate((64, 128, 256, 512)):
        layers.append(BasicBlock(channels, width, 1 if stage == 0 else 2))
        layers.append(BasicBlock(width, width, 1))
        channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


# ---- MobileNetV2 ---------------------------------------------------------------------------------


class InvertedResidual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        expand = [*conv_norm(inputs, hidden, 1), nn.ReLU6()] if expansion != 1 else []
        self.body = nn.Sequential(
            *expand,
            *conv_norm(hidden, hidden, 3, stride, groups=hidden),
            nn.ReLU6(),
            *conv_norm(hidden, outputs, 1),
        )
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.body(x)
        return x + y if self.adds else y


def mobilenet_v2(classes: int = 100) -> nn.Module:
    layers = [*conv_norm(3, 32, 3, 2), nn.ReLU6()]
    channels = 32
    # expansion, channels, blocks, stride of the first
    for expansion, width, blocks, stride in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for block in range(blocks):
            layers.append(InvertedResidual(channels, width, stride if block == 0 else 1, expansion))
            channels = width
    layers += [*conv_norm(channels, 1280, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(1280, classes))


# ---- ConvNeXt ------------------------------------------------------------------------------------


class ChannelNorm(nn.Module):
    """Layer normalization over the channels of (N, C, H, W), which stay where they are."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels, 1, 1))
        self.bias = nn.Parameter(torch.zeros(channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(1, keepdim=True)
        scale = torch.rsqrt(centred.square().mean(1, keepdim=True) + 1e-6)
        return self.weight * (centred * scale) + self.bias


class ConvNeXtBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.mlp = nn.Sequential(
            nn.LayerNorm(channels),
            nn.Linear(channels, 4 * channels),
            nn.GELU(),
            nn.Linear(4 * channels, channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.mlp(self.depthwise(x).permute(0, 2, 3, 1))
        return x + y.permute(0, 3, 1, 2)


def convnext(classes: int = 100) -> nn.Module:
    """ConvNeXt-T with its channels, and two thirds of its blocks in the third stage."""
    layers: list[nn.Module] = [nn.Conv2d(3, 96, 4, 4), ChannelNorm(96)]
    channels = 96
    for width, blocks in ((96, 3), (192, 3), (384, 6), (768, 3)):
        if width != channels:
            layers += [ChannelNorm(channels), nn.Conv2d(channels, width, 2, 2)]
        layers += [ConvNeXtBlock(width) for _ in range(blocks)]
        channels = width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(768), nn.Linear(768, classes)]
    return nn.Sequential(*layers)


# ---- 3-D U-Net -----------------------------------------------------------------------------------


def double_conv3d(inputs: int, outputs: int) -> nn.Module:
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
        layers += [
            nn.Conv3d(channels, outputs, 3, padding=1, bias=False),
            nn.BatchNorm3d(outputs),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers)


class UNet3d(nn.Module):
    """Three levels; down by max pooling, up by repetition."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.first = double_conv3d(1, 16)
        self.second = double_conv3d(16, 32)
        self.bottom = double_conv3d(32, 64)
        self.up_second = double_conv3d(64 + 32, 32)
        self.up_first = double_conv3d(32 + 16, 16)
        self.last = nn.Conv3d(16, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x)
        second = self.second(functional.max_pool3d(first, 2))
        bottom = self.bottom(functional.max_pool3d(second, 2))
        up = functional.interpolate(bottom, scale_factor=2.0)
        up = self.up_second(torch.cat([up, second], 1))
        up = functional.interpolate(up, scale_factor=2.0)
        up = self.up_first(torch.cat([up, first], 1))
        result: Tensor = self.last(up)
        return result
