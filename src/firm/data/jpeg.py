"""What a JPEG file says exactly: the whole numbers that its coefficients were rounded to, and their tables.

Pillow gives pixels only, clamped and rounded, from which the numbers of strong compression do not follow. So the
entropy code is read here: Huffman, sequential and progressive, as in ITU-T T.81, Annexes F and G.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from firm.data.opening import MAX_MEGAPIXELS, PictureError, check_size, header, require_contents

ZIGZAG = (0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14,
          21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53,
          60, 61, 54, 47, 55, 62, 63)  # fmt: skip
ORIENTATION = 274  # a tag of EXIF
SIZE_FIRST = {0xC0, 0xC1, 0xC2}  # frames that are read: baseline, extended, progressive
OTHER_FRAMES = {0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF}


@dataclass
class Component:
    """One of the planes of a JPEG: its sampling, its table, and its coefficients in whole blocks."""

    name: int
    across: int  # samples for each of the smallest unit
    down: int
    table: int
    quantization: NDArray[np.int64] = field(default_factory=lambda: np.ones((8, 8), np.int64))
    numbers: NDArray[np.int32] = field(default_factory=lambda: np.zeros((0, 0, 64), np.int32))  # (rows, columns, 64)
    rows: int = 0  # blocks that hold pixels of the picture; scans of one component have only these
    columns: int = 0


@dataclass(frozen=True)
class Coefficients:
    """The contents of a JPEG: one or three `planes` of a picture of (height, width), as it is stored."""

    height: int
    width: int
    planes: Sequence[Component]
    orientation: int = 1  # of the upright picture, as its EXIF data say

    @property
    def sampling(self) -> tuple[int, int]:
        """Return how many pixels, across and down, share a sample of color; (1, 1) of gray pictures."""
        first = self.planes[0]
        return first.across // self.planes[-1].across, first.down // self.planes[-1].down


def read_coefficients(path: str | Path, max_megapixels: float = MAX_MEGAPIXELS) -> Coefficients:
    """Read the numbers and tables of a JPEG file.

    Parameters
    ----------
    path
        The file.
    max_megapixels
        A larger picture is refused from its header.

    Returns
    -------
    Its planes: Y, or Y, Cb and Cr. `PictureError` says why a file cannot be read, such as one that is no JPEG.
    """
    path = Path(path)
    require_contents(path, PictureError)
    data = path.read_bytes()
    if data[:2] != b"\xff\xd8":
        raise PictureError(f"{path}: not a JPEG file; its compression cannot be undone exactly")
    with header(path) as picture:
        orientation = picture.getexif().get(ORIENTATION, 1)
    try:
        found = _Reader(path, data, max_megapixels).read()
    except (IndexError, KeyError, ValueError, ZeroDivisionError) as error:
        if isinstance(error, PictureError):
            raise
        raise PictureError(f"{path}: damaged or cut short ({type(error).__name__}: {error})") from error
    return replace(found, orientation=orientation if orientation in range(1, 9) else 1)


class _Reader:
    """Reads one file, segment by segment."""

    def __init__(self, path: Path, data: bytes, max_megapixels: float) -> None:
        self.path, self.data, self.max_megapixels = path, data, max_megapixels
        self.tables: dict[int, NDArray[np.int64]] = {}
        self.codes: dict[int, list[tuple[int, int]]] = {}  # 16 * class + number: (length, symbol) for 16 bits ahead
        self.components: list[Component] = []
        self.height = self.width = self.restart = 0
        self.progressive, self.adobe = False, -1

    def read(self) -> Coefficients:
        at = 2
        while True:
            while self.data[at] != 0xFF or self.data[at + 1] in (0x00, 0xFF):
                at += 1  # what lies between segments means nothing
            marker = self.data[at + 1]
            if marker == 0xD9:
                break
            if 0xD0 <= marker <= 0xD8 or marker == 0x01:
                at += 2
                continue
            length = int.from_bytes(self.data[at + 2 : at + 4], "big")
            body, at = self.data[at + 4 : at + 2 + length], at + 2 + length
            if marker == 0xDB:
                self._quantization(body)
            elif marker == 0xC4:
                self._huffman(body)
            elif marker in SIZE_FIRST:
                self._frame(body, marker == 0xC2)
            elif marker in OTHER_FRAMES:
                raise PictureError(f"{self.path}: a JPEG of a rare kind (lossless or arithmetic code): it is not read")
            elif marker == 0xDD:
                self.restart = int.from_bytes(body[:2], "big")
            elif marker == 0xEE and body[:5] == b"Adobe":
                self.adobe = body[11]
            elif marker == 0xDA:
                at = self._scan(body, at)
            if at >= len(self.data) - 1:
                break  # without an end, as some programs leave it
        return self._checked()

    def _checked(self) -> Coefficients:
        planes = self.components
        names = [c.name for c in planes]
        why = ""
        if not planes:
            why = "no picture in it"
        elif len(planes) not in (1, 3):
            why = f"{len(planes)} channels, as for printing"
        elif len(planes) == 3 and (self.adobe == 0 or names == [82, 71, 66]):
            why = "its channels are red, green and blue, not brightness and color"
        elif any((c.across, c.down) != (planes[-1].across, planes[-1].down) for c in planes[1:]) or any(
            planes[0].across % c.across or planes[0].down % c.down for c in planes
        ):
            why = "a sampling of colors of a rare kind"
        if why:
            raise PictureError(f"{self.path}: {why}: such JPEGs cannot be restored by their coefficients")
        return Coefficients(self.height, self.width, planes)

    def _quantization(self, body: bytes) -> None:
        at = 0
        while at < len(body):
            wide, number = body[at] >> 4, body[at] & 15
            step = 2 if wide else 1
            values = [int.from_bytes(body[at + 1 + step * i : at + 1 + step * (i + 1)], "big") for i in range(64)]
            table = np.ones(64, np.int64)
            table[list(ZIGZAG)] = values
            self.tables[number] = table.reshape(8, 8)
            at += 1 + 64 * step

    def _huffman(self, body: bytes) -> None:
        at = 0
        while at < len(body):
            counts = body[at + 1 : at + 17]
            symbols = body[at + 17 : at + 17 + sum(counts)]
            ahead: list[tuple[int, int]] = []
            k = 0
            for length, count in enumerate(counts, start=1):
                for symbol in symbols[k : k + count]:
                    ahead += [(length, symbol)] * (1 << (16 - length))
                k += count
            self.codes[body[at]] = ahead + [(0, 0)] * (65536 - len(ahead))
            at += 17 + len(symbols)

    def _frame(self, body: bytes, progressive: bool) -> None:
        bits, self.height, self.width = body[0], int.from_bytes(body[1:3], "big"), int.from_bytes(body[3:5], "big")
        if self.components or bits != 8 or not (self.height and self.width):
            raise PictureError(f"{self.path}: a JPEG of a rare kind ({bits} bits, several frames or no height)")
        check_size(self.path, self.width, self.height, self.max_megapixels)
        self.progressive = progressive
        self.components = [
            Component(body[6 + 3 * i], body[7 + 3 * i] >> 4, body[7 + 3 * i] & 15, body[8 + 3 * i])
            for i in range(body[5])
        ]
        if len(self.components) == 1:
            self.components[0].across = self.components[0].down = 1  # of a single plane they mean nothing
        across, down = (max(getattr(c, side) for c in self.components) for side in ("across", "down"))
        self.units = -(-self.height // (8 * down)), -(-self.width // (8 * across))
        for c in self.components:
            c.rows, c.columns = -(-self.height * c.down // (8 * down)), -(-self.width * c.across // (8 * across))
            c.numbers = np.zeros((self.units[0] * c.down, self.units[1] * c.across, 64), np.int32)

    def _scan(self, body: bytes, at: int) -> int:
        """Read the entropy code of one scan, and return where it ends."""
        chosen = []
        for i in range(body[0]):
            component = next(c for c in self.components if c.name == body[1 + 2 * i])
            if component.table in self.tables:
                component.quantization = self.tables[component.table]
            chosen.append((component, body[2 + 2 * i] >> 4, 16 + (body[2 + 2 * i] & 15)))
        first, last, approximation = body[1 + 2 * body[0] : 4 + 2 * body[0]]
        bits = _Bits(self.data, at)
        block = _Block(bits, self.codes, first, last, approximation >> 4, approximation & 15, self.progressive)
        before = dict.fromkeys([c.name for c in self.components], 0)
        for done, units in enumerate(self._places(chosen)):
            if self.restart and done and done % self.restart == 0:
                bits.restart()
                before, block.run = dict.fromkeys(before, 0), 0
            for component, dc, ac, row, column in units:
                numbers = component.numbers[row, column]
                before[component.name] = block.read(numbers, dc, ac, before[component.name])
        return bits.end()

    def _places(self, chosen: list[tuple[Component, int, int]]) -> Iterator[list[tuple[Component, int, int, int, int]]]:
        """Yield the blocks of every unit of a scan: those of all components in turns, or of one alone."""
        if len(chosen) == 1:
            component, dc, ac = chosen[0]
            for row in range(component.rows):
                for column in range(component.columns):
                    yield [(component, dc, ac, row, column)]
            return
        for top in range(self.units[0]):
            for left in range(self.units[1]):
                yield [
                    (c, dc, ac, top * c.down + v, left * c.across + h)
                    for c, dc, ac in chosen for v in range(c.down) for h in range(c.across)
                ]  # fmt: skip


class _Bits:
    """The bits of an entropy code, in which a byte 255 is followed by a 0 that means nothing."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at
        self.held = self.count = 0

    def _fill(self) -> None:
        data, at = self.data, self.at
        while self.count <= 48:
            byte = data[at] if at < len(data) else 0xFF
            if byte != 0xFF:
                at += 1
            elif at + 1 < len(data) and data[at + 1] == 0:
                at += 2
            else:
                byte = 0  # a marker: the code ends here, and decoders read zeros
            self.held = ((self.held << 8) | byte) & 0xFFFFFFFFFFFFFFFF
            self.count += 8
        self.at = at

    def symbol(self, code: list[tuple[int, int]]) -> int:
        if self.count < 16:
            self._fill()
        length, symbol = code[(self.held >> (self.count - 16)) & 0xFFFF]
        if not length:
            raise ValueError("a code that is not in the table")
        self.count -= length
        return symbol

    def take(self, n: int) -> int:
        if n == 0:
            return 0
        if self.count < n:
            self._fill()
        self.count -= n
        return (self.held >> self.count) & ((1 << n) - 1)

    def signed(self, n: int) -> int:
        value = self.take(n)
        return value if n == 0 or value >> (n - 1) else value - (1 << n) + 1

    def restart(self) -> None:
        """Go on after the next marker."""
        self.held = self.count = 0
        self.at = self.end() + 2

    def end(self) -> int:
        """Return where the next marker is."""
        at = self.data.find(b"\xff", self.at)
        while at >= 0 and at + 1 < len(self.data) and self.data[at + 1] in (0x00, 0xFF):
            at = self.data.find(b"\xff", at + 1)
        return at if at >= 0 else len(self.data)


