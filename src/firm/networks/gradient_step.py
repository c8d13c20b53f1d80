"""The gradient-step denoiser (Hurault et al., 2022): one step down the gradient of a learned potential."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from firm.networks.denoise import denoise
from firm.networks.estimator import OneImage
from firm.networks.res_unet import PriorResUNet
from firm.networks.unet import PriorUNet


class Step(OneImage):
    """D(x, sigma) = x - grad g(x) with g(x) = |x - N(x, sigma)|^2 / 2 and N made of a flow's network.

    N is the flow's estimate of the clean image (`estimate`), so a trained flow is the start of its training: the
    parameters and the arguments are the same. A call costs one evaluation of N and one of its backward pass.

    It is trained through that backward pass, which is differentiated again: torch.compile cannot do that.
    """

    def estimate(self, x: Tensor, sigma: Tensor) -> Tensor:
        """N(x, sigma): the flow's estimate of the clean image."""
        with sdpa_kernel(SDPBackend.MATH):  # the other kernels of attention cannot be differentiated twice
            return denoise(super().forward, x, sigma)

    def potential(self, x: Tensor, sigma: Tensor) -> Tensor:
        """g(x) = |x - N(x, sigma)|^2 / 2 of every sample, (B,)."""
        return (x - self.estimate(x, sigma)).square().flatten(1).sum(1) / 2

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:  # type: ignore[override]
        """D(x, sigma) = N + J_N'(x - N) for images `x` (B, C, H, W) of noise level `sigma` (B,).

        Works without gradients around it, too: under `torch.no_grad` and in inference mode.
        """
        wanted = torch.is_grad_enabled() and (x.requires_grad or any(p.requires_grad for p in self.parameters()))
        with torch.inference_mode(False), torch.enable_grad():
            if not (wanted and x.requires_grad):
                x = x.detach().clone().requires_grad_()  # a copy: tensors of inference mode have no gradients
            N = self.estimate(x, sigma.clone())
            (pulled,) = torch.autograd.grad(N, x, x - N, create_graph=wanted)
        return N + pulled if wanted else (N + pulled).detach()


class GradientStep(Step, PriorUNet):
    """The gradient step of a `PriorUNet`."""


class GradientResStep(Step, PriorResUNet):
    """The gradient step of a `PriorResUNet`."""
