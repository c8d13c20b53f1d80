"""Networks that `firm.load` builds by name: the paper's U-Net, and the MLP of the toy problem."""

from firm.networks.mlp import MLP as MLP
from firm.networks.unet import UNet as UNet
