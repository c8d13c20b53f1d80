"""A network of one's own, in place of firm.UNet: `network: {class: examples/own_network.py:Small, width: 16}`."""

import torch
from torch import nn


class Small(nn.Module):
    """Four convolutions, the middle two at half the resolution; it also sees the time and the noise level.

    FIRM calls it as net(x, x_t, t), or net(x, x_t, t, sigma) if ``config["noise_level"]`` is true.
    """

    stride = 2  # sides must be multiples of it: `firm restore` pads other pictures

    def __init__(self, channels=1, width=16, noise_level=False):
        super().__init__()
        # Saved with the weights, so that Small(**config) builds the network again.
        self.config = {"channels": channels, "width": width, "noise_level": noise_level}
        self.layers = nn.Sequential(
            nn.Conv2d(2 * channels + 1 + noise_level, width, 3, padding=1),
            nn.SiLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.SiLU(),
            nn.Conv2d(2 * width, 4 * width, 3, padding=1),
            nn.SiLU(),
            nn.PixelShuffle(2),
            nn.Conv2d(width, channels, 3, padding=1),
        )

    def forward(self, x, x_t, t, sigma=None):
        """From the data-consistent image x and the flow's state x_t, (B, C, H, W), and t and sigma, (B,), an image."""
        scalars = [v[:, None, None, None].expand_as(x[:, :1]) for v in (t, sigma) if v is not None]
        return self.layers(torch.cat([x, x_t, *scalars], dim=1))
