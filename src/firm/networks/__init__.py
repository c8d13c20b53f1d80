"""Networks built by name when loaded: the paper's U-Net, the same as a prior, ISTA-Net+, the toy problem's MLP."""

from firm.networks.ista_net import ISTANet as ISTANet
from firm.networks.mlp import MLP as MLP
from firm.networks.unet import PRESETS as PRESETS
from firm.networks.unet import PriorUNet as PriorUNet
from firm.networks.unet import UNet as UNet

NETWORKS = {"UNet": UNet, "PriorUNet": PriorUNet, "ISTANet": ISTANet, "MLP": MLP}
