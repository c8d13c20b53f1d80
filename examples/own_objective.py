"""An objective of one's own: the engine of `firm train` learns a Gaussian denoiser D(x + sigma n, sigma)."""

import torch

from firm.metrics import psnr
from firm.networks import PriorUNet
from firm.training.objectives import Objective


class Denoiser(Objective):
    """E |D(x + sigma n, sigma) - x|^2 with sigma uniform in [t_min, t_max] of the configuration."""

    kind = "denoiser"  # what the saved file says it holds
    measures = False  # it needs no tasks: `task` and `mixture` are not used
    network_class = PriorUNet  # built from `network`; sees one image and one number, net(x, sigma)

    def loss(self, net, batch):
        """The error of every sample and its time, both (B,); here the time is the noise level."""
        sigma = batch.t
        y = batch.x_1 + sigma[:, None, None, None] * batch.randn()
        return (net(y, sigma) - batch.x_1).square().flatten(1).mean(1), sigma

    @torch.no_grad()
    def validate(self, net, images, picture):
        """PSNR at sigma = 0.2; optional, but without a score there is no best.safetensors."""
        x = images.batch(range(len(images))).to(next(net.parameters()).device)
        y = x + 0.2 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0)).to(x.device)
        return {"psnr": float(psnr(net(y, torch.full((len(x),), 0.2, device=x.device)), x).mean())}
