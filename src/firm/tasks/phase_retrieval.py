"""Phase retrieval: a detector counts light, without its phase."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from firm.operators import Coded, LinearOperator, Magnitude, Oversampled, random_phases
from firm.tasks.base import BaseTask, Rows
from firm.tasks.parameter import Parameter

PLATES_SEED = 42  # of the phase plates, which all images share


class PhaseRetrieval(BaseTask):
    """Magnitudes of the Fourier transform, with zeros around the image, or behind random phase plates.

    Of the first, an image turned by 180 degrees has the same, in each channel by itself: `aligned` turns it back.
    """

    name = "phase-retrieval"
    sigma = Parameter(float, "standard deviation of the magnitudes, for pixels in [-1, 1]", 0.01, low=0, drawn="log")
    optics = Parameter(
        str, "oversampled: zeros around the image; coded: random phase plates in front of it", "oversampled",
        choices=("oversampled", "coded"),
    )  # fmt: skip
    oversampling = Parameter(int, "size of the transform by that of the image", 2, low=1, high=8)
    plates = Parameter(int, "number of phase plates", 4, low=1, high=64)

    def operator(self, seed: int = 42, indices: tuple[int, ...] = (0,)) -> Magnitude:
        """Return the operator, which is that of all images."""
        if self.optics == "oversampled":
            return Magnitude(Oversampled(self.oversampling))
        return Magnitude(Coded(random_phases(self.shape, self.plates, Generator().manual_seed(PLATES_SEED))))

    def draw_operator(self, rows: Rows, device: torch.device) -> LinearOperator:
        """Return the same: nothing is drawn."""
        return self.constant(device)

    def aligned(self, x: Tensor, truth: Tensor) -> Tensor:
        """Shift, and turn by 180 degrees, every channel of every image (B, C, H, W) as brings it nearest to `truth`."""
        spectrum = torch.fft.rfft2(truth)
        best, least = x, torch.full(x.shape[:2], torch.inf, device=x.device, dtype=x.dtype)
        for turned in (x, x.flip(-2, -1)):
            match = torch.fft.irfft2(spectrum * torch.fft.rfft2(turned).conj(), s=(x.shape[-2], x.shape[-1]))
            place = match.flatten(2).argmax(2)
            rows, columns = place // x.shape[-1], place % x.shape[-1]
            H, W = (torch.arange(n, device=x.device) for n in x.shape[-2:])
            down, across = (H - rows[..., None]) % x.shape[-2], (W - columns[..., None]) % x.shape[-1]
            moved = turned.gather(2, down[..., None].expand_as(x)).gather(3, across[..., None, :].expand_as(x))
            error = (moved - truth).square().mean((2, 3))
            better = error < least
            best, least = torch.where(better[..., None, None], moved, best), torch.where(better, error, least)
        return best
