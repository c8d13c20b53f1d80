"""Networks that `firm.load` builds by name: the paper's U-Net, the same as a prior, and the MLP of the toy problem."""

from firm.networks.mlp import MLP as MLP
from firm.networks.unet import PRESETS as PRESETS
from firm.networks.unet import PriorUNet as PriorUNet
from firm.networks.unet import UNet as UNet

NETWORKS = {"UNet": UNet, "PriorUNet": PriorUNet, "MLP": MLP}
