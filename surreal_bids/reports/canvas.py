"""SVG pictures that are written directly, since matplotlib would take most of a report's time."""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from PIL import Image

NARROW = 400
"""Points: as wide as a phone shows with letters that can be read."""

INK = '#1b2430'

MOST_IN_PALETTE = 256

COMPRESSION = 3
"""Of PNG files; more takes twice as long for 5 %."""


class Canvas:
    """An SVG picture, in points from the upper left corner.

    Parameters
    ----------
    height, width
        Its size.
    ink, paper
        Colours of text and lines, and of the background.
    """

    def __init__(
        self, height: float, width: float = NARROW, *, ink: str = INK, paper: str = 'white'
    ) -> None:
        self._height, self._width, self._ink, self._paper = height, width, ink, paper
        self._elements: list[Markup] = []

    def _add(self, element: str, *values: object) -> None:
        self._elements.append(Markup(element).format(*values))  # noqa: S704

    def box(self, left: float, top: float, width: float, height: float, fill: str) -> None:
        """Draw a filled box; a negative width goes to the left."""
        left, width = min(left, left + width), abs(width)
        self._add(
            '<rect x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}" fill="{}"/>',
            *(left, top, width, height, fill),
        )

    def line(self, *ends: float, colour: str = '', width: float = 0.8) -> None:
        """Draw a line through x, y, x, y, ..."""
        self._add(
            '<polyline points="{}" fill="none" stroke="{}" stroke-width="{}"/>',
            *(_listed(ends), colour or self._ink, width),
        )

    def area(self, corners: NDArray, fill: str) -> None:
        """Draw a filled polygon, half transparent; corners are (N, 2)."""
        points = _listed(corners.ravel())
        self._add('<polygon points="{}" fill="{}" fill-opacity="0.35"/>', points, fill)

    def diamond(self, x: float, y: float) -> None:
        """Draw a white diamond."""
        points = _listed((x, y - 6, x + 6, y, x, y + 6, x - 6, y))
        self._add(
            '<polygon points="{}" fill="white" stroke="{}" stroke-width="2"/>', points, self._ink
        )

    def image(self, left: float, top: float, pixels: NDArray[np.uint8]) -> None:
        """Draw colours (rows from the top, columns, 3), a point each."""
        height, width = pixels.shape[:2]
        self._add(
            '<image x="{}" y="{}" width="{}" height="{}" xlink:href="data:image/png;base64,{}"/>',
            *(left, top, width, height, b64encode(png(pixels)).decode('ascii')),
        )

    def words(
        self,
        x: float,
        y: float,
        text: str,
        anchor: str = 'start',
        *,
        size: int = 9,
        colour: str = '',
    ) -> None:
        """Write a line of text whose middle is at this height."""
        self._add(
            '<text x="{:.2f}" y="{:.2f}" text-anchor="{}" font-size="{}px" fill="{}">{}</text>',
            *(x, y + 0.35 * size, anchor, size, colour or self._ink, text),
        )

    def scale(self, y: float, low: float, high: float, left: float, right: float) -> None:
        """Draw a horizontal axis with some round numbers."""
        self.line(left, y, right, y)
        for tick in MaxNLocator(5, steps=[1, 2, 5, 10]).tick_values(low, high):
            if low <= tick <= high:
                x = left + (tick - low) / (high - low) * (right - left)
                self.line(x, y, x, y + 3)
                self.words(x, y + 11, f'{tick:.3g}', 'middle')

    def __str__(self) -> str:
        head = (
            '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
            f'width="{self._width:.0f}pt" height="{self._height:.0f}pt" '
            f'viewBox="0 0 {self._width:.0f} {self._height:.0f}" font-family="sans-serif">'
        )
        paper = f'<rect width="100%" height="100%" fill="{self._paper}"/>'
        return '\n'.join((head, paper, *self._elements, '</svg>\n'))


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Encode colours (rows, columns, 3); up to 256 of them as a palette, which is shorter."""
    red, green, blue = np.moveaxis(pixels.astype(np.int32), -1, 0)
    code = (red * 256 + green) * 256 + blue
    used = np.unique(code)
    if len(used) > MOST_IN_PALETTE:
        image = Image.fromarray(pixels)
    else:
        number = np.zeros(256**3, dtype=np.uint8)
        number[used] = np.arange(len(used))
        image = Image.fromarray(number[code], 'P')
        colours = used[:, None] // (256**2, 256, 1) % 256
        image.putpalette(colours.astype(np.uint8).tobytes())
    stream = io.BytesIO()
    image.save(stream, 'png', compress_level=COMPRESSION)
    return stream.getvalue()


def _listed(ends: Sequence[float] | NDArray) -> str:
    """Coordinates of points, to a hundredth."""
    return ' '.join(f'{end:g}' for end in np.asarray(ends).round(2).tolist())
