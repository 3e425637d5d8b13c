"""Train the segmentation network (`surreal_bids/imaging/unet.py`) on labelled heads.

    python benchmarks/train_network.py prepare SETS HEADS
    python benchmarks/train_network.py pack HEADS DATA.npz.xz
    python benchmarks/train_network.py train DATA.npz.xz OUT --job coarse:none:1:0
    python benchmarks/train_network.py train DATA.npz.xz OUT --start OUT/coarse.pt \
        --job final:all:0.4:0.06 --job first:0:0.22:0.05 --job second:1:0.22:0.05
    python benchmarks/train_network.py export DATA.npz.xz OUT/final.pt WEIGHTS.safetensors

SETS holds `<set>/T1w/<name>.nii.gz` and `<set>/dseg/<name>.nii.gz`. HEADS gets one
`<set>_<name>.npz` per head, with N4 and brain mask as in the app. Set `ixi2mm_more` has DLMUSE
labels at 2 mm (protocol 0), `oasis35` hand labels at 1 mm (protocol 1). Hand labels have one label
for the white matter of a side; the loss then accepts any white-matter region of that side or the
corpus callosum. Heads of set `ixi2mm` are not used in training.

Training needs only torch and numpy, and a GPU (20 minutes of an H200). A job is
`name:fold:share of the time:share for the part at 1 mm`. Fold `none` has no hand-labelled heads,
`all` has all of them, 0 or 1 those of one half of the people.

Each sample is augmented with the effects of age and scanners: growing ventricles and temporal
horns, shrinking cortex, dark spots in white matter, contrast, noise, bias field, resolution, mask
errors, left-right flips, pose and shape.
"""

from __future__ import annotations

import argparse
import io
import json
import lzma
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from surreal_bids.imaging.unet import Architecture, RegionNet, standardise, to_coarse

COARSE = (80, 96, 80)
"""Voxels of 2 mm around a brain."""

FINE = (160, 192, 160)
"""Voxels of 1 mm."""

FULL_SCALE = 50
"""Stored intensity of the 99.5th percentile of a brain; 63 is the largest."""

RIM_VOXELS = 3
"""What is stored beyond the mask."""

CLASSES = 146
RIGHT_WM, LEFT_WM, IGNORED = 146, 147, 148
"""Labels beyond the classes: white matter of a side, and what no class stands for."""

HAND = {44: RIGHT_WM, 45: LEFT_WM, 15: IGNORED, 42: IGNORED, 43: IGNORED, 63: IGNORED, 64: IGNORED}
"""Hand labels that are no region of MUSE; all others, such as fluid, are background."""

SIDES_EXCHANGED = ('IXI256', 'IXI438')
"""Heads in whose labels DLMUSE exchanged left and right in large parts: not used."""

VALIDATION_STEP = 17
"""Every so many heads of the training set is used to follow training, not to train."""

BATCH = 4
SAMPLED = 131072
"""Voxels of each image that the loss looks at."""

RATE = 2e-3
"""Largest rate of learning; half of it where training starts from other weights."""

FINE_RATE = 2e-3

RESERVE = 6.0
"""Seconds of each job for all but training."""

HAND_SHARE = 0.4
"""Of the samples, where there are hand-labelled heads."""

# --------------------------------------------------------------------------------------------------
# Packing


SETS = ('oasis35', 'ixi2mm_more', 'ixi2mm')


def prepare(sets: Path, heads: Path) -> None:
    """Process heads as the app does, and turn them so that axes run right, front and up."""
    import nibabel as nib

    from surreal_bids.images import load_image
    from surreal_bids.imaging.bias import correct_bias
    from surreal_bids.imaging.brain import brain_mask

    for path in (path for name in SETS for path in sorted((sets / name / 'T1w').iterdir())):
        t1w = load_image(path)
        mask, _ = brain_mask(t1w)
        labels = load_image(path.parents[1] / 'dseg' / path.name)
        turned = [
            nib.as_closest_canonical(each) for each in (correct_bias(t1w, mask), mask, labels)
        ]
        x, m, y = (np.asarray(each.dataobj) for each in turned)
        name = f'{path.parents[1].name}_{path.name.split(".")[0]}.npz'
        np.savez(heads / name, x=x, m=m > 0, y=y.astype(np.uint8), affine=turned[0].affine)
        print(name, flush=True)


