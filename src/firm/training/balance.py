"""Weights that follow the error: every part of the path counts equally (`objective: balanced`)."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn

from firm._util.distributed import joined

LIMIT = 100.0  # times the mean: far above what tasks of one mixture differ by


class TimeBalance(nn.Module):
    """Weights that make every part of the path count equally: 1 / (running mean of the error in its time bin).

    Used in place of omega(t) in `weighted_loss` ("balanced"). The mean should remember many batches: one over few
    samples follows the errors it divides, and large errors lose their weight (a variant that forgot quickly at first,
    and started anew with the solver, ended 2.5 dB lower after 300 steps at 16x16). The means are a buffer: saved,
    restored and moved with the training state.

    A sample counts for at most LIMIT times its bin's mean. Iterations that diverge can have errors of 1e20, for one
    batch; remembered, they would take the weight from their times for thousands of steps.
    """

    error: Tensor

    def __init__(self, bins: int = 32, decay: float = 0.99) -> None:
        super().__init__()
        self.bins, self.decay = bins, decay
        self.register_buffer("error", torch.zeros(bins))

    def forward(self, t: Tensor, error: Tensor) -> Tensor:
        """Weights (B,) for samples at times `t` with errors `error`, both (B,); in training mode, learn from them."""
        index = (t * self.bins).long().clamp(0, self.bins - 1)
        if self.training:
            error, known = error.detach().to(self.error.dtype), self.error[index]
            finite = error.isfinite()  # a broken sample must not spoil the means for good
            error = torch.where(known > 0, error.clamp(max=LIMIT * known), error)
            member = (index[:, None] == torch.arange(self.bins, device=t.device)) & finite[:, None]  # (B, bins)
            member = member.to(self.error.dtype)
            sums = torch.stack([member.sum(0), torch.where(finite, error, 0) @ member])
            if joined():
                dist.all_reduce(sums)  # every rank learns from the whole batch
            count, mean = sums[0], sums[1] / sums[0].clamp(min=1)
            updated = torch.where(self.error > 0, self.error * self.decay + mean * (1 - self.decay), mean)
            self.error.copy_(torch.where(count > 0, updated, self.error))
        return 1 / self.error[index].clamp(min=1e-12)

    def mean_error(self) -> float:
        """The running error, averaged over the bins seen so far: what falls while the balanced loss stays near 1."""
        return float(self.error.sum() / (self.error > 0).sum().clamp(min=1))
