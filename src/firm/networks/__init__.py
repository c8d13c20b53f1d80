"""Networks that `firm.load` builds by name: the paper's U-Net, the same as a prior, denoisers, the MLP of the toy."""

from firm.networks.drunet import DRUNet as DRUNet
from firm.networks.gradient_step import GradientStep as GradientStep
from firm.networks.mlp import MLP as MLP
from firm.networks.unet import PRESETS as PRESETS
from firm.networks.unet import PriorUNet as PriorUNet
from firm.networks.unet import UNet as UNet

NETWORKS = {"UNet": UNet, "PriorUNet": PriorUNet, "GradientStep": GradientStep, "DRUNet": DRUNet, "MLP": MLP}
