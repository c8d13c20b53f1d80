"""Networks that a saved file builds by name: the paper's U-Net, the baselines' networks, the MLP of the toy problem."""

from firm.networks.drunet import DRUNet as DRUNet
from firm.networks.gradient_step import GradientStep as GradientStep
from firm.networks.ista_net import ISTANet as ISTANet
from firm.networks.mlp import MLP as MLP
from firm.networks.unet import EXTRA as EXTRA
from firm.networks.unet import PRESETS as PRESETS
from firm.networks.unet import PriorUNet as PriorUNet
from firm.networks.unet import UNet as UNet

NETWORKS = {kind.__name__: kind for kind in (UNet, PriorUNet, GradientStep, DRUNet, ISTANet, MLP)}