class _Block:
    """Reads the coefficients of blocks as one kind of scan has them (Figures F.13, G.3 and G.7 of the standard)."""

    def __init__(
        self, bits: _Bits, codes: dict[int, list[tuple[int, int]]], first: int, last: int, high: int, low: int,
        progressive: bool,
    ) -> None:  # fmt: skip
        self.bits, self.codes, self.first, self.last, self.low = bits, codes, first, last, low
        self.refines, self.progressive = progressive and high > 0, progressive
        self.run = 0  # blocks that follow without further coefficients

    def read(self, numbers: NDArray[np.int32], dc: int, ac: int, before: int) -> int:
        """Read one block into `numbers` (64,), and return its first coefficient for the next one."""
        bits = self.bits
        if self.first == 0:
            if self.refines:
                numbers[0] |= bits.take(1) << self.low
            else:
                before += bits.signed(bits.symbol(self.codes[dc]))
                numbers[0] = before << self.low
        if self.last > 0:
            if self.refines:
                self._refine(numbers, self.codes[ac])
            else:
                self._first(numbers, self.codes[ac])
        return before

    def _first(self, numbers: NDArray[np.int32], code: list[tuple[int, int]]) -> None:
        if self.run:
            self.run -= 1
            return
        bits, k = self.bits, max(self.first, 1)
        while k <= self.last:
            symbol = bits.symbol(code)
            zeros, size = symbol >> 4, symbol & 15
            if size:
                k += zeros
                numbers[ZIGZAG[k]] = bits.signed(size) << self.low
                k += 1
            elif zeros == 15:
                k += 16
            else:
                if self.progressive:
                    self.run = (1 << zeros) + bits.take(zeros) - 1
                return

    def _refine(self, numbers: NDArray[np.int32], code: list[tuple[int, int]]) -> None:
        bits, k, bit = self.bits, self.first, 1 << self.low
        if not self.run:
            while k <= self.last:
                symbol = bits.symbol(code)
                zeros, size = symbol >> 4, symbol & 15
                value = 0
                if size:
                    value = bit if bits.take(1) else -bit
                elif zeros < 15:
                    self.run = (1 << zeros) + bits.take(zeros)
                    break
                while k <= self.last:  # over coefficients that are known, and as many zeros
                    place = ZIGZAG[k]
                    if numbers[place]:
                        self._mend(numbers, place, bit)
                    elif zeros:
                        zeros -= 1
                    else:
                        numbers[place] = value
                        k += 1
                        break
                    k += 1
        if self.run:
            for place in ZIGZAG[k : self.last + 1]:
                if numbers[place]:
                    self._mend(numbers, place, bit)
            self.run -= 1

    def _mend(self, numbers: NDArray[np.int32], place: int, bit: int) -> None:
        if self.bits.take(1) and not abs(int(numbers[place])) & bit:
            numbers[place] += bit if numbers[place] > 0 else -bit
