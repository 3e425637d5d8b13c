"""The network that names regions: a U-Net on a grid of 2 mm, and a small part for 1 mm.

Needs torch alone, so that it can be trained where nothing else of this package is installed; see
:mod:`surreal_bids.imaging.network` for its use on images.

Shapes: B images, F features, C classes (background and regions), X Y Z voxels of the coarse grid;
the fine grid has two voxels for each of them along every axis.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SLOPE = 0.01
"""Of the leaky rectifier below zero."""

EPSILON = 1e-5
"""Added to variances."""


@dataclass(frozen=True)
class Architecture:
    """Sizes of a network.

    Attributes
    ----------
    widths
        Features at each level; each level halves the resolution of the one before.
    classes
        Background and regions.
    protocols
        Ways of labelling that it has learned, each with its own last layer.
    fine
        Features of the part that sees 1 mm.
    """

    widths: tuple[int, ...] = (24, 48, 96, 128, 160)
    classes: int = 146
    protocols: int = 2
    fine: int = 16

    @property
    def divisor(self) -> int:
        """The coarse grid must have a multiple of so many voxels along each axis."""
        return int(2 ** (len(self.widths) - 1))


class Norm(nn.Module):
    """Give each feature of each image mean 0 and variance 1, then a learned scale and offset."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))

    def forward(self, x: Tensor) -> Tensor:
        """Of (B, F, X, Y, Z), the same."""
        values = x.float()
        variance, mean = torch.var_mean(values, dim=(2, 3, 4), keepdim=True, correction=0)
        scale = torch.rsqrt(variance + EPSILON) * self.weight.view(-1, 1, 1, 1)
        offset = self.bias.view(-1, 1, 1, 1) - mean * scale
        return (values * scale + offset).to(x.dtype)


class Block(nn.Module):
    """Twice: convolution, norm, rectifier; the first convolution may halve the resolution."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv3d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm1 = Norm(outputs)
        self.conv2 = nn.Conv3d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = Norm(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Of (B, inputs, X, Y, Z), features at that resolution or at half of it."""
        x = F.leaky_relu(self.norm1(self.conv1(x)), SLOPE)
        return F.leaky_relu(self.norm2(self.conv2(x)), SLOPE)


class RegionNet(nn.Module):
    """Features of a brain, and the linear maps that turn them into classes.

    Parameters
    ----------
    architecture
        Sizes.
    """

    def __init__(self, architecture: Architecture | None = None) -> None:
        super().__init__()
        self.architecture = architecture or Architecture()
        widths, fine = self.architecture.widths, self.architecture.fine
        self.down = nn.ModuleList(
            Block(i, o, 1 if level == 0 else 2)
            for level, (i, o) in enumerate(zip((1, *widths), widths))
        )
        self.lateral = nn.ModuleList(
            nn.Conv3d(i, o, 1) for i, o in zip(widths[:0:-1], widths[-2::-1])
        )
        self.up = nn.ModuleList(Block(2 * o, o) for o in widths[-2::-1])
        classes, protocols = self.architecture.classes, self.architecture.protocols
        self.head_weight = nn.Parameter(torch.randn(protocols, widths[0], classes) * 0.05)
        self.head_bias = nn.Parameter(torch.zeros(protocols, classes))
        self.fine1 = nn.Conv3d(widths[0] + 2, fine, 3, padding=1)
        self.fine2 = nn.Conv3d(fine, fine, 3, padding=1)
        self.fine_weight = nn.Parameter(torch.zeros(fine, classes))

    def forward(self, image: Tensor) -> Tensor:
        """Features (B, F, X, Y, Z) of images on the coarse grid (B, 1, X, Y, Z)."""
        kept: list[Tensor] = []
        x = image
        for block in self.down:
            x = block(x)
            kept.append(x)
        for lateral, block, skip in zip(self.lateral, self.up, kept[-2::-1]):
            x = F.interpolate(lateral(x), scale_factor=2.0, mode='nearest')
            x = block(torch.cat([skip, x], dim=1))
        return x

    def refine(self, features: Tensor, image: Tensor, fine_image: Tensor) -> Tensor:
        """Features on the fine grid: those of the coarse one interpolated, then those of detail.

        Parameters
        ----------
        features, image
            On the coarse grid: (B, F, X, Y, Z) and (B, 1, X, Y, Z).
        fine_image
            (B, 1, 2X, 2Y, 2Z).
        """
        coarse = to_fine(torch.cat([features, image], dim=1))
        detail = torch.cat([coarse[:, :-1], fine_image, fine_image - coarse[:, -1:]], dim=1)
        detail = F.leaky_relu(self.fine1(detail), SLOPE)
        detail = F.leaky_relu(self.fine2(detail), SLOPE)
        return torch.cat([coarse[:, :-1], detail], dim=1)

    def head(self, protocol: int, *, fine: bool) -> tuple[Tensor, Tensor]:
        """Weights (features, C) and offsets (C) that turn features of a voxel into logits."""
        weight = self.head_weight[protocol]
        if fine:
            weight = torch.cat([weight, self.fine_weight])
        return weight, self.head_bias[protocol]


def to_fine(volumes: Tensor) -> Tensor:
    """Interpolate (B, F, X, Y, Z) linearly on the fine grid."""
    return F.interpolate(volumes, scale_factor=2.0, mode='trilinear', align_corners=False)


def to_coarse(volumes: Tensor) -> Tensor:
    """Means (B, F, X, Y, Z) over the fine voxels of each coarse one."""
    return F.avg_pool3d(volumes, 2)


def standardise(image: Tensor, visible: Tensor) -> Tensor:
    """Intensities with mean 0 and variance 1 where the brain is visible, 0 elsewhere.

    Parameters
    ----------
    image
        (B, X, Y, Z).
    visible
        The same shape; 1 or True inside.
    """
    inside = visible.to(image.dtype)
    count = inside.sum(dim=(1, 2, 3), keepdim=True).clamp_min(1)
    mean = (image * inside).sum(dim=(1, 2, 3), keepdim=True) / count
    centred = (image - mean) * inside
    spread = (centred.square().sum(dim=(1, 2, 3), keepdim=True) / count).sqrt()
    return centred / spread.clamp_min(EPSILON)