def pack(heads: Path, path: Path) -> None:
    """Collect heads in one file of small integers."""
    import pandas as pd

    table = pd.read_csv(Path(__file__).parents[1] / 'surreal_bids/data/muse.tsv', sep='\t')
    indices = table['index'].to_numpy()
    arrays = {'index': indices, 'mate': table['mate'].fillna(table['index']).to_numpy(int)}
    for name, pattern, shape in (('ixi', 'ixi2mm_more_*', COARSE), ('hand', 'oasis35_*', FINE)):
        files = [
            file
            for file in sorted(heads.glob(f'{pattern}.npz'))
            if not any(faulty in file.name for faulty in SIDES_EXCHANGED)
        ]
        packed = [pack_head(dict(np.load(file)), shape, indices) for file in files]
        x, y, m = (np.stack(each) for each in zip(*packed))
        arrays |= {f'{name}_x': x, f'{name}_y': y, f'{name}_m': np.packbits(m, axis=-1)}
        arrays[f'{name}_name'] = np.array([file.stem.split('_')[-1] for file in files])
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    path.write_bytes(lzma.compress(buffer.getvalue(), preset=4))
    print(path, round(path.stat().st_size / 2**20, 1), 'MiB')


def pack_head(head: dict, shape: tuple[int, ...], indices: np.ndarray):
    from scipy import ndimage

    x, mask, labels = head['x'], head['m'], head['y']
    scaled = np.round(x / np.percentile(x[mask], 99.5) * FULL_SCALE).clip(0, 63)
    shown = ndimage.binary_dilation(mask, iterations=RIM_VOXELS)
    lookup = np.zeros(256, np.uint8)
    lookup[indices] = np.arange(1, len(indices) + 1)
    for label, code in HAND.items():
        lookup[label] = code
    values = np.where(mask, scaled.clip(1), scaled * shown).astype(np.uint8)
    return tuple(centre(each, mask, shape) for each in (values, lookup[labels], mask))


def centre(array: np.ndarray, mask: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Cut out a box whose centre is that of the mask's bounding box."""
    places = [np.flatnonzero(mask.any(axis=other)) for other in ((1, 2), (0, 2), (0, 1))]
    padded = np.pad(array, [(size, size) for size in shape])
    starts = [(place[0] + place[-1] + 1 - size) // 2 + size for place, size in zip(places, shape)]
    return padded[tuple(slice(start, start + size) for start, size in zip(starts, shape))]


# --------------------------------------------------------------------------------------------------
# Data on the device


@dataclass
class Heads:
    """Images (N, X, Y, Z), labels and masks, of one protocol."""

    x: Tensor
    y: Tensor
    m: Tensor
    protocol: int

    def take(self, chosen: Tensor | list[int]) -> Heads:
        return Heads(self.x[chosen], self.y[chosen], self.m[chosen], self.protocol)

    def coarse(self) -> Heads:
        """The same at half the resolution: mean intensities, most frequent labels."""
        x = torch.stack([to_coarse(each[None, None].float())[0, 0] for each in self.x])
        m = torch.stack([to_coarse(each[None, None].float())[0, 0] for each in self.m]) >= 0.5
        y = torch.stack([most_frequent(each) for each in self.y])
        return Heads(x.round().to(torch.uint8), y, m, self.protocol)


def most_frequent(labels: Tensor) -> Tensor:
    best = torch.zeros([n // 2 for n in labels.shape], device=labels.device)
    chosen = torch.zeros_like(best, dtype=torch.uint8)
    for label in labels.unique().tolist():
        share = to_coarse((labels == label)[None, None].float())[0, 0]
        chosen[share > best] = label
        best = torch.maximum(best, share)
    return chosen


def load(path: Path, device: str) -> tuple[dict[str, np.ndarray], dict[str, Heads]]:
    arrays = dict(np.load(io.BytesIO(lzma.decompress(path.read_bytes()))))
    heads = {}
    for protocol, name in enumerate(('ixi', 'hand')):
        mask = np.unpackbits(arrays[f'{name}_m'], axis=-1).astype(bool)
        tensors = (arrays[f'{name}_x'], arrays[f'{name}_y'], mask)
        heads[name] = Heads(*(torch.tensor(each, device=device) for each in tensors), protocol)
    return arrays, heads


# --------------------------------------------------------------------------------------------------
# Augmentation


class Augmenter:
    """Makes samples of heads: what age, scanners and brain masks do.

    Lengths are in voxels of 2 mm; `scale` says how many voxels that are on the grid of the images.
    """

    def __init__(self, index: np.ndarray, mate: np.ndarray, device: str, scale: int = 1) -> None:
        self.device, self.scale = device, scale
        code = {int(v): k + 1 for k, v in enumerate(index)}
        swap = torch.arange(IGNORED + 1)
        for own, other in zip(index.tolist(), mate.tolist()):
            swap[code[own]] = code[other]
        swap[RIGHT_WM], swap[LEFT_WM] = LEFT_WM, RIGHT_WM
        self.swap = swap.to(device)
        group = torch.zeros(IGNORED + 1, dtype=torch.long)
        for value, position in code.items():
            group[position] = 1 if value >= 100 else 2 if 81 <= value <= 95 else 3
        group[[code[v] for v in (4, 11, 49, 50, 51, 52)]] = 0
        group[[code[v] for v in (40, 41)]] = group[[RIGHT_WM, LEFT_WM]] = 2
        group[[code[v] for v in (38, 39, 71, 72, 73)]] = 1
        self.group = group.to(device)
        self.horns = self._members([code[v] for v in (49, 50)])
        self.ventricles = self._members([code[v] for v in (4, 49, 50, 51, 52)])
        self.cortex = self._members([code[int(v)] for v in index if v >= 100])
        self.white = (self.group == 2).float()

    def _members(self, codes: list[int]) -> Tensor:
        member = torch.zeros(IGNORED + 1, device=self.device)
        member[codes] = 1
        return member

    def uniform(self, n: int, low: float = 0.0, high: float = 1.0, share: float = 1.0) -> Tensor:
        """(B, 1, 1, 1): uniform in a share of the samples, 0 in the others."""
        value = low + (high - low) * torch.rand(n, 1, 1, 1, device=self.device)
        return value * (torch.rand(n, 1, 1, 1, device=self.device) < share)

    def smooth_noise(
        self, n: int, points: int, shape: tuple[int, ...], channels: int = 1
    ) -> Tensor:
        """(B, channels, X, Y, Z): normal at points that far apart, linear between them."""
        coarse = torch.randn(n, channels, points, points + 1, points, device=self.device)
        return F.interpolate(coarse, size=shape, mode='trilinear', align_corners=True)

    def box(self, volumes: Tensor, width: int, times: int = 2) -> Tensor:
        """Blur (B, X, Y, Z) by boxes of `width` coarse voxels (odd)."""
        size = (width * self.scale) // 2 * 2 + 1
        volumes = volumes[:, None]
        for _ in range(times):
            for axis in range(3):
                kernel = [size if a == axis else 1 for a in range(3)]
                volumes = F.avg_pool3d(volumes, kernel, 1, [k // 2 for k in kernel])
        return volumes[:, 0]

    def slope(self, potential: Tensor, height: float | None) -> Tensor:
        """Gradient (B, 3, X, Y, Z), z first; largest length 1, or `height` gives length 1."""
        x, y, z = torch.gradient(potential, dim=(1, 2, 3))
        vectors = torch.stack([z, y, x], dim=1)
        if height is not None:
            return vectors * (self.scale / height)
        length = vectors.norm(dim=1).flatten(1).amax(1).clamp_min(1e-6)
        return vectors / length[:, None, None, None, None]

    def growth(self, y: Tensor) -> Tensor:
        """Displacement (B, 3, X, Y, Z) towards fluid, in voxels: fluid grows, tissue shrinks."""
        n = len(y)
        amounts = [self.uniform(n, *each)[:, None] * self.scale for each in GROWTH]
        ventricles = self.slope(self.box(self.ventricles[y], 9), None)
        horns = self.slope(self.box(self.horns[y], 5), None)
        sulci = self.slope(self.box((y == 0).float(), 3), 0.35)
        return amounts[0] * ventricles + amounts[1] * horns + amounts[2] * sulci

    def poses(self, n: int) -> Tensor:
        """Affine maps (B, 3, 4) in the coordinates of `affine_grid`: axes are z, y, x."""
        pitch, other = torch.randn(n, device=self.device), torch.randn(n, 2, device=self.device)
        angles = torch.stack([pitch * 0.16, other[:, 0] * 0.09, other[:, 1] * 0.09], 1)
        sizes = torch.tensor(COARSE, device=self.device).flip(0).float()
        generator = torch.zeros(n, 3, 3, device=self.device)
        for axis, (i, j) in enumerate(((0, 1), (0, 2), (1, 2))):
            generator[:, i, j], generator[:, j, i] = -angles[:, axis], angles[:, axis]
        generator += torch.randn(n, 3, 3, device=self.device) * 0.03
        zoom = 0.9 + torch.rand(n, 1, 1, device=self.device) * 0.25
        matrix = torch.linalg.matrix_exp(generator) * zoom
        matrix = matrix * sizes[None, None] / sizes[None, :, None]
        shift = (torch.rand(n, 3, 1, device=self.device) - 0.5) * 0.12
        return torch.cat([matrix, shift], dim=2)

    def grid(self, y: Tensor) -> Tensor:
        """Where each voxel of a sample lies in its head: (B, X, Y, Z, 3) for `grid_sample`."""
        n, shape = len(y), tuple(y.shape[1:])
        per_voxel = torch.tensor([2 / size for size in shape[::-1]], device=self.device)
        grid = F.affine_grid(self.poses(n), [n, 1, *shape], align_corners=False)
        for points, amount in ((6, 2.2), (14, 0.8)):
            wave = self.smooth_noise(n, points, shape, 3) * self.uniform(n, 0, amount)[:, None]
            grid = grid + wave.movedim(1, -1) * per_voxel * self.scale
        shift = F.grid_sample(self.growth(y), grid, padding_mode='border', align_corners=False)
        return grid + shift.movedim(1, -1) * per_voxel

    def visible(self, y: Tensor, m: Tensor, shown: Tensor) -> Tensor:
        """Brain masks with errors (B, X, Y, Z), 1 inside."""
        n, shape = len(y), tuple(y.shape[1:])
        labelled = torch.rand(n, 1, 1, 1, device=self.device) < 0.3
        base = torch.where(labelled, (y > 0).float(), m.float())
        edge = self.box(base, 5, 1)
        noise = self.smooth_noise(n, 8, shape)[:, 0] * self.uniform(n, 0, 0.12)
        threshold = self.uniform(n, 0.12, 0.6) + noise
        usual = self.uniform(n, 0, 1, 0.35) > 0
        return torch.where(usual, edge > 0.3, edge > threshold) & shown

    def rim(self, x: Tensor, m: Tensor, hand: Tensor) -> tuple[Tensor, Tensor]:
        """Fluid around stripped brains, in half of them, and what can be seen at all."""
        n, size = len(x), 2 * (2 * self.scale) + 1
        wide = m.float()[:, None]
        for axis in range(3):
            kernel = [size if a == axis else 1 for a in range(3)]
            wide = F.max_pool3d(wide, kernel, 1, [k // 2 for k in kernel])
        filled = (wide[:, 0] > 0) & ~m & hand & (self.uniform(n, 0, 1, 0.5) > 0)
        fluid = self.uniform(n, 0.05, 0.35) * (
            1 + 0.4 * self.smooth_noise(n, 20, x.shape[1:])[:, 0]
        )
        x = torch.where(filled, fluid.clamp_min(0.02), x)
        return x, m | filled | ((wide[:, 0] > 0) & ~hand)

    def thin_cortex(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Turn outer voxels of cortex into fluid, in patches, in a share of the samples."""
        n, shape = len(x), tuple(x.shape[1:])
        for share in (0.3, 0.1):
            near = F.max_pool3d((y == 0).float()[:, None], 3, 1, 1)[:, 0]
            field = self.smooth_noise(n, 8, shape)[:, 0]
            threshold = 1.5 - self.uniform(n, 0, 2.2)
            cut = (self.cortex[y] * near > 0) & (field > threshold)
            cut &= self.uniform(n, 0, 1, share) > 0
            x = torch.where(cut, self.uniform(n, 0.1, 0.25), x)
            y = torch.where(cut, 0, y)
        return x, y

    def lesions(self, x: Tensor, y: Tensor) -> Tensor:
        """Darken spots of white matter, most near the ventricles."""
        n, shape = len(x), tuple(x.shape[1:])
        near = (self.box(self.ventricles[y], 5) * 6).clamp(0, 1)
        field = self.smooth_noise(n, 18, shape)[:, 0] + 1.2 * near
        spots = torch.sigmoid((field - self.uniform(n, 1.0, 2.4)) * 6) * self.white[y]
        return x * (1 - spots * self.uniform(n, 0.1, 0.55, 0.35))

    def contrast(self, x: Tensor, y: Tensor) -> Tensor:
        """Mix intensities with random ones of tissues and regions, in a share of the samples."""
        n = len(x)
        tissue = torch.rand(n, 4, device=self.device)
        region = torch.gather(tissue, 1, self.group.expand(n, -1))
        region = region + 0.12 * torch.randn(n, IGNORED + 1, device=self.device)
        painted = torch.gather(region, 1, y.flatten(1)).view_as(x).clamp(0.02, 1.2)
        share = self.uniform(n, 0, 0.9, 0.3)
        return x * (1 - share) + painted * share

    def scanner(self, x: Tensor) -> Tensor:
        """Gamma, bias field, sharpness or blur, and noise."""
        n, shape = len(x), tuple(x.shape[1:])
        x = x.clamp(1e-3, 2) ** torch.exp(torch.randn(n, 1, 1, 1, device=self.device) * 0.25)
        bias = self.smooth_noise(n, 4, shape)[:, 0] * self.uniform(n, 0, 0.3, 0.7)
        x = x * bias.exp()
        x = x + self.uniform(n, 0, 0.7, 0.25) * (x - self.box(x, 3, 1))
        x = self.blur(x)
        return x + torch.randn_like(x) * self.uniform(n, 0, 0.05, 0.8)

    def blur(self, x: Tensor) -> Tensor:
        """Gaussians of up to 0.8 coarse voxels along each axis, in half of the samples."""
        n, radius = len(x), 2 * self.scale
        places = torch.arange(-radius, radius + 1, device=self.device) / self.scale
        volumes = x[None]
        chosen = torch.rand(n, 1, device=self.device) < 0.5
        for axis in range(3):
            width = torch.rand(n, 1, device=self.device) * 0.8 * chosen + 0.05
            kernel = torch.exp(-(places**2) / (2 * width**2))
            kernel = kernel / kernel.sum(1, keepdim=True)
            form = [1, 1, 1]
            form[axis] = len(places)
            padding = [radius if a == axis else 0 for a in range(3)]
            volumes = F.conv3d(volumes, kernel.view(n, 1, *form), padding=padding, groups=n)
        return volumes[0]

    @torch.no_grad()
    def __call__(self, x: Tensor, y: Tensor, m: Tensor, hand: Tensor):
        """Make samples.

        Parameters
        ----------
        x, y, m
            Stored intensities, labels and masks (B, X, Y, Z).
        hand
            Which heads are stripped and labelled by hand, (B,).

        Returns
        -------
        Intensities, labels and what is visible, (B, X, Y, Z).
        """
        flip = torch.rand(len(x), 1, 1, 1, device=self.device) < 0.5
        x, y = x.float() / FULL_SCALE, y.long()
        x, m = torch.where(flip, x.flip(1), x), torch.where(flip, m.flip(1), m)
        y = torch.where(flip, self.swap[y.flip(1)], y)
        x, shown = self.rim(x, m, hand.view(-1, 1, 1, 1))
        visible = self.visible(y, m, shown)
        x, y = self.thin_cortex(x, y)
        x = self.lesions(x, y)
        grid = self.grid(y)
        both = F.grid_sample(torch.stack([x, visible.float()], 1), grid, align_corners=False)
        labels = y.float()[:, None]
        y = F.grid_sample(labels, grid, mode='nearest', align_corners=False)[:, 0].long()
        x, visible = both[:, 0], both[:, 1] > 0.5
        return self.scanner(self.contrast(x, y)).clamp_min(0), y, visible


GROWTH = ((-0.4, 3.5, 0.5), (0.0, 1.6, 0.4), (0.0, 0.9, 0.4))
"""Least and most, in coarse voxels, and share of the samples: ventricles, temporal horns, sulci."""

# --------------------------------------------------------------------------------------------------
# Loss


class Loss:
    """Cross-entropy and Dice at some of the voxels, with labels that stand for several classes."""

    def __init__(self, index: np.ndarray, device: str) -> None:
        code = {int(v): k + 1 for k, v in enumerate(index)}
        sides = [[code[v] for v in (*range(first, 95, 2), 95)] for first in (81, 82)]
        self.unions = [torch.tensor(side, device=device) for side in sides]
        known = torch.ones(2, IGNORED, device=device)
        known[0, CLASSES:] = 0
        known[1, [code[v] for v in range(81, 96)]] = 0
        known[:, 0] = 0
        self.known = known

    def __call__(self, logits: Tensor, y: Tensor, weight: Tensor, protocol: Tensor) -> Tensor:
        """Of logits (B, K, C), labels (B, K), weights (B, K) of voxels, and protocols (B,)."""
        logits = logits.float()
        total = logits.logsumexp(-1)
        unions = [logits[..., each].logsumexp(-1, keepdim=True) for each in self.unions]
        log_p = torch.cat([logits, *unions], -1) - total[..., None]
        weight = weight * (y != IGNORED)
        own = log_p.gather(-1, y.clamp_max(LEFT_WM)[..., None])[..., 0]
        entropy = -(own * weight).sum() / weight.sum().clamp_min(1)
        p = log_p.exp() * weight[..., None]
        zeros = torch.zeros(len(y), IGNORED, device=y.device)
        target = y.clamp_max(LEFT_WM)
        inside = zeros.scatter_add(1, target, own.exp() * weight)
        count = zeros.scatter_add(1, target, weight)
        known = self.known[protocol]
        inside, size = (inside * known).sum(0), ((count + p.sum(1)) * known).sum(0)
        present = (known.amax(0) > 0).float()
        dice = ((2 * inside + 1) / (size + 1) * present).sum() / present.sum()
        return entropy + 1 - dice


def choose_voxels(visible: Tensor) -> tuple[Tensor, Tensor]:
    """Some of the visible voxels (B, K), at random, and which of them are visible indeed."""
    flat = visible.flatten(1)
    score = torch.rand(flat.shape, device=flat.device) + ~flat
    chosen = score.topk(min(SAMPLED, flat.shape[1]), dim=1, largest=False, sorted=False).indices
    return chosen, flat.gather(1, chosen).float()


# --------------------------------------------------------------------------------------------------
# Training


class Average:
    """Moving average of the weights."""

    def __init__(self, network: RegionNet) -> None:
        self.weights = [p.detach().clone() for p in network.parameters()]
        self.steps = 0

    def update(self, network: RegionNet) -> None:
        self.steps += 1
        keep = min(0.998, self.steps / (self.steps + 20))
        torch._foreach_lerp_(self.weights, [p.detach() for p in network.parameters()], 1 - keep)

    def copy_to(self, network: RegionNet) -> None:
        for own, average in zip(network.parameters(), self.weights):
            own.data.copy_(average)


class Trainer:
    """A network that learns from pools of heads."""

    def __init__(self, arrays: dict[str, np.ndarray], device: str) -> None:
        self.device = device
        self.random = np.random.default_rng(16)
        self.network = RegionNet().to(device, memory_format=torch.channels_last_3d)
        self.features = torch.compile(self.network, dynamic=False)
        self.loss = Loss(arrays['index'], device)
        self.augment = Augmenter(arrays['index'], arrays['mate'], device)
        self.augment_fine = Augmenter(arrays['index'], arrays['mate'], device, scale=2)

    def batch(self, pools: list[Heads], n: int) -> tuple[Tensor, ...]:
        """Heads drawn from pools: images, labels, masks, protocols."""
        share = HAND_SHARE if len(pools) > 1 else 0.0
        picks = [pools[int(self.random.random() < share)] for _ in range(n)]
        places = [int(self.random.integers(len(pool.x))) for pool in picks]
        x, y, m = (
            torch.stack([getattr(pool, part)[i] for pool, i in zip(picks, places)])
            for part in 'xym'
        )
        return x, y, m, torch.tensor([pool.protocol for pool in picks], device=self.device)

    def warm_up(self, pools: list[Heads]) -> None:
        """Compile before the time counts."""
        began = time.time()
        self.coarse_step(pools).backward()
        self.network.zero_grad(set_to_none=True)
        print('ready after', round(time.time() - began), 's', flush=True)

    def coarse_step(self, pools: list[Heads]) -> Tensor:
        x, y, m, protocol = self.batch(pools, BATCH)
        x, y, visible = self.augment(x, y, m, protocol == 1)
        image = standardise(x, visible)[:, None]
        with torch.autocast(self.device, torch.bfloat16):
            features = self.features(image.contiguous(memory_format=torch.channels_last_3d))
        chosen, weight = choose_voxels(visible)
        flat = features.movedim(1, -1).flatten(1, 3).float()
        flat = flat.gather(1, chosen[..., None].expand(-1, -1, flat.shape[-1]))
        logits = torch.bmm(flat, self.network.head_weight[protocol])
        logits = logits + self.network.head_bias[protocol][:, None]
        return self.loss(logits, y.flatten(1).gather(1, chosen), weight, protocol)

    def fine_step(self, pools: list[Heads], side: int = 96) -> Tensor:
        """Loss of the part at 1 mm, on a cube of one head; the rest stays as it is."""
        x, y, m, protocol = self.batch(pools[-1:], 1)
        x, y, visible = self.augment_fine(x, y, m, protocol == 1)
        fine_image = standardise(x, visible)[:, None]
        pooled = to_coarse(torch.stack([x * visible, visible.float()], 1))
        image = standardise(pooled[:, 0], pooled[:, 1] >= 0.5)[:, None]
        with torch.autocast(self.device, torch.bfloat16):
            with torch.no_grad():
                features = self.network(image.contiguous(memory_format=torch.channels_last_3d))
            starts = [int(self.random.integers(8, (n - side) // 2 - 7)) for n in FINE]
            near = tuple(slice(start, start + side // 2) for start in starts)
            fine = tuple(slice(2 * start, 2 * start + side) for start in starts)
            parts = features[:, :, *near], image[:, :, *near], fine_image[:, :, *fine]
            refined = self.network.refine(*parts).movedim(1, -1).flatten(1, 3)
        chosen, weight = choose_voxels(visible[:, *fine])
        head, offset = self.network.head(int(pools[-1].protocol), fine=True)
        logits = refined[:, chosen[0]].float() @ head + offset
        labels = y[:, *fine].flatten(1).gather(1, chosen)
        return self.loss(logits, labels, weight, protocol)

    def fit(self, step, parameters: list[Tensor], seconds: float, rate: float, tell=None) -> None:
        """Descend for some seconds; the average of the weights is what remains."""
        if seconds <= 0:
            return
        optimiser = torch.optim.AdamW(
            parameters, rate, weight_decay=1e-4, fused=self.device == 'cuda'
        )
        average, start, count = Average(self.network), time.time(), 0
        while (done := (time.time() - start) / seconds) < 1:
            for each in optimiser.param_groups:
                each['lr'] = rate * min(1, (count + 1) / 100) * (1 - done) ** 0.9 + 1e-7
            loss = step()
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimiser.step()
            average.update(self.network)
            count += 1
            if tell and count % 200 == 0:
                tell(count, time.time() - start, loss.item())
        average.copy_to(self.network)
        print('steps', count, 'seconds', round(time.time() - start), flush=True)

    def save(self, path: Path) -> None:
        weights = {name: value.half().cpu() for name, value in self.network.state_dict().items()}
        torch.save(weights, path)


def export(data: Path, weights: Path, path: Path) -> None:
    """Write weights as the package takes them."""
    from safetensors.torch import save_file

    arrays = np.load(io.BytesIO(lzma.decompress(data.read_bytes())))
    metadata = {
        'architecture': json.dumps(asdict(Architecture())),
        'indices': json.dumps(arrays['index'].tolist()),
        'protocol': '0',
        'licence': 'research use only, non-commercial; see LICENSE beside this file',
    }
    stored = torch.load(weights, map_location='cpu')
    save_file({name: value.contiguous() for name, value in stored.items()}, path, metadata)


def folds(names: np.ndarray, people: dict[str, tuple[float, str]]) -> np.ndarray:
    """Fold of each hand-labelled head: people in the order of their ages, in turns."""
    persons = sorted({people[name] for name in names})
    return np.array([persons.index(people[name]) % 2 for name in names])


def run_job(trainer: Trainer, job: str, sets: dict[str, Heads], fold: np.ndarray, out: Path, **how):
    """Train one network and save it; `how` says for how long, and from what start."""
    name, which, *shares = job.split(':')
    seconds, fine_seconds = (float(share) * how['left'] for share in shares)
    trainer.network.load_state_dict(how['first'])
    chosen = [i for i in range(len(fold)) if which in ('all', str(fold[i]))]
    pools = [sets['ixi']] + ([sets['hand'].take(chosen)] if chosen else [])

    def tell(count: int, passed: float, loss: float) -> None:
        print(f'{name} {count} {passed:.0f} s loss {loss:.3f}', flush=True)
        if count % 2000 == 0:
            trainer.save(out / f'{name}.part.pt')

    parameters = [p for k, p in trainer.network.named_parameters() if 'fine' not in k]
    trainer.fit(lambda: trainer.coarse_step(pools), parameters, seconds, how['rate'], tell)
    trainer.save(out / f'{name}.pt')
    if chosen and fine_seconds:
        fine = [sets['fine'].take(chosen)]
        details = [p for k, p in trainer.network.named_parameters() if 'fine' in k]
        trainer.fit(lambda: trainer.fine_step(fine), details, fine_seconds, FINE_RATE, tell)
        trainer.save(out / f'{name}.pt')
    (out / f'{name}.part.pt').unlink(missing_ok=True)


def train(path: Path, out: Path, jobs: list[str], start: Path | None, limit: float) -> None:
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision('high')
    torch.manual_seed(16)
    began = time.time()
    arrays, heads = load(path, device)
    table = (line.split('\t') for line in (path.parent / 'people.tsv').read_text().splitlines()[1:])
    fold = folds(arrays['hand_name'], {row[0]: (float(row[3]), row[4]) for row in table})
    followed = list(range(0, len(heads['ixi'].x), VALIDATION_STEP))
    taught = [i for i in range(len(heads['ixi'].x)) if i not in followed]
    sets = {
        'ixi': heads['ixi'].take(taught),
        'hand': heads['hand'].coarse(),
        'fine': heads['hand'],
    }
    print('loaded', round(time.time() - began), 's; folds', np.bincount(fold), flush=True)
    trainer = Trainer(arrays, device)
    first = {k: v.clone() for k, v in trainer.network.state_dict().items()}
    if start is not None:
        first = {k: v.float() for k, v in torch.load(start, map_location=device).items()}
        for part in ('head_weight', 'head_bias'):
            first[part][1] = first[part][0]
    trainer.warm_up([sets['ixi'], sets['hand']])
    left = limit - (time.time() - began) - RESERVE * len(jobs)
    rate = RATE if start is None else RATE / 2
    for job in jobs:
        run_job(trainer, job, sets, fold, out, left=left, first=first, rate=rate)
    print('total', round(time.time() - began), 's', flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('action', choices=('prepare', 'pack', 'train', 'export'))
    parser.add_argument('paths', type=Path, nargs='+')
    parser.add_argument('--job', action='append', help='to train')
    parser.add_argument('--start', type=Path, help='weights to start from')
    parser.add_argument('--limit', type=float, default=570, help='seconds in all')
    options = parser.parse_args()
    if options.action == 'train':
        options.paths[1].mkdir(parents=True, exist_ok=True)
        train(*options.paths, options.job, options.start, options.limit)
        return
    if options.action == 'prepare':
        options.paths[1].mkdir(parents=True, exist_ok=True)
    {'prepare': prepare, 'pack': pack, 'export': export}[options.action](*options.paths)


if __name__ == '__main__':
    main()
